// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const (
	// attemptTimeout is how long the attempts of lateResults may take, and lateness how long after
	// it their locks are free.
	attemptTimeout = 3 * time.Second
	lateness       = 100 * time.Millisecond
	// surely is how long before the time-out a result was ready of which the play says that it
	// was in time.
	surely = time.Second

	parkedItems = 1000 // as many as one run may have in flight in one step
	parkedFor   = 15 * time.Second
	holdLimit   = 10 * time.Minute // of locks, should the play be killed

	backlogGroups = 8        // runs, each with a consumer of its own
	backlogBytes  = 60 << 10 // of each output

	fullestObject = 1536 << 10 // etcd takes no request above that
	fullOutput    = 3500       // stays in status, if there is room
)

// lateResults has the results of runs stored at once, but keeps the operator from applying them:
// the lock is held by another until just after the time-out. The results go back to NATS meanwhile,
// with delays that end after it.
func lateResults(ctx context.Context, a *Attack) error {
	if err := a.policy(ctx, v1alpha1.LockPolicySpec{RunLock: v1alpha1.RunLockPolicy{
		LingerMillis: new(int64(0)),
		Wait:         v1alpha1.LockWait{Mode: v1alpha1.WaitModePoll, BudgetMillis: new(int64(100))},
		BusyRetry:    v1alpha1.BusyRetry{DelayMillis: attemptTimeout.Milliseconds(), JitterPercent: new(int64(100))},
	}}); err != nil {
		return err
	}
	err := a.serve(ctx, "hostile.late", a.all(50, 20), func(ctx context.Context, job worker.Job) (any, error) {
		return nil, a.scene.hold(ctx, job.ID.RunUID, holdLimit)
	})
	if err != nil {
		return err
	}
	return a.rounds(ctx, 5*attemptTimeout, func(ctx context.Context, n int) error {
		return a.each(ctx, a.runs(20, 6), func(ctx context.Context, i int) error { return a.oneLateResult(ctx, n, i) })
	})
}

// each does n things at a time, and waits for all.
func (a *Attack) each(ctx context.Context, n int, f func(context.Context, int) error) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() { errs[i] = f(ctx, i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (a *Attack) oneLateResult(ctx context.Context, n, i int) error {
	s := step("work", "hostile.late")
	s.Retry.MaxFailures = 1
	s.TimeoutSeconds, s.StartTimeoutSeconds = int32(attemptTimeout.Seconds()), int32(attemptTimeout.Seconds())
	run := &v1alpha1.WorkflowRun{ObjectMeta: named("late", n, i), Spec: v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{s}}}
	if err := a.create(ctx, run); err != nil {
		return err
	}
	id := protocol.JobID{RunUID: string(run.UID), Step: "work", Item: protocol.NoItem, Attempt: 1}
	if err := until(ctx, func() (bool, error) { return !a.log.answered(id).IsZero(), nil }); err != nil {
		return err
	}
	if err := a.read(ctx, run); err != nil {
		return err
	}
	a.underWay()
	deadline := run.Status.Steps[0].DispatchedAt.Add(attemptTimeout)
	linger(ctx, time.Until(deadline.Add(lateness)))
	if err := a.scene.free(context.WithoutCancel(ctx), id.RunUID); err != nil {
		return err
	}
	if err := a.finished(ctx, run); err != nil {
		return err
	}
	if at := a.log.answered(id); run.Status.Phase != v1alpha1.RunSucceeded && at.Before(deadline.Add(-surely)) {
		a.note(func(f *Finding) {
			f.Lost = append(f.Lost, fmt.Sprintf("%s: answered %s before its time-out, ended as %s", id, deadline.Sub(at).Round(time.Millisecond), run.Status.Phase))
		})
	}
	return a.delete(ctx, run)
}

// parkedResults has 1,000 results of one run wait with delays, for as long as its lock is held by
// another; and beside it results of runs whose labels leave no room for them.
func parkedResults(ctx context.Context, a *Attack) error {
	if err := a.policy(ctx, v1alpha1.LockPolicySpec{RunLock: v1alpha1.RunLockPolicy{
		LingerMillis: new(int64(0)),
		Wait:         v1alpha1.LockWait{Mode: v1alpha1.WaitModePoll, BudgetMillis: new(int64(100))},
		BusyRetry:    v1alpha1.BusyRetry{DelayMillis: parkedFor.Milliseconds(), JitterPercent: new(int64(100))},
	}}); err != nil {
		return err
	}
	full := &v1alpha1.WorkflowRun{ObjectMeta: named("full"), Spec: v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{step("work", "hostile.full")}}}
	output := json.RawMessage(`"` + strings.Repeat("x", fullOutput) + `"`)
	if err := a.serve(ctx, "hostile.full", 1, func(context.Context, worker.Job) (any, error) { return output, nil }); err != nil {
		return err
	}
	if err := a.createFull(ctx, full); err != nil {
		return err
	}
	return a.waitTogether(ctx, "hostile.parked", 1, parkedItems, nil)
}

