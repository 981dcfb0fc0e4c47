// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is an API server that plays what it is told.
type script struct {
	play func(each func(change))

	mu     sync.Mutex
	rows   []facts.Row
	err    error
	more   bool
	lists  int
	closed bool
}

func (s *script) list(context.Context, string, int) ([]facts.Row, string, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	return s.rows, "1", s.more, s.err
}

// answer gives these rows from now on.
func (s *script) answer(rows []facts.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.rows = nil, rows
}

func (s *script) watch(ctx context.Context, _, _, _ string, each func(change)) error {
	if s.play != nil {
		s.play(each)
	}
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return ctx.Err()
}

func rowsOf(n int) (rows []facts.Row) {
	for i := range n {
		rows = append(rows, facts.Row{Namespace: "a", Name: fmt.Sprintf("run-%d", i), UID: fmt.Sprint(i), Phase: "Running", Created: time.Unix(int64(i), 0)})
	}
	return rows
}

// mutation: apply that keeps what is gone, or that lets the list of a feed grow beyond its bound,
// makes this fail.
func TestAFeedIsBoundedAndKeptUpToDate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		feeds := NewFeeds(t.Context(), clock.RealClock{})
		defer feeds.Close()
		s := &script{rows: rowsOf(maxRows - 1), play: func(each func(change)) {
			each(change{Row: facts.Row{UID: "0", Name: "run-0", Phase: "Failed"}})
			each(change{Row: facts.Row{UID: "1"}, Gone: true})
			for i := range 10 {
				each(change{Row: facts.Row{UID: fmt.Sprint("new-", i), Created: time.Unix(int64(1e9+i), 0)}})
			}
		}}
		if _, err := feeds.rows(t.Context(), s, "jane", ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		rows, err := feeds.rows(t.Context(), s, "jane", "")
		if err != nil || len(rows.All) != maxRows || !rows.More || rows.All[0].UID != "new-1" {
			t.Errorf("%d rows, more %t, the newest %q: %v", len(rows.All), rows.More, rows.All[0].UID, err)
		}
		if s.lists != 1 {
			t.Errorf("listed %d times", s.lists)
		}
	})
}

// mutation: sweep that ends nothing, and feed that takes one of another user, make this fail.
func TestFeedsEndWhenNobodyLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		feeds := NewFeeds(t.Context(), clock.RealClock{})
		defer feeds.Close()
		jane, joe := &script{rows: rowsOf(1)}, &script{rows: rowsOf(2)}
		for user, s := range map[string]*script{"jane": jane, "joe": joe} {
			if rows, err := feeds.rows(t.Context(), s, user, ""); err != nil || len(rows.All) != len(s.rows) {
				t.Errorf("%s: %d rows, %v", user, len(rows.All), err)
			}
		}
		time.Sleep(2 * idleAfter)
		synctest.Wait()
		if !jane.closed || !joe.closed || len(feeds.feeds) != 0 {
			t.Errorf("%t, %t, %d feeds", jane.closed, joe.closed, len(feeds.feeds))
		}
	})
}

// mutation: room that ends none makes this fail.
func TestFeedsHaveABoundInAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		feeds := NewFeeds(t.Context(), clock.RealClock{})
		defer feeds.Close()
		for i := range 2 * maxFeeds {
			if _, err := feeds.rows(t.Context(), &script{rows: rowsOf(1)}, fmt.Sprint("user-", i), ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		feeds.mu.Lock()
		defer feeds.mu.Unlock()
		if len(feeds.feeds) > maxFeeds || feeds.feeds[key{fmt.Sprint("user-", 2*maxFeeds-1), ""}] == nil {
			t.Errorf("%d feeds", len(feeds.feeds))
		}
	})
}

// mutation: a snapshot without the error of a list that failed makes this fail.
func TestAFailureIsToldAndTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		feeds := NewFeeds(t.Context(), clock.RealClock{})
		defer feeds.Close()
		down := errors.New("down")
		s := &script{err: down}
		if _, err := feeds.rows(t.Context(), s, "jane", ""); !errors.Is(err, down) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		s.answer(rowsOf(3))
		time.Sleep(retryMost)
		synctest.Wait()
		if rows, err := feeds.rows(t.Context(), s, "jane", ""); err != nil || len(rows.All) != 3 || rows.Stale != nil {
			t.Errorf("%d rows, %v, %v", len(rows.All), rows.Stale, err)
		}
	})
}

// A namespace without runs is one, also while it cannot be watched.
//
// mutation: a snapshot that takes no rows for a list that failed makes this fail.
func TestAnEmptyListWhoseWatchFailsIsEmpty(t *testing.T) {
	t.Parallel()
	f := &feed{rows: map[string]facts.Row{}, limit: maxRows}
	f.replace(nil, false)
	broken := errors.New("broken")
	f.fail(broken)
	if rows, err := f.snapshot(time.Time{}); err != nil || len(rows.All) != 0 || !errors.Is(rows.Stale, broken) {
		t.Errorf("%d rows, %v, %v", len(rows.All), rows.Stale, err)
	}
}

// An hour of 2,000 runs that change 50 times a second, without waiting for it.
//
// mutation: a feed that keeps its changes makes this fail.
func TestTheMemoryOfAFeedStaysAsItIs(t *testing.T) {
	f := &feed{rows: map[string]facts.Row{}, limit: maxRows, subscribers: map[chan struct{}]bool{}}
	f.replace(rowsOf(2000), false)
	s := f.subscribe(time.Time{})
	defer f.unsubscribe(s, time.Time{})
	changeAll := func(times int) uint64 {
		for i := range times {
			f.apply(change{Row: facts.Row{UID: fmt.Sprint(i % 2000), Name: "run", Phase: fmt.Sprint("phase ", i), Message: fmt.Sprintf("%0200d", i)}})
			if i%100 == 0 {
				_, _ = f.snapshot(time.Time{})
			}
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := changeAll(20_000)
	after := changeAll(180_000)
	if after > before+before/10+1<<20 {
		t.Errorf("%d bytes after 20,000 changes, %d after 200,000", before, after)
	}
}
