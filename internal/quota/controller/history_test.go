// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// Two leaders make resyncs at the same time, four processes let runs in, work on them and end them;
// they are paused or crash at any point, Redis loses all data or a part of it; runs are deleted,
// too. At every moment of the API server's history no more runs are admitted than the limit, all
// runs get their turn, and in the end nothing is left at the quota.
//
// mutation: touch that does nothing makes this fail, as does open that does not ask the register,
// or Release before the end is written.
func TestHistoryUnderFaults(t *testing.T) {
	const limit, count, flushes = 3, 60, 4
	w := newWorld(t)
	w.policy("batch", limit)
	h := w.watch()
	for i := range count {
		w.run(fmt.Sprintf("r%02d", i), func(s *v1alpha1.WorkflowRunSpec) { s.Priority = int32(i % 3) })
	}
	s := &story{
		world: w, p: w.effective("batch"), left: map[string]bool{}, granted: map[string]bool{}, paused: make(chan struct{}),
	}
	for i := range count {
		s.left[fmt.Sprintf("r%02d", i)] = true
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { stop(); all.Wait() })
	for range 2 {
		leader := w.instance()
		all.Go(func() { s.lead(ctx, leader) })
	}
	for i := range 4 {
		k, r := w.instance(), rand.New(rand.NewPCG(uint64(i), 1))
		all.Go(func() { s.work(ctx, k, r) })
	}
	for i := range flushes {
		s.until("as many wait as may, and work is under way", func() bool {
			return s.waiting == holders && len(s.left) <= count-(i+1)*count/(flushes+2)
		})
		s.mu.Lock()
		before := s.written
		s.mu.Unlock()
		if i%2 == 0 {
			w.server.FlushAll()
		} else {
			must(t, w.redis.Del(w.ctx(), slotsKey).Err())
		}
		// Those that were granted a slot before the loss go on when others were let in for it.
		s.until("others are let in", func() bool { return s.written >= before+limit })
		s.resume(i == flushes-1)
	}
	s.until("all runs are over", func() bool { return len(s.left) == 0 })
	stop()
	all.Wait()

	w.boss.looks()
	w.clock.Step(suspicionTime)
	w.boss.looks()
	w.holds(nil, nil)
	h.catchUp()
	if most := h.most(); most > limit || most == 0 {
		t.Errorf("%d runs were admitted at a time, the limit is %d", most, limit)
	} else {
		t.Logf("%d runs, at most %d at a time; %d grants were refused by the API server", count, most, s.refused)
	}
}

// holders is how many of the four processes may be paused at a time.
const holders = 2

// story is what the processes do.
type story struct {
	*world
	p policy.Effective

	mu      sync.Mutex
	left    map[string]bool // runs that are not over
	granted map[string]bool // those of them that were granted a slot at least once
	paused  chan struct{}   // closed when those that wait go on
	waiting int             // for that
	written int             // how many runs were admitted
	refused int             // writes by the API server
}

func (s *story) until(what string, done func() bool) {
	s.t.Helper()
	s.world.until(what, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return done()
	})
}

// pause is where some of those that were granted a slot wait until others were let in after a loss.
func (s *story) pause(ctx context.Context) {
	s.mu.Lock()
	paused, free := s.paused, s.waiting < holders
	if free {
		s.waiting++
	}
	s.mu.Unlock()
	if free {
		select {
		case <-ctx.Done():
		case <-paused:
		}
	}
}

// resume has them go on; if it is the last time, nobody waits any more.
func (s *story) resume(last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.paused)
	if s.waiting = 0; !last {
		s.paused = make(chan struct{})
	}
}

// lead makes resyncs. The clock goes on with each: who was deleted by one that crashed is looked
// for only when it has been unknown for a while.
func (s *story) lead(ctx context.Context, k *instance) {
	for ctx.Err() == nil {
		_, _ = k.resync(ctx)
		s.clock.Step(time.Second)
		select {
		case <-ctx.Done():
		case <-k.kicks.Asked():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// work takes any run and does the next thing to it.
func (s *story) work(ctx context.Context, k *instance, r *rand.Rand) {
	for ctx.Err() == nil {
		s.mu.Lock()
		var names []string
		for name := range s.left {
			names = append(names, name)
		}
		s.mu.Unlock()
		if len(names) == 0 {
			return
		}
		slices.Sort(names)
		if in := s.in(); len(in) > 0 && r.IntN(2) == 0 {
			names = in
		}
		s.advance(ctx, k, r, names[r.IntN(len(names))])
	}
}

// in is the runs at which there may be something to do.
func (s *story) in() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.granted))
}

