// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const (
	createParallel = 16
	readyLimit     = 2 * time.Minute
	stopLimit      = 30 * time.Second
	lookEvery      = 200 * time.Millisecond
	// leaseRenew keeps the lease with the bench while an operator stands by, see hold.
	leaseRenew = 2 * time.Second
)

// leaseKey is the lease by which operators elect a leader.
var leaseKey = client.ObjectKey{Namespace: devenv.OperatorNamespace, Name: "syncopate-manager"}

// world is what one measurement works in: a namespace, streams of its own, operators and workers.
type world struct {
	*stage
	name     string // namespace, and prefix of the streams
	executed atomic.Int64

	operators []*devenv.Manager
	cleanups  []func()
	pprof     string // address of the profiles of operators; empty: none
}

func (s *stage) newWorld(ctx context.Context) (*world, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	s.worlds++
	w := &world{stage: s, name: fmt.Sprintf("bench-%d", s.worlds)}
	if err := s.k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.name}}); err != nil {
		return nil, fmt.Errorf("create namespace: %w", err)
	}
	return w, nil
}

// close stops the operators and workers, and deletes the runs.
func (w *world) close(ctx context.Context) error {
	err := w.stopOperators(ctx)
	for _, f := range w.cleanups {
		f()
	}
	return errors.Join(err, w.deleteRuns(ctx))
}

// watchRuns sees all writes to the runs of the world. The API server drops watchers that fall
// behind; this one goes on where it was dropped.
func (w *world) watchRuns(ctx context.Context) (watch.Interface, error) {
	var list v1alpha1.WorkflowRunList
	if err := w.k8s.List(ctx, &list, client.InNamespace(w.name), client.Limit(1)); err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(context.WithoutCancel(ctx), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return w.k8s.Watch(ctx, &v1alpha1.WorkflowRunList{}, &client.ListOptions{Namespace: w.name, Raw: &o})
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch runs: %w", err)
	}
	return watcher, nil
}

func (w *world) deleteRuns(ctx context.Context) error {
	if err := w.k8s.DeleteAllOf(ctx, &v1alpha1.WorkflowRun{}, client.InNamespace(w.name)); err != nil {
		return fmt.Errorf("delete runs: %w", err)
	}
	return nil
}

// operator starts an operator and waits until it is ready.
func (w *world) operator(ctx context.Context, args ...string) (*devenv.Manager, error) {
	m, err := w.env.StartManager(ctx, w.binary, w.operatorName(len(w.operators)), append([]string{"--nats-prefix", w.name}, args...)...)
	if err != nil {
		return nil, err
	}
	w.operators = append(w.operators, m)
	ready, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := m.Ready(ready); err != nil {
		return m, err
	}
	name := w.operatorName(len(w.operators) - 1)
	go w.record(context.WithoutCancel(ctx), m, name) // it ends with the operator
	return m, nil
}

// operatorName is the name of the nth operator.
func (w *world) operatorName(n int) string { return fmt.Sprintf("%s-operator-%d", w.name, n) }

func (w *world) stopOperators(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	var errs []error
	for _, m := range w.operators {
		errs = append(errs, m.Terminate(ctx))
	}
	w.operators = nil
	return errors.Join(errs...)
}

// work serves a topic in this process.
func (w *world) work(ctx context.Context, topic string, concurrency int, h worker.Handler) error {
	nc, err := nats.Connect(w.env.NATS.URL())
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	wk := worker.New(nc, worker.Options{Prefix: w.name, BindInterval: 100 * time.Millisecond})
	wk.Handle(topic, func(ctx context.Context, job worker.Job) (any, error) {
		w.executed.Add(1)
		return h(ctx, job)
	}, worker.Concurrency(concurrency))
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- wk.Run(running) }()
	w.cleanups = append(w.cleanups, func() {
		stop()
		if err := <-done; err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
		}
		nc.Close()
	})
	return nil
}

// create creates runs of one spec, many at a time.
func (w *world) create(ctx context.Context, prefix string, count int, spec *v1alpha1.WorkflowRunSpec) error {
	return w.createBy(ctx, createParallel, prefix, count, spec)
}

// createBy creates runs of one spec by so many clients.
func (w *world) createBy(ctx context.Context, clients int, prefix string, count int, spec *v1alpha1.WorkflowRunSpec) error {
	bar := progress("create "+w.name, count)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	for i := range count {
		g.Go(func() error {
			defer func() { _ = bar.Add(1) }() // to stderr
			return w.createOne(ctx, fmt.Sprintf("%s-%05d", prefix, i), spec)
		})
	}
	return errors.Join(g.Wait(), bar.Finish())
}

func (w *world) createOne(ctx context.Context, name string, spec *v1alpha1.WorkflowRunSpec) error {
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.name, Name: name}, Spec: *spec.DeepCopy()}
	if err := w.k8s.Create(ctx, run); err != nil {
		return fmt.Errorf("create run: %w", err)
	}
	return nil
}

func (w *world) runs(ctx context.Context) ([]v1alpha1.WorkflowRun, error) {
	var list v1alpha1.WorkflowRunList
	if err := w.k8s.List(ctx, &list, client.InNamespace(w.name)); err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return list.Items, nil
}

// hold takes the operators' lease, so that an operator that is started stands by with warm caches.
// The function it returns lets it go.
func (w *world) hold(ctx context.Context) (release func() error, err error) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseKey.Namespace, Name: leaseKey.Name}}
	if err := client.IgnoreNotFound(w.k8s.Delete(ctx, lease)); err != nil {
		return nil, fmt.Errorf("delete the lease: %w", err)
	}
	lease.ResourceVersion = ""
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: new("bench"), LeaseDurationSeconds: new(int32(60))}
	if err := w.k8s.Create(ctx, touched(lease)); err != nil {
		return nil, fmt.Errorf("take the lease: %w", err)
	}
	holding, stop := context.WithCancel(ctx)
	var renewals sync.WaitGroup
	var failed error
	renewals.Go(func() {
		tick := time.NewTicker(leaseRenew)
		defer tick.Stop()
		for {
			select {
			case <-holding.Done():
				return
			case <-tick.C:
				failed = errors.Join(failed, w.k8s.Update(ctx, touched(lease)))
			}
		}
	})
	return func() error {
		stop()
		renewals.Wait()
		return errors.Join(failed, w.k8s.Delete(ctx, lease))
	}, nil
}

func touched(lease *coordinationv1.Lease) *coordinationv1.Lease {
	now := metav1.NowMicro()
	lease.Spec.RenewTime = &now
	return lease
}

// until polls a condition until it holds or ctx ends.
func until(ctx context.Context, holds func() (bool, error)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}
