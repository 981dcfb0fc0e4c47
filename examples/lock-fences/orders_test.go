// SPDX-License-Identifier: Apache-2.0

package orders

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func open(t *testing.T) (write func(lock string, fence int64, state string) error, state func() string) {
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
	return func(lock string, fence int64, state string) error {
			return Write(t.Context(), db, lock, fence, "o-1", state)
		}, func() (s string) {
			if err := db.QueryRowContext(context.WithoutCancel(t.Context()), "SELECT state FROM orders WHERE id = 'o-1'").Scan(&s); err != nil {
				t.Error(err)
			}
			return s
		}
}

// mutations: fence.sql without its WHERE, or Write that writes whatever became of the fence, makes
// this fail.
func TestTheDatabaseRefusesWhoIsLate(t *testing.T) {
	write, state := open(t)
	for _, w := range []struct {
		lock  string
		fence int64
		want  error
	}{
		{"orders", 17, nil},
		{"orders", 17, nil},
		{"orders", 19, nil},
		{"orders", 18, ErrStale},
		{"orders", 17, ErrStale},
		{"orders", 19, nil},
		{"other", 3, nil},
		{"other", 2, ErrStale},
		{"orders", 9007199254740991, nil},
		{"orders", 20, ErrStale},
	} {
		before := ""
		if w.want != nil {
			before = state()
		}
		is := fmt.Sprint(w.lock, w.fence)
		if err := write(w.lock, w.fence, is); !errors.Is(err, w.want) {
			t.Errorf("%s: %v, want %v", is, err, w.want)
		}
		if got := state(); w.want != nil && got != before {
			t.Errorf("%s was refused and wrote %s", is, got)
		} else if w.want == nil && got != is {
			t.Errorf("%s wrote %s", is, got)
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
				if err := write("orders", fence+1, fmt.Sprint(fence+1)); err != nil && !errors.Is(err, ErrStale) {
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
	table, _, _ := strings.Cut(schema, "\n")
	for _, text := range []string{table, strings.TrimSpace(fenceSQL)} {
		if !strings.Contains(string(page), text) {
			t.Errorf("docs/limits.md does not have:\n%s", text)
		}
	}
}