// createFull creates a run with as many labels as leave room for its first status, but not for its
// result: the most that the API server takes, found by trying, and a little less.
func (a *Attack) createFull(ctx context.Context, run *v1alpha1.WorkflowRun) error {
	const room = 32 // labels of some 126 bytes: more than the first status needs, less than the second
	fits, tooMany := 0, fullestObject/100
	for tooMany-fits > room/8 {
		n := (fits + tooMany) / 2
		trial := withLabels(run, n)
		trial.Spec.Suspend = true
		err := a.create(ctx, trial)
		switch {
		case err == nil:
			fits = n
			if err := a.delete(ctx, trial); err != nil {
				return err
			}
		case strings.Contains(err.Error(), "too large"), strings.Contains(err.Error(), "larger than max"):
			tooMany = n
		default:
			return err
		}
	}
	*run = *withLabels(run, fits-room)
	return a.create(ctx, run)
}

// withLabels is a copy of a run that has n labels.
func withLabels(run *v1alpha1.WorkflowRun, n int) *v1alpha1.WorkflowRun {
	full := run.DeepCopy()
	full.Labels = map[string]string{}
	for i := range n {
		full.Labels[fmt.Sprintf("l%05d-%s", i, strings.Repeat("k", 50))] = strings.Repeat("v", 63)
	}
	return full
}

// backlog has results of 60 KiB wait for locks that are held by another, for every consumer of
// results as many as it gives out.
func backlog(ctx context.Context, a *Attack) error {
	if err := a.policy(ctx, v1alpha1.LockPolicySpec{RunLock: v1alpha1.RunLockPolicy{
		LingerMillis: new(int64(0)), Wait: v1alpha1.LockWait{Mode: v1alpha1.WaitModePoll, BudgetMillis: new(int64(60_000))},
	}}); err != nil {
		return err
	}
	output := json.RawMessage(`"` + strings.Repeat("x", backlogBytes) + `"`)
	return a.waitTogether(ctx, "hostile.backlog", a.runs(backlogGroups, backlogGroups), a.all(1000, 250), output)
}

// waitTogether has all jobs of some runs answered at once, while the locks of these runs are held
// by another until the attack ends.
func (a *Attack) waitTogether(ctx context.Context, topic string, runs, items int, output json.RawMessage) error {
	answers := newGate()
	if err := a.serve(ctx, topic, runs*items, func(ctx context.Context, _ worker.Job) (any, error) {
		if output == nil {
			return nil, answers.wait(ctx)
		}
		return output, answers.wait(ctx)
	}); err != nil {
		return err
	}
	list, err := json.Marshal(map[string]any{"list": make([]int, items)})
	if err != nil {
		return fmt.Errorf("encode items: %w", err)
	}
	s := step("all", topic)
	s.ForEach = &v1alpha1.ForEach{Items: "${inputs.list}", MaxParallel: int32(items)}
	spec := v1alpha1.WorkflowRunSpec{Inputs: &runtime.RawExtension{Raw: list}, Steps: []v1alpha1.Step{s}}
	all, err := a.oneOfEachGroup(ctx, "wait", runs, spec)
	if err != nil {
		return err
	}
	for _, run := range all {
		uid := string(run.UID)
		if err := until(ctx, func() (bool, error) { return a.log.jobs(uid) >= items, nil }); err != nil {
			return err
		}
		if err := a.scene.hold(ctx, uid, holdLimit); err != nil {
			return err
		}
	}
	answers.pass()
	// The harm is what waits. To publish it costs the tenant's workers and NATS as much as it does
	// anybody who publishes.
	if err := until(ctx, func() (bool, error) { return a.scene.allAnswered(ctx, topic) }); err != nil {
		return err
	}
	a.note(func(f *Finding) { f.Rounds++ })
	a.underWay()
	select {
	case <-a.ending:
	case <-ctx.Done():
	}
	for _, run := range all {
		if err := a.scene.free(context.WithoutCancel(ctx), string(run.UID)); err != nil {
			return err
		}
	}
	return nil
}

// oneOfEachGroup creates runs whose results have a consumer of their own each.
func (a *Attack) oneOfEachGroup(ctx context.Context, name string, count int, spec v1alpha1.WorkflowRunSpec) ([]*v1alpha1.WorkflowRun, error) {
	taken := map[int]bool{}
	var all []*v1alpha1.WorkflowRun
	for i := 0; len(all) < count; i++ {
		run := &v1alpha1.WorkflowRun{ObjectMeta: named(name, i), Spec: *spec.DeepCopy()}
		run.Spec.Suspend = true
		if err := a.create(ctx, run); err != nil {
			return nil, err
		}
		group := protocol.Partition(string(run.UID)) * backlogGroups / protocol.Partitions
		if taken[group] {
			if err := a.delete(ctx, run); err != nil {
				return nil, err
			}
			continue
		}
		taken[group] = true
		if err := a.resume(ctx, run); err != nil {
			return nil, err
		}
		all = append(all, run)
	}
	return all, nil
}
