// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const (
	chainLength      = 2
	neighbourTenants = 4
	neighbourWorkers = 16
)

// Neighbours are tenants who run small chains at a steady pace, whatever happens beside them.
type Neighbours struct {
	*tenant
	pace  time.Duration // between two runs
	round int

	mu     sync.Mutex
	ends   map[string]time.Time // when the watch told of the end of each run, by its name
	failed map[string]string    // how those ended that did not succeed
}

// Neighbours prepares a namespace with workers, which is there until Close.
func (s *Scene) Neighbours(ctx context.Context, pace time.Duration) (*Neighbours, error) {
	tenants := make([]string, neighbourTenants)
	for i := range tenants {
		tenants[i] = tenantName(i)
	}
	t, err := s.tenant(ctx, "neighbour", tenants...)
	if err != nil {
		return nil, err
	}
	n := &Neighbours{tenant: t, pace: pace, ends: map[string]time.Time{}, failed: map[string]string{}}
	if err := n.follow(ctx); err != nil {
		return n, err
	}
	return n, n.serve(ctx, n.topic(), neighbourWorkers, func(_ context.Context, job worker.Job) (any, error) { return job.Input, nil })
}

// Close ends the workers and deletes the runs.
func (n *Neighbours) Close(ctx context.Context) error { return n.close(ctx) }

// Twice are the jobs that were stored a second time after a worker of the neighbours had had them.
func (n *Neighbours) Twice() []string { return n.log.twice() }

func tenantName(i int) string { return fmt.Sprintf("quiet-%d", i) }

func (n *Neighbours) topic() string { return "quiet.work" }

// follow sees all status writes. The API server drops watchers that fall behind; this one goes on
// where it was dropped.
func (n *Neighbours) follow(ctx context.Context) error {
	var list v1alpha1.WorkflowRunList
	if err := n.scene.Client.List(ctx, &list, client.InNamespace(n.namespace)); err != nil {
		return fmt.Errorf("list runs: %w", err)
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(context.WithoutCancel(ctx), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return n.scene.Client.Watch(ctx, &v1alpha1.WorkflowRunList{}, &client.ListOptions{Namespace: n.namespace, Raw: &o})
		},
	})
	if err != nil {
		return fmt.Errorf("watch runs: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watcher.ResultChan() {
			n.see(e)
		}
	}()
	n.cleanups = append(n.cleanups, func(context.Context) error {
		watcher.Stop()
		<-done
		return nil
	})
	return nil
}

func (n *Neighbours) see(e watch.Event) {
	now := time.Now()
	run, ok := e.Object.(*v1alpha1.WorkflowRun)
	if !ok || run.Status == nil || run.Status.CompletedAt == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ends[run.Name].IsZero() {
		n.ends[run.Name] = now
	}
	if run.Status.Phase != v1alpha1.RunSucceeded {
		n.failed[run.Name] = ending(run)
	}
}

// ending says how a run ended, for people.
func ending(run *v1alpha1.WorkflowRun) string {
	parts := []string{string(run.Status.Phase)}
	for _, c := range run.Status.Conditions {
		if c.Type == v1alpha1.ConditionSucceeded {
			parts = append(parts, c.Reason, c.Message)
		}
	}
	for _, s := range run.Status.Steps {
		if s.Error != nil {
			parts = append(parts, "step "+s.Name, s.Error.Code, s.Error.Message)
		}
	}
	return strings.Join(parts, ": ")
}

// Latencies are the times from the creation of runs to their ends, as a watch sees them.
type Latencies struct {
	P50, P99, Most time.Duration
	Runs           int
	// Unfinished runs had not ended when patience was over; they count with the time until then.
	Unfinished []string
	// Failed runs ended otherwise than as Succeeded.
	Failed []string
	Stages Stages

	times []time.Duration // in order
	spans spans
}

