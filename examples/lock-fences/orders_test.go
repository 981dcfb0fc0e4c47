// SPDX-License-Identifier: Apache-2.0

package orders

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const mutex = "mutex:default/orders"

// attempt is a job under locks with these fences.
func attempt(run, step string, n int32, fences map[string]int64) worker.Job {
	return worker.Job{ID: protocol.JobID{RunUID: run, Step: step, Item: protocol.NoItem, Attempt: n}, LockFences: fences}
}

// table is a database with its tables, and the order o-1 in it.
func table(t *testing.T) (db *sql.DB, state func() string) {
	t.Helper()
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "orders.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db, func() (s string) {
		if err := db.QueryRowContext(context.WithoutCancel(t.Context()), "SELECT state FROM orders WHERE id = 'o-1'").Scan(&s); err != nil {
			t.Error(err)
		}
		return s
	}
}

func open(t *testing.T) (write func(lock string, job worker.Job, state string) error, state func() string) {
	t.Helper()
	db, state := table(t)
	return func(lock string, job worker.Job, state string) error {
		return Write(t.Context(), db, lock, job, Input{Order: "o-1", State: state})
	}, state
}

// late is one write after others, and what becomes of it.
type late struct {
	lock    string
	fence   int64
	run     string
	step    string
	attempt int32
	want    error
}

// refuses plays writes one after the other, and wants the state to be that of the last one that
// was not refused.
func refuses(t *testing.T, all ...late) {
	t.Helper()
	write, state := open(t)
	before := ""
	for _, w := range all {
		is := fmt.Sprintf("%+v", w)
		if err := write(w.lock, attempt(w.run, w.step, w.attempt, map[string]int64{w.lock: w.fence}), is); !errors.Is(err, w.want) {
			t.Errorf("%s: %v, want %v", is, err, w.want)
		}
		if w.want == nil {
			before = is
		}
		if got := state(); got != before {
			t.Errorf("after %s the order is %s", is, got)
		}
	}
}

// mutations: fence.sql without its WHERE, or Write that writes whatever became of the fence, makes
// this fail.
func TestTheDatabaseRefusesWhoIsLate(t *testing.T) {
	refuses(t,
		late{"orders", 17, "a", "write", 1, nil},
		late{"orders", 17, "a", "write", 1, nil},
		late{"orders", 19, "c", "write", 1, nil},
		late{"orders", 18, "b", "write", 1, ErrStale},
		late{"orders", 17, "a", "write", 9, ErrStale},
		late{"orders", 19, "c", "write", 1, nil},
		late{"other", 3, "a", "write", 1, nil},
		late{"other", 2, "b", "write", 1, ErrStale},
		late{"orders", 9007199254740991, "d", "write", 1, nil},
		late{"orders", 20, "e", "write", 1, ErrStale},
	)
}

// A step that is tried again keeps its lock, and with it the fence: only the attempt tells who is
// late.
//
// mutations: attempt.sql without its WHERE, Write that does not look at what became of it, and a
// key without the run, the step or the item, make this fail.
func TestTheDatabaseRefusesAnEarlierAttempt(t *testing.T) {
	refuses(t,
		late{"orders", 17, "a", "write", 2, nil},
		late{"orders", 17, "a", "write", 1, ErrStale},
		late{"orders", 17, "a", "write", 2, nil}, // delivered twice
		late{"orders", 17, "a", "other", 1, nil},
		late{"orders", 17, "child", "write", 1, nil},
		late{"orders", 17, "a", "write", 3, nil},
		late{"orders", 17, "a", "write", 2, ErrStale},
		late{"other", 17, "a", "write", 1, nil},
		late{"orders", 18, "a", "write", 4, nil},
	)
	write, _ := open(t)
	for i, item := range []string{"0", "1"} {
		job := attempt("a", "write", int32(2-i), map[string]int64{mutex: 17})
		job.ID.Item = item
		if err := write(mutex, job, item); err != nil {
			t.Errorf("item %s: %v", item, err)
		}
	}
}

// mutation: Write that leaves what earlier holders wrote makes this fail.
func TestTheAttemptsOfEarlierHoldersAreRemoved(t *testing.T) {
	db, _ := table(t)
	for _, fence := range []int64{17, 18, 19} {
		job := attempt(fmt.Sprint("run-", fence), "write", 1, map[string]int64{mutex: fence})
		if err := Write(t.Context(), db, mutex, job, Input{Order: "o-1"}); err != nil {
			t.Fatal(err)
		}
	}
	var rows int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM lock_attempts").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d rows, %v", rows, err)
	}
}

// Of a Semaphore with two permits both holders are in time, and have different fences.
//
// mutation: a Handler for locks of any kind refuses the first holder here.
func TestOnlyTheFenceOfAMutexIsCompared(t *testing.T) {
	db, _ := table(t)
	for _, name := range []string{"default/orders", "gpu-pool/eu"} {
		for _, fence := range []int64{18, 17} {
			job := attempt("a", "write", 1, map[string]int64{"gpu-pool/eu": fence})
			job.Input = []byte(`{"order":"o-1"}`)
			if _, err := Handler(db, name, func(int64) {})(t.Context(), job); err == nil || errors.Is(err, ErrStale) || !strings.Contains(err.Error(), "NoLock") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Many holders write at the same time, each twice: the last one has the last word.
func TestWhoComesTogetherIsOrderedByTheDatabase(t *testing.T) {
	write, state := open(t)
	const holders = 20
	var all sync.WaitGroup
	for fence := range int64(holders) {
		all.Go(func() {
			for range 2 {
				job := attempt(fmt.Sprint(fence), "write", 1, map[string]int64{mutex: fence + 1})
				if err := write(mutex, job, fmt.Sprint(fence+1)); err != nil && !errors.Is(err, ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := state(); got != fmt.Sprint(holders) {
		t.Errorf("the last word is that of %s", got)
	}
}

// mutation: SQL that differs from the page makes this fail.
func TestThePageHasThisSQL(t *testing.T) {
	page, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	tables, _, _ := strings.Cut(schema, "\nCREATE TABLE orders")
	for _, text := range []string{tables, strings.TrimSpace(fenceSQL), strings.TrimSpace(clearSQL), strings.TrimSpace(attemptSQL)} {
		if !strings.Contains(string(page), text) {
			t.Errorf("docs/limits.md does not have:\n%s", text)
		}
	}
}
