// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// handOvers is the table of how a mutex passes on.
const handOvers = "a mutex passes on"

// limits measures how a mutex passes from run to run, what runs cost that wait for one, and how
// long a tenant's slot is free.
func limits(ctx context.Context, st *stage, r *report) (err error) {
	w, err := st.newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	write, err := w.oneByOne(ctx, chain(1), st.size(200, 30))
	if err != nil {
		return err
	}
	if err := w.prepare(ctx, func(ctx context.Context, job worker.Job) (any, error) {
		time.Sleep(jobTime) // the workload
		return echo(ctx, job)
	}); err != nil {
		return err
	}
	l := &mutexes{world: w, report: r, write: write}
	if l.operator, err = w.operator(ctx, w.profileArgs()...); err != nil {
		return err
	}
	alone, err := l.alone(ctx, st.size(100, 10))
	if err != nil {
		return err
	}
	if err := l.line(ctx, st.size(1000, 40), alone); err != nil {
		return err
	}
	if err := l.slots(ctx, st.size(150, 10), st.size(10, 3)); err != nil {
		return err
	}
	if err := l.rest(ctx, st.size(1000, 20), st.size(10000, 200)); err != nil {
		return err
	}
	r.note("A run has one job, which takes %s, and spec.locks with one mutex. A hold is from the write that has the lock in status to the write of the run's end, both as a watch sees them.", jobTime)
	r.note("One passes on: from the write of a run's end to the moment when NATS tells that the next run's worker has its job; in that time the next run takes the lock, its status is written, and its job is published. Beside a status write by one client that does nothing else.")
	r.note("One after the other: as many holds as there are runs, each as long as the median of runs that had the mutex for themselves.")
	r.note("A slot of a tenant: from the write of a run's end to the write that admits the tenant's next run, both as a watch sees them. All runs wait before the first is admitted. A job takes %s, give or take a half.", slotJob)
	r.note("At rest: runs that wait for an approval hold the mutexes, the others wait for these; %s without anything to do, a resync of locks included.", restTime)
	return nil
}

type mutexes struct {
	*world
	report   *report
	operator *devenv.Manager
	write    float64 // one plain status write, in milliseconds
}

// mutexed is a run with a mutex.
func mutexed(spec *v1alpha1.WorkflowRunSpec, mutex string) *v1alpha1.WorkflowRunSpec {
	spec.Locks = []v1alpha1.LockRequest{{Mutex: mutex}}
	return spec
}

// alone is how long a run holds a mutex that nobody else wants, in milliseconds.
func (l *mutexes) alone(ctx context.Context, n int) (median float64, err error) {
	t, err := l.hear(ctx)
	if err != nil {
		return 0, err
	}
	for i := range n {
		before := t.ended()
		if err := l.createOne(ctx, fmt.Sprintf("alone-%03d", i), mutexed(chain(1), "alone")); err != nil {
			return 0, errors.Join(err, t.close())
		}
		if err := until(ctx, func() (bool, error) { return t.ended() > before, nil }); err != nil {
			return 0, errors.Join(err, t.close())
		}
	}
	took := make([]float64, 0, n)
	for _, h := range t.holds() {
		took = append(took, millis(h.end.Sub(h.begin)))
	}
	l.report.in(handOvers, "nobody waits").add("hold, median", "ms", percentile(slices.Clone(took), 50))
	return percentile(took, 50), t.close()
}

// line has many runs want one mutex.
func (l *mutexes) line(ctx context.Context, n int, alone float64) error {
	t, err := l.hear(ctx)
	if err != nil {
		return err
	}
	if err := l.create(ctx, "line", n, mutexed(chain(1), "line")); err != nil {
		return errors.Join(err, t.close())
	}
	bounded, cancel := context.WithTimeout(ctx, scaleLimit)
	defer cancel()
	if err := until(bounded, func() (bool, error) { return t.ended() >= n, nil }); err != nil {
		return errors.Join(err, t.close())
	}
	if err := t.close(); err != nil {
		return err
	}
	l.tell(t.holds(), alone)
	return l.deleteRuns(ctx)
}

func (l *mutexes) tell(all []hold, alone float64) {
	var took, passed []float64
	for i, h := range all {
		took = append(took, millis(h.end.Sub(h.begin)))
		if i > 0 {
			passed = append(passed, millis(h.started.Sub(all[i-1].end)))
		}
	}
	s := l.report.in(handOvers, fmt.Sprintf("%d runs in line", len(all)))
	s.add("hold, median", "ms", percentile(took, 50))
	p50, p95 := percentile(passed, 50), percentile(passed, 95)
	s.add("passed on, p50", "ms", p50)
	s.add("passed on, p95", "ms", p95)
	s.add("one status write", "ms", l.write)
	s.add("p50 / status write", "", p50/l.write).atMost(3)
	s.add("p95 / status write", "", p95/l.write).atMost(6)
	total := millis(all[len(all)-1].end.Sub(all[0].begin))
	s.add("took", "s", total/1000)
	s.add("took / holds one after the other", "", total/(alone*float64(len(all)))).atMost(1.3)
	s.add("two held it at once", "", float64(overlaps(all))).atMost(0)
}