// With is what is to be said of these runs and of others together.
func (l Latencies) With(other Latencies) Latencies {
	return Latencies{
		Unfinished: slices.Concat(l.Unfinished, other.Unfinished), Failed: slices.Concat(l.Failed, other.Failed),
		times: slices.Concat(l.times, other.times), spans: l.spans.with(other.spans),
	}.summed()
}

// summed fills in what follows from the times of the runs.
func (l Latencies) summed() Latencies {
	slices.Sort(l.times)
	if l.Runs = len(l.times); l.Runs > 0 {
		l.P50, l.P99, l.Most = l.times[l.Runs/2], p99(l.times), l.times[l.Runs-1]
	}
	l.Stages = l.spans.p99s()
	return l
}

// String shows milliseconds.
func (l Latencies) String() string {
	text := fmt.Sprintf("%d runs, p50 %s, p99 %s, max %s", l.Runs, l.P50.Round(time.Millisecond), l.P99.Round(time.Millisecond), l.Most.Round(time.Millisecond))
	if len(l.Unfinished)+len(l.Failed) > 0 {
		text += fmt.Sprintf("; %d not finished, %d failed", len(l.Unfinished), len(l.Failed))
	}
	if len(l.Failed) > 0 {
		text += ", as " + l.Failed[0]
	}
	return text
}

// Measure creates runs at the pace for a time, waits for their ends, and deletes them. Each is
// created at some moment of its own part of that time: else what comes at a multiple of the
// pace, as changes of owner do, would meet all runs at the same stage, by chance at one where
// it costs nothing.
func (n *Neighbours) Measure(ctx context.Context, d, patience time.Duration) (Latencies, error) {
	n.round++
	created, err := n.createAtPace(ctx, d)
	if err != nil {
		return Latencies{}, err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// What is not over when patience is counts so.
	if err := until(waiting, func() (bool, error) { return n.over(created), nil }); err != nil && ctx.Err() != nil {
		return Latencies{}, fmt.Errorf("measure neighbours: %w", err)
	}
	return n.sumUp(created, time.Now()), n.deleteRuns(ctx)
}

func (n *Neighbours) createAtPace(ctx context.Context, d time.Duration) (map[string]creation, error) {
	created := map[string]creation{}
	var mu sync.Mutex
	var all sync.WaitGroup
	var errs []error
	tick := time.NewTicker(n.pace)
	defer tick.Stop()
	for i := range max(1, int(d/n.pace)) {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		all.Go(func() {
			linger(ctx, rand.N(n.pace))
			run := n.chain(i)
			at := time.Now()
			err := n.create(ctx, run)
			confirmed := time.Now()
			mu.Lock()
			defer mu.Unlock()
			created[run.Name] = creation{string(run.UID), at, confirmed}
			errs = append(errs, err)
		})
	}
	all.Wait()
	return created, errors.Join(errs...)
}

func stepName(k int) string { return fmt.Sprintf("s%d", k) }

// chain is the i-th run of a round.
func (n *Neighbours) chain(i int) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{ObjectMeta: named("quiet", n.round, i)}
	run.Spec.Tenant = tenantName(i % neighbourTenants)
	for k := range chainLength {
		s := step(stepName(k), n.topic())
		s.Job.Input = &runtime.RawExtension{Raw: []byte(`{"n":1}`)}
		if k > 0 {
			s.DependsOn = []string{run.Spec.Steps[k-1].Name}
		}
		run.Spec.Steps = append(run.Spec.Steps, s)
	}
	return run
}

func (n *Neighbours) over(created map[string]creation) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name := range created {
		if n.ends[name].IsZero() {
			return false
		}
	}
	return true
}

func (n *Neighbours) sumUp(created map[string]creation, now time.Time) Latencies {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := Latencies{spans: n.spans(created, n.ends)}
	for name, c := range created {
		end := n.ends[name]
		if end.IsZero() {
			end = now
			l.Unfinished = append(l.Unfinished, name)
		}
		if how, failed := n.failed[name]; failed {
			l.Failed = append(l.Failed, name+": "+how)
		}
		l.times = append(l.times, end.Sub(c.begun))
	}
	return l.summed()
}
