// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
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
		if _, err := feeds.rows(t.Context(), s, key{user: "jane"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		rows, err := feeds.rows(t.Context(), s, key{user: "jane"})
		if err != nil || len(rows.All) != maxRows || !rows.More || rows.All[0].UID != "new-2" {
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
			if rows, err := feeds.rows(t.Context(), s, key{user: user}); err != nil || len(rows.All) != len(s.rows) {
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

// hookClock does something when somebody asks for the time the second time from now: the first one
// is begin, which has the mutex.
type hookClock struct {
	clock.WithTicker
	next  func()
	asked bool
}

func (c *hookClock) Now() time.Time {
	if do := c.next; do != nil {
		if c.asked = !c.asked; !c.asked {
			c.next = nil
			do()
		}
	}
	return c.WithTicker.Now()
}

// mutations: subscribe that takes a feed which has ended makes this fail: nobody tells its
// subscribers of anything. So does one that begins it anew for ever once the feeds are closed.
func TestWhoSubscribesAsAFeedEndsGetsOneThatLives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, at, s := &hookClock{WithTicker: clock.RealClock{}}, key{user: "jane"}, &script{rows: rowsOf(1)}
		feeds := NewFeeds(t.Context(), c)
		defer feeds.Close()
		if _, err := feeds.rows(t.Context(), s, at); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c.next = func() {
			feeds.mu.Lock()
			defer feeds.mu.Unlock()
			feeds.end(at, ErrFull)
		}
		changes, leave, err := feeds.subscribe(t.Context(), s, at)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if one := feeds.feeds[at]; one == nil || len(one.subscribers) != 1 || len(changes) != 1 {
			t.Fatalf("it subscribed to a feed that had ended: %v", one)
		}
		leave()
		c.next = feeds.Close
		if _, _, err := feeds.subscribe(t.Context(), s, at); !errors.Is(err, ErrFull) {
			t.Errorf("once the feeds are closed: %v", err)
		}
	})
}

// mutation: begin that gives a feed which has ended makes subscribe try for ever.
func TestNobodySubscribesToFeedsThatHaveEndedWithoutClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		feeds := NewFeeds(ctx, clock.RealClock{})
		defer feeds.Close()
		s, at := &script{rows: rowsOf(1)}, key{user: "jane"}
		if _, err := feeds.rows(t.Context(), s, at); err != nil {
			t.Fatal(err)
		}
		cancel()
		synctest.Wait()
		if _, _, err := feeds.subscribe(t.Context(), s, at); !errors.Is(err, ErrFull) {
			t.Errorf("%v", err)
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
			if _, err := feeds.rows(t.Context(), &script{rows: rowsOf(1)}, key{user: fmt.Sprint("user-", i)}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		feeds.mu.Lock()
		defer feeds.mu.Unlock()
		if len(feeds.feeds) > maxFeeds || feeds.feeds[key{user: fmt.Sprint("user-", 2*maxFeeds-1)}] == nil {
			t.Errorf("%d feeds", len(feeds.feeds))
		}
	})
}

// slow is an API server that lists when it is told to.
type slow struct {
	script
	begun chan struct{} // one for each list that has begun
	give  chan struct{} // closed: lists are given
}

func (s *slow) list(ctx context.Context, namespace string, limit int) ([]facts.Row, string, bool, error) {
	s.begun <- struct{}{}
	select {
	case <-ctx.Done():
		return nil, "", false, ctx.Err()
	case <-s.give:
		return s.script.list(ctx, namespace, limit)
	}
}

