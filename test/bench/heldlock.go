// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

const (
	heldClass = "bench-held"
	freeClass = "bench-free"
	// heldFor is how long a dead process holds the admission lock of a tenant.
	heldFor = 10 * time.Second
	// heldLongest is how long a run of the free class may take: it was 5.3 s when waiting for an
	// admission lock took the workers of all.
	heldLongest = 500 * time.Millisecond
)

// heldLock measures runs of one class, one after the other, while a dead process holds the
// admission lock of another class and runs of that wait.
func heldLock(ctx context.Context, st *stage, r *report) (err error) {
	w, err := st.newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	if err := w.work(ctx, topic, workerConcurrency, echo); err != nil {
		return err
	}
	if _, err := w.operator(ctx); err != nil {
		return err
	}
	for _, class := range []string{heldClass, freeClass} {
		policy := lockedClass(class)
		if err := w.k8s.Create(ctx, policy); err != nil {
			return fmt.Errorf("create policy: %w", err)
		}
		defer func() { _ = w.k8s.Delete(context.WithoutCancel(ctx), policy) }() // nobody uses it after this
	}
	time.Sleep(failoverSettle)
	h := &heldLocks{world: w}
	if _, err := h.oneByOne(ctx, "warm", heldFor/4); err != nil {
		return err
	}
	alone, err := h.oneByOne(ctx, "alone", heldFor)
	if err != nil {
		return err
	}
	waiting := st.size(40, 10)
	if err := h.hold(ctx, waiting); err != nil {
		return err
	}
	beside, err := h.oneByOne(ctx, "beside", heldFor)
	if err != nil {
		return err
	}
	if err := h.freed(ctx, waiting); err != nil {
		return err
	}
	h.report(r, alone, beside, waiting)
	return nil
}

// heldLocks creates runs of both classes.
type heldLocks struct {
	*world
	dead, over time.Time // when the lock was taken, and when the last of those who waited was admitted
}

// lockedClass is a policy that admits under a lock of the tenant.
func lockedClass(class string) *v1alpha1.LockPolicy {
	return &v1alpha1.LockPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: v1alpha1.LockPolicySpec{WorkloadClasses: []string{class}, Admission: v1alpha1.AdmissionPolicy{
			MaxConcurrentRuns: new(int32(1000)), Strategy: v1alpha1.AdmissionStrategyLock,
		}},
	}
}

// ofClass is a run of one quick step.
func ofClass(class string) *v1alpha1.WorkflowRunSpec {
	spec := chain(1)
	spec.WorkloadClass = class
	return spec
}

// oneByOne creates runs of the free class, each when the one before it has ended, for some time. It
// gives the time of each from its creation to its stored end.
func (h *heldLocks) oneByOne(ctx context.Context, name string, d time.Duration) (took []time.Duration, err error) {
	ends, err := h.watchRuns(ctx)
	if err != nil {
		return nil, err
	}
	defer ends.Stop()
	bar := progress(name, 1)
	for end := time.Now().Add(d); time.Now().Before(end); {
		at := time.Now()
		run := fmt.Sprintf("%s-%04d", name, len(took))
		if err := h.createOne(ctx, run, ofClass(freeClass)); err != nil {
			return nil, err
		}
		if err := awaitEnd(ctx, ends, run); err != nil {
			return nil, err
		}
		took = append(took, time.Since(at))
	}
	return took, bar.Finish()
}

// awaitEnd waits until a watch has seen the end of a run.
func awaitEnd(ctx context.Context, runs watch.Interface, name string) error {
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", name, context.Cause(ctx))
		case e := <-runs.ResultChan():
			if run, ok := e.Object.(*v1alpha1.WorkflowRun); ok && run.Name == name && run.Status != nil && run.Status.CompletedAt != nil {
				return nil
			}
		}
	}
}

// hold takes the lock of the held class as a process would that dies at once, and creates runs that
// need it.
func (h *heldLocks) hold(ctx context.Context, waiting int) (err error) {
	db := redis.NewClient(&redis.Options{Addr: h.env.Redis.Addr})
	defer func() { err = errors.Join(err, db.Close()) }()
	h.dead = time.Now()
	key := fmt.Sprintf("{adm:%s:%s}:lock", heldClass, h.name)
	if taken, err := db.SetNX(ctx, key, "a process that died", heldFor).Result(); err != nil || !taken {
		return errors.Join(fmt.Errorf("hold %s: taken %t", key, taken), err)
	}
	return h.create(ctx, "held", waiting, ofClass(heldClass))
}

// freed waits until all runs of the held class have ended.
func (h *heldLocks) freed(ctx context.Context, waiting int) error {
	err := until(ctx, func() (bool, error) {
		var runs v1alpha1.WorkflowRunList
		if err := h.k8s.List(ctx, &runs, client.InNamespace(h.name)); err != nil {
			return false, fmt.Errorf("list runs: %w", err)
		}
		over := 0
		for i := range runs.Items {
			if runs.Items[i].Spec.WorkloadClass == heldClass && runs.Items[i].Status != nil && runs.Items[i].Status.CompletedAt != nil {
				over++
			}
		}
		return over == waiting, nil
	})
	h.over = time.Now()
	return err
}

func (h *heldLocks) report(r *report, alone, beside []time.Duration, waiting int) {
	row := func(name string, took []time.Duration) (p50, longest *figure) {
		in := r.in("a run of another class, creation to stored end", name)
		in.add("runs", "", float64(len(took)))
		p50 = in.add("p50", "ms", millis(percentile(took, 50)))
		return p50, in.add("longest", "ms", millis(percentile(took, 100)))
	}
	usual, _ := row("alone", alone)
	p50, longest := row(fmt.Sprintf("beside %d that wait", waiting), beside)
	p50.atMost(1.5 * usual.Value)
	longest.atMost(millis(heldLongest))
	r.in("runs that waited for the lock", "all").add("ended after", "s", h.over.Sub(h.dead).Seconds())
	r.note("A process that died holds the admission lock of a tenant (strategy Lock) for %s. %d runs of its class wait. Runs of another class begin meanwhile, one after the other, each with one quick step.", heldFor, waiting)
}
