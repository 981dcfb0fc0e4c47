// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

const (
	maxRows     = 20_000
	idleAfter   = time.Minute
	changesRoom = 1 // a subscriber is told that something changed, not what
)

// errEnds is of watches that end as soon as they begin: between them the rows grow old.
var errEnds = errors.New("watches of runs end as soon as they begin")

// source is what a feed needs of the API server.
type source interface {
	list(ctx context.Context, namespace string, limit int) (rows []facts.Row, version string, more bool, err error)
	watch(ctx context.Context, namespace, fields, version string, each func(change)) error
}

// feed keeps the rows of one namespace, or of all, as one user sees them.
type feed struct {
	from      source
	namespace string
	limit     int
	clock     clock.WithTicker
	room      *room         // for rows of all feeds
	turns     chan struct{} // of all feeds, to list again
	stop      context.CancelFunc
	done      chan struct{}
	first     chan struct{} // closed when the first list is there, or has failed

	mu          sync.Mutex
	rows        map[string]facts.Row // by UID
	sorted      []facts.Row          // nil: to be made
	more        bool
	spare       []spare // whose places are given away next, the last one first
	ripe        bool    // others may be, too: some ended
	listed      bool    // a list has succeeded; its rows may be none
	ended       bool    // its room is given back
	err         error
	used        time.Time
	subscribers map[chan struct{}]bool
}

// run lists and watches until ctx ends.
func (f *feed) run(ctx context.Context) {
	defer close(f.done)
	var p pace
	listed := sync.OnceFunc(func() { close(f.first) })
	defer func() {
		f.end(ErrFull)
		listed()
	}()
	for again := false; ctx.Err() == nil; again = true {
		watched, err := f.round(ctx, again, listed)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && !errors.Is(err, ErrStale):
			f.fail(err)
			listed()
		case watched < retryMost && p.grown():
			f.fail(errEnds)
		}
		if p.wait(ctx, f.clock, watched) != nil {
			return
		}
	}
}

// round is one list and the watch after it; again: not the first list. It says for how long the
// watch lasted.
func (f *feed) round(ctx context.Context, again bool, listed func()) (watched time.Duration, err error) {
	version, err := f.load(ctx, again)
	if err != nil {
		return 0, err
	}
	listed()
	began := f.clock.Now()
	err = f.from.watch(ctx, f.namespace, "", version, f.apply)
	return f.clock.Since(began), err
}

// load reads the rows. Until they are all there, nothing but maxRows bounds them: room is kept for
// those of a first list, and of other lists few are read at a time.
func (f *feed) load(ctx context.Context, again bool) (version string, err error) {
	if again {
		select {
		case f.turns <- struct{}{}:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		defer func() { <-f.turns }()
	}
	rows, version, more, err := f.from.list(ctx, f.namespace, f.limit)
	if err != nil {
		return "", err
	}
	f.replace(rows, more)
	return version, nil
}

// end gives the room back. Who still waits for the first list is told why there is none, not that
// it is empty.
func (f *feed) end(why error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	f.ended = true
	f.room.give(len(f.rows))
	if !f.listed && f.err == nil {
		f.err = why
	}
}

// loaded waits until the first list is there, or has failed.
func (f *feed) loaded(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-f.first:
		return nil
	}
}

func (f *feed) replace(rows []facts.Row, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	f.room.give(len(f.rows))
	if n := f.room.take(len(rows)); n < len(rows) {
		rows, more = best(rows, n), true
	}
	all := make(map[string]facts.Row, len(rows))
	for _, r := range rows {
		all[r.UID] = r
	}
	f.room.give(len(rows) - len(all))
	f.rows, f.more, f.listed, f.err = all, more, true, nil
	f.spare, f.ripe = nil, true
	f.changed()
}

func (f *feed) apply(c change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, known := f.rows[c.Row.UID]
	switch {
	case f.ended:
		return
	case c.Gone && known:
		delete(f.rows, c.Row.UID)
		f.room.give(1)
	case c.Gone:
		return
	case !known && !f.fits(&c.Row):
		return
	default:
		f.rows[c.Row.UID], f.ripe = c.Row, f.ripe || c.Row.Ended()
	}
	f.changed()
}

func (f *feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	f.changed()
}

// changed tells the subscribers. The caller has the mutex.
func (f *feed) changed() {
	f.sorted = nil
	for s := range f.subscribers {
		select {
		case s <- struct{}{}:
		default: // it was told, and has not looked yet
		}
	}
}

// snapshot is the rows now. It fails while no list has succeeded.
func (f *feed) snapshot(now time.Time) (facts.Rows, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used = now
	if !f.listed && f.err != nil {
		return facts.Rows{}, f.err
	}
	if f.sorted == nil {
		f.sorted = slices.SortedFunc(maps.Values(f.rows), func(a, b facts.Row) int {
			return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
	}
	return facts.Rows{All: f.sorted, More: f.more, Stale: f.err}, nil
}

// subscribe begins with a word: what has changed since the page was read was told to nobody. A
// feed that has ended has no more to tell: nil.
func (f *feed) subscribe(now time.Time) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return nil
	}
	s := make(chan struct{}, changesRoom)
	s <- struct{}{}
	f.subscribers[s], f.used = true, now
	return s
}

func (f *feed) unsubscribe(s chan struct{}, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.subscribers, s)
	f.used = now
}

// ask notes that somebody asks for the rows. They may wait for the first list for long.
func (f *feed) ask(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used = now
}

// idle says whether nobody has looked for a while.
func (f *feed) idle(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.subscribers) == 0 && now.Sub(f.used) >= idleAfter
}

// feedState is what the other feeds must know of one.
type feedState struct {
	rows    int // as many as it may have, while it loads
	used    time.Time
	watched bool
	loading bool
}

func (f *feed) state() feedState {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := feedState{rows: len(f.rows), used: f.used, watched: len(f.subscribers) > 0}
	if !f.listed && f.err == nil {
		s.rows, s.loading = f.limit, true
	}
	return s
}

// room is how many rows all feeds together may still take.
type room struct{ left atomic.Int64 }

func newRoom(rows int64) *room {
	r := &room{}
	r.left.Store(rows)
	return r
}

// take takes as much as there is of n.
func (r *room) take(n int) int {
	for {
		left := r.left.Load()
		got := max(min(int64(n), left), 0)
		if r.left.CompareAndSwap(left, left-got) {
			return int(got)
		}
	}
}

func (r *room) give(n int) { r.left.Add(int64(n)) }