// As many users as there may be reload their pages at the same time, after a restart say.
//
// mutation: a list that counts for nothing while it loads, and rows that a watch brings without
// taking room, make this fail.
func TestRowsHaveABoundInAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		feeds := NewFeeds(t.Context(), clock.RealClock{})
		defer feeds.Close()
		s := &slow{begun: make(chan struct{}, maxFeeds), give: make(chan struct{})}
		s.rows = rowsOf(maxRows - 5)
		s.play = func(each func(change)) {
			for i := range 10 {
				each(change{Row: facts.Row{UID: fmt.Sprint("new-", i)}})
			}
		}
		var wg sync.WaitGroup
		var full atomic.Int64
		for i := range maxFeeds {
			wg.Go(func() {
				rows, err := feeds.rows(t.Context(), s, key{user: fmt.Sprint("user-", i)})
				if err != nil || len(rows.All) < maxRows-5 {
					full.Add(1)
				}
			})
		}
		synctest.Wait()
		if begun := len(s.begun); begun != maxAllRows/maxRows {
			t.Errorf("%d lists load at the same time", begun)
		}
		close(s.give)
		wg.Wait()
		synctest.Wait()
		if full.Load() != 0 {
			t.Errorf("%d users saw too little", full.Load())
		}
		total := 0
		feeds.mu.Lock()
		defer feeds.mu.Unlock()
		for _, one := range feeds.feeds {
			total += one.state().rows
		}
		if left := feeds.room.left.Load(); total > maxAllRows || int64(total)+left != maxAllRows {
			t.Errorf("%d rows, room for %d", total, left)
		}
	})
}

// A user has many streams open, each with a list of as many runs as there may be, and comes with
// other rights each time.
//
// mutations: makeRoom that asks for no share, or for that of an identity, a share that counts lists
// only, or rows only, or what nobody watches; one that ends a list of another user first.
func TestOneUserLeavesRoomToOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ rows, most int }{"large lists": {maxRows, maxAllRows/maxRows/2 + 1}, "small lists": {1, maxFeeds / 2}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				feeds := NewFeeds(t.Context(), clock.RealClock{})
				defer feeds.Close()
				look := func(at key, watched bool) error {
					if _, err := feeds.rows(t.Context(), &script{rows: rowsOf(c.rows)}, at); err != nil {
						return err
					}
					if watched {
						feeds.feeds[at].subscribe(time.Now())
					}
					time.Sleep(time.Millisecond)
					return nil
				}
				idle := key{user: "idle"}
				if err := look(idle, false); err != nil {
					t.Fatal(err)
				}
				had := 0
				for i := range 2 * maxFeeds {
					err := look(key{user: "jane", identity: fmt.Sprint(i), namespace: fmt.Sprint(i)}, true)
					if had++; err != nil {
						had--
						if !errors.Is(err, ErrFull) {
							t.Fatal(err)
						}
					}
				}
				if had != c.most {
					t.Errorf("jane has %d lists, want %d", had, c.most)
				}
				if feeds.feeds[idle] == nil {
					t.Error("a list of another user has ended")
				}
				for _, user := range []string{"joe", "ann"} {
					if err := look(key{user: user}, true); err != nil {
						t.Errorf("%s: %v", user, err)
					}
				}
			})
		})
	}
}

// Lists of other users load, as after a restart, and take as much room as there is until they are
// there. A user who watches a list waits for them, and is not refused a second one.
//
// mutations: makeRoom that waits for no list, or for none of others, makes this fail.
func TestNobodyIsRefusedWhileListsOfOthersLoad(t *testing.T) {
	t.Parallel()
	for name, loading := range map[string]func(i int) key{
		"lists of others": func(i int) key { return key{user: fmt.Sprint("user-", i)} },
		"their own lists": func(i int) key { return key{user: "ann", namespace: fmt.Sprint("large-", i)} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				feeds := NewFeeds(t.Context(), clock.RealClock{})
				defer feeds.Close()
				first, second := key{user: "ann", namespace: "a"}, key{user: "ann", namespace: "b"}
				small := &script{rows: rowsOf(1)}
				if _, err := feeds.rows(t.Context(), small, first); err != nil {
					t.Fatal(err)
				}
				feeds.feeds[first].subscribe(time.Now())
				s := &slow{begun: make(chan struct{}, maxFeeds), give: make(chan struct{})}
				s.rows = rowsOf(1)
				var wg sync.WaitGroup
				for i := range 4 {
					wg.Go(func() { _, _ = feeds.rows(t.Context(), s, loading(i)) })
				}
				synctest.Wait()
				var rows facts.Rows
				err := errors.New("no answer")
				wg.Go(func() { rows, err = feeds.rows(t.Context(), small, second) })
				synctest.Wait()
				close(s.give)
				wg.Wait()
				if err != nil || len(rows.All) != 1 {
					t.Errorf("%d rows, %v", len(rows.All), err)
				}
			})
		})
	}
}

