// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

const (
	maxFeeds    = 32
	maxAllRows  = 100_000
	maxAgain    = maxAllRows / maxRows // lists that are read again at a time
	sweepPeriod = 15 * time.Second
)

// ErrFull is returned when so many lists are looked at that there is no room for one more. To try
// again helps when somebody has closed a page.
var ErrFull = errors.New("too many lists of runs are open")

// ErrGivenUp is returned for a list that was not there in time, so that the console reads it no
// more. To ask for it again begins it again.
var ErrGivenUp = errors.New("the list of runs took too long: it is read no more")

// Feeds are the lists of runs that people look at.
type Feeds struct {
	clock clock.WithTicker

	room  *room         // for rows of all feeds
	turns chan struct{} // to list again

	mu     sync.Mutex
	feeds  map[key]*feed
	closed bool
	wg     sync.WaitGroup
	ctx    context.Context //nolint:containedctx // the life of the feeds, which outlive the request that began them
	cancel context.CancelFunc
}

// key is whose list it is, and of what. A user has one for each set of rights that they come with.
type key struct{ user, identity, namespace string }

// NewFeeds makes feeds that live until Close, or until ctx ends.
func NewFeeds(ctx context.Context, c clock.WithTicker) *Feeds {
	f := &Feeds{clock: c, feeds: map[key]*feed{}, room: newRoom(maxAllRows), turns: make(chan struct{}, maxAgain)}
	f.ctx, f.cancel = context.WithCancel(ctx)
	f.wg.Go(f.sweep)
	return f
}

// Close ends all feeds.
func (f *Feeds) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.wg.Wait()
}

// Rows are the runs of a namespace as a user sees them; "": of all. The API server has been asked
// whether the user may list them.
func (f *Feeds) Rows(ctx context.Context, v *View, namespace string) (facts.Rows, error) {
	if err := v.MayList(ctx, namespace); err != nil {
		return facts.Rows{}, err
	}
	return f.rows(ctx, v, key{v.User, v.Identity, namespace})
}

func (f *Feeds) rows(ctx context.Context, from source, at key) (facts.Rows, error) {
	one, err := f.feed(ctx, from, at)
	if err != nil {
		return facts.Rows{}, err
	}
	if err := one.loaded(ctx); err != nil {
		return facts.Rows{}, err
	}
	return one.snapshot(f.clock.Now())
}

// Subscribe tells the channel of changes until the function is called.
func (f *Feeds) Subscribe(ctx context.Context, v *View, namespace string) (<-chan struct{}, func(), error) {
	if err := v.MayList(ctx, namespace); err != nil {
		return nil, nil, err
	}
	return f.subscribe(ctx, v, key{v.User, v.Identity, namespace})
}

// subscribe begins a feed anew if the one it found has ended since.
func (f *Feeds) subscribe(ctx context.Context, from source, at key) (<-chan struct{}, func(), error) {
	for {
		one, err := f.feed(ctx, from, at)
		if err != nil {
			return nil, nil, err
		}
		if s := one.subscribe(f.clock.Now()); s != nil {
			return s, func() { one.unsubscribe(s, f.clock.Now()) }, nil
		}
	}
}

// feed is the one of a key, begun if there is none. How many rows a list has is not known before it
// is there: where there may be no room for one more, it begins when another has loaded.
func (f *Feeds) feed(ctx context.Context, from source, at key) (*feed, error) {
	for {
		one, loading, err := f.begin(from, at) //nolint:contextcheck // a feed outlives the request that began it
		if loading == nil {
			return one, err
		}
		if err := loading.loaded(ctx); err != nil {
			return nil, err
		}
	}
}

// begin is the feed of a key, begun if there is none; or one that has to load first.
func (f *Feeds) begin(from source, at key) (one, loading *feed, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.ctx.Err() != nil { // all feeds have ended, or end as soon as they begin
		return nil, nil, ErrFull
	}
	if one := f.feeds[at]; one != nil {
		one.ask(f.clock.Now())
		return one, nil, nil
	}
	if ok, loading := f.makeRoom(at.user); !ok {
		return nil, loading, ErrFull
	}
	ctx, stop := context.WithCancel(f.ctx)
	one = &feed{
		from: from, namespace: at.namespace, limit: maxRows, clock: f.clock, room: f.room, turns: f.turns, stop: stop,
		done: make(chan struct{}), first: make(chan struct{}), rows: map[string]facts.Row{}, used: f.clock.Now(), subscribers: map[chan struct{}]bool{},
	}
	f.feeds[at] = one
	f.wg.Go(func() { one.run(ctx) })
	return one, nil, nil
}

// makeRoom ends the list that was looked at least recently, if one more of a user needs it: of
// their own lists, if they have their share. It says whether there is room then, and if not, which
// list may make some by having fewer rows than it may: it takes room of all, whoever looks at
// it. The user without a name is the only one there is, so nobody needs what is left. The caller
// has the mutex.
func (f *Feeds) makeRoom(user string) (ok bool, loading *feed) {
	for {
		all, mine := f.use(func(key) bool { return true }), f.use(func(at key) bool { return at.user == user })
		short := all
		switch {
		case user != "" && !mine.isShare(all):
			short = mine
		case all.lists < maxFeeds && all.rows+maxRows <= maxAllRows:
			return true, nil
		}
		if short.since.IsZero() {
			return false, cmp.Or(short.loading, all.loading)
		}
		f.end(short.oldest, ErrFull)
	}
}

// use is what some lists take of the room.
type use struct {
	lists, rows         int
	keptLists, keptRows int       // of them those that are watched, or load: no other makes them end
	oldest              key       // of those that may end
	since               time.Time // when somebody looked at that; zero: there is none
	loading             *feed     // one that loads
}

// use counts the lists that are meant. The caller has the mutex.
func (f *Feeds) use(meant func(key) bool) (u use) {
	for at, one := range f.feeds {
		if !meant(at) {
			continue
		}
		s := one.state()
		u.lists, u.rows = u.lists+1, u.rows+s.rows
		if s.loading {
			u.loading = one
		}
		switch {
		case s.loading || s.watched:
			u.keptLists, u.keptRows = u.keptLists+1, u.keptRows+s.rows
		case u.since.IsZero() || s.used.Before(u.since):
			u.oldest, u.since = at, s.used
		}
	}
	return u
}

// isShare says whether a user may have one list more. They may have as much as is free, besides
// what others watch: so one user alone has half of it, and a newcomer finds room.
func (u *use) isShare(all use) bool {
	lists, rows := all.keptLists-u.keptLists+u.lists, all.keptRows-u.keptRows+u.rows
	return u.lists == 0 || u.lists < maxFeeds-lists && u.rows+maxRows <= maxAllRows-rows
}

// end stops one feed, and says why to who waits for it. The caller has the mutex.
func (f *Feeds) end(at key, why error) {
	f.feeds[at].end(why)
	f.feeds[at].stop()
	delete(f.feeds, at)
}

// sweep ends the feeds that nobody looks at.
func (f *Feeds) sweep() {
	ticker := f.clock.NewTicker(sweepPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-ticker.C():
		}
		f.mu.Lock()
		for at, one := range f.feeds {
			if one.idle(f.clock.Now()) {
				f.end(at, ErrGivenUp)
			}
		}
		f.mu.Unlock()
	}
}
