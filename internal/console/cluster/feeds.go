// SPDX-License-Identifier: Apache-2.0

package cluster

import (
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
	sweepPeriod = 15 * time.Second
)

// ErrFull is returned when so many lists are looked at that there is no room for one more. To try
// again helps when somebody has closed a page.
var ErrFull = errors.New("too many lists of runs are open")

// Feeds are the lists of runs that people look at.
type Feeds struct {
	clock clock.WithTicker

	room *room // for rows of all feeds

	mu     sync.Mutex
	feeds  map[key]*feed
	closed bool
	wg     sync.WaitGroup
	ctx    context.Context //nolint:containedctx // the life of the feeds, which outlive the request that began them
	cancel context.CancelFunc
}

// key is whose list it is, and of what.
type key struct{ user, namespace string }

// NewFeeds makes feeds that live until Close, or until ctx ends.
func NewFeeds(ctx context.Context, c clock.WithTicker) *Feeds {
	f := &Feeds{clock: c, feeds: map[key]*feed{}, room: newRoom(maxAllRows)}
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
	return f.rows(ctx, v, v.Identity, namespace)
}

func (f *Feeds) rows(ctx context.Context, from source, user, namespace string) (facts.Rows, error) {
	one, err := f.feed(ctx, from, user, namespace)
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
	one, err := f.feed(ctx, v, v.Identity, namespace)
	if err != nil {
		return nil, nil, err
	}
	s := one.subscribe(f.clock.Now())
	return s, func() { one.unsubscribe(s, f.clock.Now()) }, nil
}

// feed is the one of a key, begun if there is none. How many rows a list has is not known before it
// is there: where there may be no room for one more, it begins when another has loaded.
func (f *Feeds) feed(ctx context.Context, from source, user, namespace string) (*feed, error) {
	for {
		one, loading, err := f.begin(from, user, namespace) //nolint:contextcheck // a feed outlives the request that began it
		if loading == nil {
			return one, err
		}
		if err := loading.loaded(ctx); err != nil {
			return nil, err
		}
	}
}

// begin is the feed of a key, begun if there is none; or one that has to load first.
func (f *Feeds) begin(from source, user, namespace string) (one, loading *feed, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := key{user, namespace}
	if one := f.feeds[at]; one != nil {
		return one, nil, nil
	}
	if f.closed {
		return nil, nil, ErrFull
	}
	if ok, loading := f.makeRoom(); !ok {
		return nil, loading, ErrFull
	}
	ctx, stop := context.WithCancel(f.ctx)
	one = &feed{
		from: from, namespace: namespace, limit: maxRows, room: f.room, stop: stop, done: make(chan struct{}), first: make(chan struct{}),
		rows: map[string]facts.Row{}, used: f.clock.Now(), subscribers: map[chan struct{}]bool{},
	}
	f.feeds[at] = one
	f.wg.Go(func() { one.run(ctx, f.wait) })
	return one, nil, nil
}

// makeRoom ends the list that was looked at least recently, if one more needs it. It says whether
// there is room then, and if not, which list may make some by having fewer rows than it may. The
// caller has the mutex.
func (f *Feeds) makeRoom() (ok bool, loading *feed) {
	for {
		total := 0
		var oldest key
		var since time.Time
		for at, one := range f.feeds {
			s := one.state()
			total += s.rows
			switch {
			case s.loading:
				loading = one
			case !s.watched && (since.IsZero() || s.used.Before(since)):
				oldest, since = at, s.used
			}
		}
		if len(f.feeds) < maxFeeds && total+maxRows <= maxAllRows {
			return true, nil
		}
		if since.IsZero() {
			return false, loading
		}
		f.end(oldest)
	}
}

// end stops one feed. The caller has the mutex.
func (f *Feeds) end(at key) {
	f.feeds[at].stop()
	f.feeds[at].end()
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
				f.end(at)
			}
		}
		f.mu.Unlock()
	}
}

func (f *Feeds) wait(ctx context.Context, d time.Duration) error {
	timer := f.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}