// kubectl syncopate console has one user, without a name: all of the room is theirs.
//
// mutation: makeRoom that asks for a share of the user without a name makes this fail.
func TestTheOnlyUserHasAllOfTheRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		feeds := NewFeeds(t.Context(), clock.RealClock{})
		defer feeds.Close()
		for i := range maxFeeds + 1 {
			at := key{namespace: fmt.Sprint(i)}
			_, err := feeds.rows(t.Context(), &script{rows: rowsOf(1)}, at)
			if want := i == maxFeeds; errors.Is(err, ErrFull) != want || err != nil && !want {
				t.Fatalf("list %d: %v", i+1, err)
			}
			if err == nil {
				feeds.feeds[at].subscribe(time.Now())
			}
		}
	})
}

// mutation: run that ends without an error makes this fail.
func TestAListThatIsEndedBeforeItIsThereIsNotEmpty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		feeds := NewFeeds(t.Context(), clock.RealClock{})
		s := &slow{begun: make(chan struct{}, 1), give: make(chan struct{})}
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { _, err = feeds.rows(t.Context(), s, key{user: "jane"}) })
		synctest.Wait()
		feeds.Close()
		wg.Wait()
		if !errors.Is(err, ErrFull) {
			t.Errorf("%v", err)
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
		if _, err := feeds.rows(t.Context(), s, key{user: "jane"}); !errors.Is(err, down) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		s.answer(rowsOf(3))
		time.Sleep(retryMost)
		synctest.Wait()
		if rows, err := feeds.rows(t.Context(), s, key{user: "jane"}); err != nil || len(rows.All) != 3 || rows.Stale != nil {
			t.Errorf("%d rows, %v, %v", len(rows.All), rows.Stale, err)
		}
	})
}

// A namespace without runs is one, also while it cannot be watched.
//
// mutation: a snapshot that takes no rows for a list that failed makes this fail.
func TestAnEmptyListWhoseWatchFailsIsEmpty(t *testing.T) {
	t.Parallel()
	f := &feed{rows: map[string]facts.Row{}, limit: maxRows, room: newRoom(maxAllRows)}
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
	f := &feed{rows: map[string]facts.Row{}, limit: maxRows, room: newRoom(maxAllRows), subscribers: map[chan struct{}]bool{}}
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

// brief is an API server whose watches end as soon as they begin.
type brief struct {
	script
	ends  error         // what a watch ends with
	lasts time.Duration // of a watch, by the clock

	mu sync.Mutex
	at []time.Time // of each list
}

// note notes a list, and says whether there are very many: nothing else stops who asks
// without a pause.
func (b *brief) note() (many bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = append(b.at, time.Now())
	return len(b.at) > 100
}

func (b *brief) list(ctx context.Context, namespace string, limit int) ([]facts.Row, string, bool, error) {
	if b.note() {
		<-ctx.Done()
		return nil, "", false, ctx.Err()
	}
	return b.script.list(ctx, namespace, limit)
}

func (b *brief) watch(ctx context.Context, _, _, _ string, _ func(change)) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.lasts):
		return b.ends
	}
}