// overlaps counts runs that had the lock before the run before them had ended.
func overlaps(all []hold) (n int) {
	for i := 1; i < len(all); i++ {
		if all[i].begin.Before(all[i-1].end) {
			n++
		}
	}
	return n
}

// rest has runs hold so many mutexes, and others wait for these.
func (l *mutexes) rest(ctx context.Context, keys, waiters int) error {
	ctx, cancel := context.WithTimeout(ctx, scaleLimit)
	defer cancel()
	g, creating := errgroup.WithContext(ctx)
	g.SetLimit(createParallel)
	bar := progress("create holders and waiters", keys+waiters)
	for i := range keys + waiters {
		g.Go(func() error {
			defer func() { _ = bar.Add(1) }() // to stderr
			return l.createOne(creating, fmt.Sprintf("rest-%05d", i), mutexed(waiting(), fmt.Sprintf("k-%d", i%keys)))
		})
	}
	if err := errors.Join(g.Wait(), bar.Finish()); err != nil {
		return err
	}
	s := &scaling{world: l.world, report: l.report, operator: l.operator}
	if err := l.atRest(ctx, keys, waiters); err != nil {
		return err
	}
	return s.rest(ctx, l.report.in("runs that wait for mutexes", fmt.Sprintf("%d for %d mutexes", waiters, keys)), keys+waiters)
}

// atRest waits until all runs hold or wait, and no pass is made any more.
func (l *mutexes) atRest(ctx context.Context, keys, waiters int) error {
	last := -1.0
	return until(ctx, func() (bool, error) {
		time.Sleep(time.Second) // between two looks
		now, err := scrape(ctx, l.operator)
		if err != nil {
			return false, err
		}
		done := now.sum("controller_runtime_reconcile_total", nil) + now.apiWrites()
		same := done == last
		last = done
		running := int(now.sum("syncopate_runs", labels{"phase": string(v1alpha1.RunRunning)}))
		queued := int(now.sum("syncopate_runs", labels{"phase": string(v1alpha1.RunQueued)}))
		return same && running >= keys && queued >= waiters, nil
	})
}

// hold is when a run had its locks.
type hold struct{ begin, started, end time.Time }

// holdTap hears workers begin, and sees runs get their locks and end.
type holdTap struct {
	*tap
	runs watch.Interface
	done sync.WaitGroup

	mu  sync.Mutex
	all map[string]*hold
	n   int // that have ended
}

func (l *mutexes) hear(ctx context.Context) (*holdTap, error) {
	base, err := l.listen(ctx)
	if err != nil {
		return nil, err
	}
	t := &holdTap{tap: base, all: map[string]*hold{}}
	if t.runs, err = l.watchRuns(ctx); err != nil {
		return nil, errors.Join(err, base.close())
	}
	t.done.Go(t.follow)
	return t, nil
}

func (t *holdTap) close() error {
	t.runs.Stop()
	t.done.Wait()
	return t.tap.close()
}

// follow notes when status has the locks of a run, and its end.
func (t *holdTap) follow() {
	for e := range t.runs.ResultChan() {
		run, ok := e.Object.(*v1alpha1.WorkflowRun)
		if !ok || run.Unwritten() || e.Type == watch.Deleted {
			continue
		}
		now := time.Now()
		t.mu.Lock()
		uid := string(run.UID)
		if h := t.all[uid]; h == nil && len(run.Status.Locks) > 0 {
			t.all[uid] = &hold{begin: now}
		} else if h != nil && h.end.IsZero() && run.Status.CompletedAt != nil {
			h.end = now
			t.n++
		}
		t.mu.Unlock()
	}
}

func (t *holdTap) ended() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// holds are those that ended, in order.
func (t *holdTap) holds() []hold {
	t.tap.mu.Lock()
	defer t.tap.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []hold
	for _, uid := range slices.Sorted(maps.Keys(t.all)) {
		h, m := *t.all[uid], t.steps[[2]string{uid, stepName(0)}]
		if m != nil && !h.end.IsZero() && !m.started.IsZero() {
			h.started = m.started
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b hold) int { return cmp.Or(a.begin.Compare(b.begin), a.end.Compare(b.end)) })
	return list
}
