// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// object is a run as the API server has it.
type object struct {
	Run
	version            int
	admitted, finished bool
}

var errConflict = errors.New("the object has been modified")

// world is the API server: the truth. It checks each change: never more runs are in, admitted and
// not finished, than the limit.
type world struct {
	t     testing.TB
	limit int
	wakes map[string]chan struct{}

	mu       sync.Mutex
	objects  map[string]*object
	most     int // that were in at a time
	finished int
	done     chan struct{} // closed when all are finished
}

func newWorld(t testing.TB, limit, runs int) *world {
	w := &world{t: t, limit: limit, wakes: map[string]chan struct{}{}, objects: map[string]*object{}, done: make(chan struct{})}
	for i := range runs {
		uid := "run-" + string(rune('a'+i/26)) + string(rune('a'+i%26))
		w.objects[uid] = &object{Run: run(uid, int32(i%3), i)}
		w.wakes[uid] = make(chan struct{}, 1)
	}
	return w
}

func (w *world) read(uid string) object {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *w.objects[uid]
}

// write changes an object, unless it was changed since it was read.
func (w *world) write(read object, change func(o *object)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.objects[read.UID]
	if o.version != read.version {
		return errConflict
	}
	change(o)
	o.version++
	if n := len(w.in()); n > w.most {
		w.most = n
		if n > w.limit {
			w.t.Errorf("%d runs are in; the limit is %d", n, w.limit)
		}
	}
	w.finished = 0
	for _, o := range w.objects {
		if o.finished {
			w.finished++
		}
	}
	if o.finished && w.finished == len(w.objects) {
		close(w.done)
	}
	return nil
}

// in needs mu.
func (w *world) in() []string {
	var uids []string
	for uid, o := range w.objects {
		if o.admitted && !o.finished {
			uids = append(uids, uid)
		}
	}
	return uids
}

// touch changes the version of every run that is not admitted, so that what was decided before does
// not come true.
func (w *world) touch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.objects {
		if !o.admitted {
			o.version++
		}
	}
}

func (w *world) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.in()
}

func (w *world) wake(uids ...string) {
	for _, uid := range uids {
		select {
		case w.wakes[uid] <- struct{}{}:
		default:
		}
	}
}

// replica is one process of the operator, as far as admission is concerned.
type replica struct {
	world      *world
	quota      *Store
	limits     func() Limits
	hold       time.Duration // how long a run is in
	pause      time.Duration // the longest time between a decision and its write
	rebuilding sync.Mutex
}

// drive brings a run to its end, as the package documentation says. Several replicas may drive
// the same run.
func (r *replica) drive(ctx context.Context, uid string) {
	for ctx.Err() == nil {
		o := r.world.read(uid)
		if o.finished {
			r.release(ctx, uid)
			return
		}
		if o.admitted {
			sleep(ctx, r.hold)
			_ = r.world.write(o, func(o *object) { o.finished = true })
			continue
		}
		a, err := r.quota.Admit(ctx, acme(), r.limits(), o.Run)
		switch {
		case err != nil:
			r.recover(ctx, err)
		case a.Admitted:
			sleep(ctx, time.Duration(rand.Int64N(int64(r.pause)+1)))
			_ = r.world.write(o, func(o *object) { o.admitted = true })
		default:
			select {
			case <-r.world.wakes[uid]:
			case <-ctx.Done():
			case <-r.world.done:
			}
		}
	}
}

func (r *replica) release(ctx context.Context, uid string) {
	for ctx.Err() == nil {
		next, err := r.quota.Release(ctx, acme(), r.limits(), uid)
		if err == nil {
			r.world.wake(uidsOf(next)...)
			return
		}
		r.recover(ctx, err)
	}
}

// recover does what an error wants: a rebuild, or a moment of patience.
func (r *replica) recover(ctx context.Context, err error) {
	if !is[*RebuildingError](err) {
		sleep(ctx, time.Millisecond)
		return
	}
	r.rebuilding.Lock()
	defer r.rebuilding.Unlock()
	if token, err := r.quota.BeginRebuild(ctx, acme()); err == nil {
		r.world.touch()
		_ = r.quota.FinishRebuild(ctx, acme(), token, r.world.list()) // ErrRebuildLost: whoever comes next begins anew
	}
}

// clean is a round of the quota controller; true: nothing is left in the quota.
func (r *replica) clean(ctx context.Context) bool {
	b, err := r.quota.Snapshot(ctx, acme())
	if err != nil {
		r.recover(ctx, err)
		return false
	}
	in := r.world.list()
	var missing, leaked []string
	for _, uid := range in {
		if !slices.ContainsFunc(b.Slots, func(s Slot) bool { return s.UID == uid }) {
			missing = append(missing, uid)
		}
	}
	for _, s := range b.Slots {
		if r.world.read(s.UID).finished {
			leaked = append(leaked, s.UID)
		}
	}
	for _, p := range b.Queue {
		if r.world.read(p.UID).finished {
			leaked = append(leaked, p.UID)
		}
	}
	if r.quota.Restore(ctx, acme(), missing) != nil {
		return false
	}
	next, err := r.quota.Drop(ctx, acme(), r.limits(), leaked)
	r.world.wake(uidsOf(next)...)
	for uid := range r.world.wakes { // those who lost their place
		if !slices.ContainsFunc(b.Queue, func(p Run) bool { return p.UID == uid }) {
			r.world.wake(uid)
		}
	}
	return err == nil && len(b.Slots)+len(b.Queue)+len(leaked) == 0
}

// sleep is work that takes its time.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