// gaps are the seconds between moments, without those that a watch lasted.
func gaps(at []time.Time, lasts time.Duration) (all []float64) {
	for i := 1; i < len(at); i++ {
		all = append(all, (at[i].Sub(at[i-1]) - lasts).Seconds())
	}
	return all
}

// mutations: run that lists at once where a watch was over, or was too old, whatever it lasted, and
// one that takes a watch that lasted for one that ended at once, make this fail.
func TestAListIsReadAgainAtAPace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		api  *brief
		want []float64
	}{
		"a watch that ends at once":   {&brief{}, []float64{1, 2, 4, 8, 16, 30, 30}},
		"a watch that is too old":     {&brief{ends: fmt.Errorf("%w: expired", ErrStale)}, []float64{1, 2, 4, 8, 16, 30, 30}},
		"a watch that is refused":     {&brief{ends: errors.New("refused")}, []float64{1, 2, 4, 8, 16, 30, 30}},
		"a watch that ends in time":   {&brief{lasts: watchPeriod}, []float64{1, 1, 1, 1, 1, 1, 1}},
		"one that is cut off by then": {&brief{lasts: watchPeriod, ends: errors.New("cut off")}, []float64{1, 1, 1, 1, 1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				feeds := NewFeeds(t.Context(), clock.RealClock{})
				defer feeds.Close()
				if _, err := feeds.rows(t.Context(), c.api, key{}); err != nil && c.api.ends == nil {
					t.Fatal(err)
				}
				feeds.feeds[key{}].subscribe(time.Now()) // so that it stays
				time.Sleep(time.Duration(len(c.want)+1) * (c.api.lasts + retryMost))
				c.api.mu.Lock()
				defer c.api.mu.Unlock()
				if got := gaps(c.api.at, c.api.lasts)[:len(c.want)]; !slices.Equal(got, c.want) {
					t.Errorf("lists are %v s apart, want %v", got, c.want)
				}
				f := feeds.feeds[key{}]
				f.mu.Lock()
				defer f.mu.Unlock()
				if short := c.api.lasts == 0; (f.err != nil) != short {
					t.Errorf("between two watches its pages are told: %v", f.err)
				}
			})
		})
	}
}

// paged is an API server with a list of so many pages, each of which takes so long when it is read
// again. Its watches end when over is closed.
type paged struct {
	pages int
	takes time.Duration
	over  chan struct{}

	mu          sync.Mutex
	begun, read int // lists
}

func (s *paged) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	if q.Get("watch") != "" {
		select {
		case <-s.over:
			return answerOf(r, http.StatusOK, ""), nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	n, _ := strconv.Atoi(q.Get("continue"))
	if s.turn(n, 0) > 1 {
		select {
		case <-time.After(s.takes):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	next := strconv.Itoa(n + 1)
	if n+1 == s.pages {
		next = ""
		s.turn(-1, 1)
	}
	return answerOf(r, http.StatusOK, fmt.Sprintf(`{"metadata":{"resourceVersion":"1","continue":%q}}`, next)), nil
}

// turn counts lists, and says how many have begun.
func (s *paged) turn(page, read int) (begun int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if page == 0 {
		s.begun++
	}
	s.read += read
	return s.begun
}

// again has the lists of some API servers read, and read again as their watches end one after the
// other. It returns how often each was read to its end, two minutes later.
func again(t *testing.T, apis ...*paged) (read []int) {
	t.Helper()
	feeds := NewFeeds(t.Context(), clock.RealClock{})
	defer feeds.Close()
	for i, api := range apis {
		api.over = make(chan struct{})
		view, err := NewView(&rest.Config{Host: "http://api", QPS: -1}, &http.Client{Transport: api}, "")
		if err != nil {
			t.Fatal(err)
		}
		at := key{user: fmt.Sprint("user-", i)}
		if _, err := feeds.rows(t.Context(), view, at); err != nil {
			t.Fatal(err)
		}
		feeds.feeds[at].subscribe(time.Now()) // so that it stays
	}
	for _, api := range apis {
		close(api.over)
		time.Sleep(2 * retryFirst)
	}
	time.Sleep(2 * pageMost)
	for _, api := range apis {
		api.mu.Lock()
		read = append(read, api.read)
		api.mu.Unlock()
	}
	return read
}

// mutation: page without a bound makes this fail.
func TestListsThatStallKeepNoOtherForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		apis := []*paged{{pages: 1}}
		for range maxAgain {
			apis = append([]*paged{{pages: 2, takes: time.Hour}}, apis...)
		}
		if read := again(t, apis...); read[maxAgain] < 2 {
			t.Errorf("it was read %d times while others stall", read[maxAgain])
		}
	})
}