func (s *story) advance(ctx context.Context, k *instance, r *rand.Rand, name string) {
	run := &v1alpha1.WorkflowRun{}
	err := k.w.client.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, run)
	if err != nil && !apierrors.IsNotFound(err) {
		return
	}
	f := factOf(run)
	switch {
	case err != nil:
		s.over(name)
	case f.finished:
		s.release(ctx, k, r, run)
	case f.admitted() && r.IntN(8) == 0:
		if k.w.client.Delete(ctx, run) == nil {
			s.release(ctx, k, r, run)
		}
	case f.admitted():
		if r.IntN(3) == 0 && s.tries(ctx, k, run, ended) {
			s.release(ctx, k, r, run)
		}
	default:
		if a, err := k.Admit(ctx, run, tenant, s.p); err != nil || !a.Admitted {
			return
		}
		s.mu.Lock()
		s.granted[name] = true
		s.mu.Unlock()
		switch r.IntN(5) {
		case 0:
			return // it crashes here
		case 1, 2:
			s.pause(ctx)
		}
		if s.tries(ctx, k, run, admittedUnder("batch")) {
			s.mu.Lock()
			s.written++
			s.mu.Unlock()
		}
	}
}

func (s *story) tries(ctx context.Context, k *instance, run *v1alpha1.WorkflowRun, change func(*v1alpha1.WorkflowRunStatus)) bool {
	change(run.Status)
	err := k.w.client.Status().Update(ctx, run)
	if apierrors.IsConflict(err) {
		s.mu.Lock()
		s.refused++
		s.mu.Unlock()
	}
	return err == nil
}

// release is done by who ends a run, unless it crashes.
func (s *story) release(ctx context.Context, k *instance, r *rand.Rand, run *v1alpha1.WorkflowRun) {
	s.over(run.Name)
	if r.IntN(4) > 0 {
		_ = k.Release(ctx, run.UID, tenant, "batch")
	}
}

func (s *story) over(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.left, name)
	delete(s.granted, name)
}

// chronicle is all changes of runs, as the API server made them.
type chronicle struct {
	w      *world
	mu     sync.Mutex
	events []watch.Event
}

// watch begins anew where it was when the API server ends it: a slow machine is taken for a client
// that does not read.
func (w *world) watch() *chronicle {
	w.t.Helper()
	c := &chronicle{w: w}
	var now v1alpha1.WorkflowRunList
	must(w.t, w.client.List(w.ctx(), &now))
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for from := now.ResourceVersion; ctx.Err() == nil; {
			watcher, err := w.client.Watch(ctx, &v1alpha1.WorkflowRunList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: from}})
			if err == nil {
				from = c.record(watcher, from)
			}
			select {
			case <-ctx.Done():
			case <-time.After(polling): // it may be overloaded
			}
		}
	}()
	w.t.Cleanup(func() { stop(); <-done })
	return c
}

// record returns the version of the last event.
func (c *chronicle) record(watcher watch.Interface, last string) string {
	defer watcher.Stop()
	for e := range watcher.ResultChan() {
		run, ok := e.Object.(*v1alpha1.WorkflowRun)
		if !ok {
			return last
		}
		last = run.ResourceVersion
		c.mu.Lock()
		c.events = append(c.events, e)
		c.mu.Unlock()
	}
	return last
}

// catchUp waits until the watch has told of a run that is made now.
func (c *chronicle) catchUp() {
	c.w.t.Helper()
	last := c.w.run("last", suspended)
	c.w.until("the watch has told everything", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.ContainsFunc(c.events, func(e watch.Event) bool { return version(e) >= versionOf(last) })
	})
}

// most is how many runs of batch were admitted and not over at a time.
func (c *chronicle) most() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortStableFunc(c.events, func(a, b watch.Event) int { return cmp.Compare(version(a), version(b)) })
	in, most := map[string]bool{}, 0
	for _, e := range c.events {
		run, ok := e.Object.(*v1alpha1.WorkflowRun)
		if !ok {
			continue
		}
		f := factOf(run)
		if e.Type != watch.Deleted && f.under(store.Key{Policy: "batch", Tenant: tenant}) {
			in[string(run.UID)] = true
		} else {
			delete(in, string(run.UID))
		}
		most = max(most, len(in))
	}
	return most
}

func version(e watch.Event) uint64 {
	o, ok := e.Object.(client.Object)
	if !ok {
		return 0
	}
	return versionOf(o)
}

func versionOf(o client.Object) uint64 {
	v, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return v
}
