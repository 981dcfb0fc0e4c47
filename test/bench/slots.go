// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const (
	// slotClass is the workload class of runs whose tenants have one slot each.
	slotClass = "bench-slots"
	slotTopic = "bench.slots"
	// slotJob is how long such a run has its slot, give or take a half: 150 tenants need 37 runs a
	// second, which two cores can do. Less would measure what a saturated machine does first.
	slotJob = 4 * time.Second
)

// slots measures how long the slot of a tenant stays free while its next run waits for it.
func (l *mutexes) slots(ctx context.Context, tenants, each int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*scaleLimit)
	defer cancel()
	policy, err := l.closedClass(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = l.k8s.Delete(context.WithoutCancel(ctx), policy) }() // nobody uses it after this
	if err := l.allowTenants(ctx, tenants); err != nil {
		return err
	}
	if err := l.work(ctx, slotTopic, 2*tenants, func(ctx context.Context, job worker.Job) (any, error) {
		time.Sleep(slotJob/2 + rand.N(slotJob)) // the workload
		return echo(ctx, job)
	}); err != nil {
		return err
	}
	runs, err := l.watchRuns(ctx)
	if err != nil {
		return err
	}
	seen := slotTimes{stays: map[string][]*stay{}, known: map[string]*stay{}}
	var follower sync.WaitGroup
	follower.Go(func() { seen.follow(runs) })
	err = l.passSlots(ctx, &seen, policy, tenants, each)
	runs.Stop()
	follower.Wait()
	if err != nil {
		return err
	}
	idle, overlaps := seen.idle()
	s := l.report.in("a slot is free while a run waits for it", fmt.Sprintf("%d tenants with %d runs each, one at a time", tenants, each))
	s.add("p50", "ms", percentile(slices.Clone(idle), 50))
	s.add("p95", "ms", percentile(slices.Clone(idle), 95)).atMost(50)
	s.add("p95 / status write", "", percentile(idle, 95)/l.write)
	s.add("two of a tenant at once", "", float64(overlaps)).atMost(0)
	return l.deleteRuns(ctx)
}

// closedClass makes the policy of a class that admits nobody yet.
func (l *mutexes) closedClass(ctx context.Context) (*v1alpha1.LockPolicy, error) {
	policy := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: slotClass}, Spec: v1alpha1.LockPolicySpec{
		WorkloadClasses: []string{slotClass}, Admission: v1alpha1.AdmissionPolicy{MaxConcurrentRuns: new(int32(0))},
	}}
	if err := l.k8s.Create(ctx, policy); err != nil {
		return nil, fmt.Errorf("create policy: %w", err)
	}
	return policy, until(ctx, func() (bool, error) {
		err := l.k8s.Get(ctx, client.ObjectKeyFromObject(policy), policy)
		return err == nil && policy.Status != nil && policy.Status.ObservedGeneration > 0, err
	})
}

// passSlots has all runs wait, then opens the class, and returns when all have ended.
func (l *mutexes) passSlots(ctx context.Context, seen *slotTimes, policy *v1alpha1.LockPolicy, tenants, each int) error {
	all := tenants * each
	if err := l.fill(ctx, tenants, each); err != nil {
		return err
	}
	if err := until(ctx, func() (bool, error) { return seen.waiting() == all, nil }); err != nil {
		return err
	}
	if err := l.k8s.Patch(ctx, policy, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"admission":{"maxConcurrentRuns":1}}}`))); err != nil {
		return fmt.Errorf("open the class: %w", err)
	}
	return until(ctx, func() (bool, error) { return seen.ended() == all, nil })
}

func slotTenant(i int) string { return fmt.Sprintf("tenant-%d", i) }

// allowTenants lets the namespace have runs of so many tenants.
func (l *mutexes) allowTenants(ctx context.Context, n int) error {
	names := make([]string, n)
	for i := range names {
		names[i] = slotTenant(i)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.AnnotationAllowedTenants: strings.Join(names, ",")}}})
	if err != nil {
		return fmt.Errorf("encode annotation: %w", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.name}}
	if err := l.k8s.Patch(ctx, ns, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("allow tenants in namespace %s: %w", l.name, err)
	}
	return nil
}

// fill creates the runs of all tenants, one of each at a time.
func (l *mutexes) fill(ctx context.Context, tenants, each int) error {
	bar := progress("create runs of tenants", tenants*each)
	g, creating := errgroup.WithContext(ctx)
	g.SetLimit(createParallel)
	for i := range tenants * each {
		g.Go(func() error {
			defer func() { _ = bar.Add(1) }() // to stderr
			spec := chain(1)
			spec.WorkloadClass, spec.Tenant, spec.Steps[0].Job.Topic = slotClass, slotTenant(i%tenants), slotTopic
			return l.createOne(creating, fmt.Sprintf("slot-%05d", i), spec)
		})
	}
	return errors.Join(g.Wait(), bar.Finish())
}

// stay is when a run had its slot, by a watch.
type stay struct{ queued, begin, end time.Time }

type slotTimes struct {
	mu    sync.Mutex
	stays map[string][]*stay // by tenant
	known map[string]*stay   // by run
	lines int                // runs that wait, or did
	n     int                // that have ended
}

func (s *slotTimes) follow(runs watch.Interface) {
	for e := range runs.ResultChan() {
		if run, ok := e.Object.(*v1alpha1.WorkflowRun); ok && e.Type != watch.Deleted {
			s.see(run, time.Now())
		}
	}
}

func (s *slotTimes) see(run *v1alpha1.WorkflowRun, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.known[run.Name]
	if t == nil {
		t = &stay{}
		s.known[run.Name] = t
		s.stays[run.Spec.Tenant] = append(s.stays[run.Spec.Tenant], t)
	}
	if run.Status == nil {
		return
	}
	if t.queued.IsZero() && run.Status.Phase == v1alpha1.RunQueued {
		t.queued = now
		s.lines++
	}
	if a := run.Status.Admission; t.begin.IsZero() && a != nil && a.AdmittedAt != nil {
		t.begin = now
	}
	if t.end.IsZero() && run.Status.CompletedAt != nil {
		t.end = now
		s.n++
	}
}

func (s *slotTimes) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines
}

func (s *slotTimes) ended() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// idle are the times, in milliseconds, from the end of a run to the admission of the next of its
// tenant, where that waited already; and how often one began before the one before it ended.
func (s *slotTimes) idle() (all []float64, overlaps int) {
	for _, stays := range s.stays {
		slices.SortFunc(stays, func(a, b *stay) int { return cmp.Or(a.begin.Compare(b.begin), a.end.Compare(b.end)) })
		for i := 1; i < len(stays); i++ {
			switch last, next := stays[i-1], stays[i]; {
			case next.begin.Before(last.end):
				overlaps++
			case next.queued.Before(last.end):
				all = append(all, millis(next.begin.Sub(last.end)))
			}
		}
	}
	return all, overlaps
}