// What is slow is no stall: a bound of the whole list would have it begin anew without end. The API
// server's own bound of a list is about five minutes.
//
// mutation: a bound of pageMost for a whole list makes this fail.
func TestAListOfMoreThanAMinuteIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if read := again(t, &paged{pages: maxRows / pageRows, takes: 2 * time.Second}); read[0] < 2 {
			t.Errorf("it was read %d times", read[0])
		}
	})
}

// A page is there before its stream: what changes in between, or while a stream begins anew, is
// read because the stream begins with a word.
//
// mutation: subscribe without one makes this fail.
func TestAStreamBeginsWithAWord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		feeds := NewFeeds(t.Context(), clock.RealClock{})
		defer feeds.Close()
		at, changed := key{user: "jane"}, make(chan change)
		s := &script{rows: rowsOf(1), play: func(each func(change)) { each(<-changed) }}
		if _, err := feeds.rows(t.Context(), s, at); err != nil {
			t.Fatal(err)
		}
		changed <- change{Row: facts.Row{UID: "0", Phase: "Succeeded"}}
		synctest.Wait()
		select {
		case <-feeds.feeds[at].subscribe(time.Now()):
		default:
			t.Error("it was told of nothing, and shows the run as it was")
		}
	})
}

// crowded is an API server that counts the lists that are read at the same time.
type crowded struct {
	script
	over       chan struct{} // closed: watches end, and lists take a second
	have, most atomic.Int64
	begun      atomic.Int64
}

func (c *crowded) list(ctx context.Context, namespace string, limit int) ([]facts.Row, string, bool, error) {
	c.begun.Add(1)
	if n := c.have.Add(1); n > c.most.Load() {
		c.most.Store(n)
	}
	select {
	case <-c.over:
		time.Sleep(time.Second) // of the bubble
	default:
	}
	c.have.Add(-1)
	return c.script.list(ctx, namespace, limit)
}

func (c *crowded) watch(ctx context.Context, _, _, _ string, _ func(change)) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.over:
		return io.ErrUnexpectedEOF
	}
}

// An API server restarts, so that all watches end at once; or it was away when the
// lists were begun.
//
// mutations: round without a turn, and one that takes a turn only where a list has succeeded, make
// this fail.
func TestFewListsAreReadAgainAtATime(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]error{"lists that were there": nil, "lists that failed": errors.New("down")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				feeds := NewFeeds(t.Context(), clock.RealClock{})
				defer feeds.Close()
				c := &crowded{over: make(chan struct{})}
				c.script.err = down
				for i := range maxFeeds {
					at := key{user: fmt.Sprint("user-", i)}
					if _, err := feeds.rows(t.Context(), c, at); !errors.Is(err, down) {
						t.Fatal(err)
					}
					feeds.feeds[at].subscribe(time.Now())
				}
				c.most.Store(0)
				c.begun.Store(0)
				close(c.over)
				time.Sleep(10 * time.Minute)
				if most, begun := c.most.Load(), c.begun.Load(); most > maxAllRows/maxRows || begun < maxFeeds {
					t.Errorf("%d lists were read at a time, %d in all", most, begun)
				}
			})
		})
	}
}
