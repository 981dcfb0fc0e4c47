// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// writers is how many clients write at the same time for C.
const writers = 32

// plainWrites is what status updates without any operator come to.
type plainWrites struct {
	perSecond float64       // C
	clientCPU time.Duration // that one costs the client that writes, which is this process
}

// ceiling measures C: plain status updates a second on runs of a spec, by 32 writers, without any
// operator. Each writer has objects of its own and writes one after the other, a whole status like
// that of a run under way. The objects are gone when it returns.
func (w *world) ceiling(ctx context.Context, spec *v1alpha1.WorkflowRunSpec, d time.Duration) (plainWrites, error) {
	return w.plain(ctx, spec, d, w.writeStatus)
}

// plain measures C by any kind of write.
func (w *world) plain(ctx context.Context, spec *v1alpha1.WorkflowRunSpec, d time.Duration, write func(context.Context, *v1alpha1.WorkflowRun) error) (p plainWrites, err error) {
	if err := w.create(ctx, "plain", writers, spec); err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, w.deleteRuns(ctx)) }()
	runs, err := w.runs(ctx)
	if err != nil {
		return p, err
	}
	var written atomic.Int64
	writeAll := func(ctx context.Context, end time.Time) error {
		g, ctx := errgroup.WithContext(ctx)
		for i := range runs {
			g.Go(func() error {
				for time.Now().Before(end) {
					if err := write(ctx, &runs[i]); err != nil {
						return err
					}
					written.Add(1)
				}
				return nil
			})
		}
		return g.Wait()
	}
	if err := writeAll(ctx, time.Now().Add(d/8)); err != nil { // connections, and the API server's caches
		return p, err
	}
	written.Store(0)
	begin, used := time.Now(), cpuTime(os.Getpid())
	if err := writeAll(ctx, begin.Add(d)); err != nil {
		return p, err
	}
	count := max(written.Load(), 1)
	return plainWrites{float64(count) / time.Since(begin).Seconds(), (cpuTime(os.Getpid()) - used) / time.Duration(count)}, nil
}

// oneByOne measures how long a status write takes when nobody else writes, in
// milliseconds: the median.
func (w *world) oneByOne(ctx context.Context, spec *v1alpha1.WorkflowRunSpec, n int) (median float64, err error) {
	if err := w.create(ctx, "plain", 1, spec); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.deleteRuns(ctx)) }()
	runs, err := w.runs(ctx)
	if err != nil {
		return 0, err
	}
	var took []time.Duration
	for range n {
		begin := time.Now()
		if err := w.writeStatus(ctx, &runs[0]); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begin))
		time.Sleep(20 * time.Millisecond) // at rest
	}
	return millis(percentile(took, 50)), nil
}

// writeStatus puts a whole status and nothing else of the run, as the operator does, with the next
// fence.
func (w *world) writeStatus(ctx context.Context, run *v1alpha1.WorkflowRun) error {
	sent := &v1alpha1.WorkflowRun{Status: nextStatus(run)}
	sent.Name, sent.Namespace, sent.UID, sent.ResourceVersion = run.Name, run.Namespace, run.UID, run.ResourceVersion
	if err := w.k8s.Status().Update(ctx, sent); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	*run = *sent
	return nil
}

// patchStatus patches a whole status, as a plain client does that has no version.
func (w *world) patchStatus(ctx context.Context, run *v1alpha1.WorkflowRun) error {
	body, err := json.Marshal(map[string]any{"status": nextStatus(run)})
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	if err := w.k8s.Status().Patch(ctx, run, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("patch status: %w", err)
	}
	return nil
}

// nextStatus is one with the next fence.
func nextStatus(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRunStatus {
	fence := int64(1)
	if !run.Unwritten() {
		fence += *run.Status.Fence
	}
	return plainStatus(run, fence)
}

// plainStatus is that of a run whose steps are all but over.
func plainStatus(run *v1alpha1.WorkflowRun, n int64) *v1alpha1.WorkflowRunStatus {
	now := metav1.Now()
	micro := metav1.NowMicro()
	s := &v1alpha1.WorkflowRunStatus{
		ObservedGeneration: 1, Tenant: run.Namespace, Phase: v1alpha1.RunRunning, Fence: &n,
		Lock:      &v1alpha1.RunLockStatus{LeaseID: fmt.Sprintf("1a2b3c4d5e6f.%020d", n), Holder: "syncopate-0", AcquiredAt: &now},
		Progress:  fmt.Sprintf("%d/%d", len(run.Spec.Steps)-1, len(run.Spec.Steps)),
		Admission: &v1alpha1.AdmissionStatus{QueuedAt: &run.CreationTimestamp, AdmittedAt: &run.CreationTimestamp}, StartedAt: &run.CreationTimestamp,
	}
	for _, step := range run.Spec.Steps {
		st := v1alpha1.StepStatus{Name: step.Name, Phase: v1alpha1.StepSucceeded, Attempt: 1, DispatchedAt: &micro, StartedAt: &micro, CompletedAt: &micro}
		if step.ForEach == nil {
			st.JobID = string(run.UID) + "/" + step.Name + "/-/1"
			st.Output = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"n":%d}`, n)}
		} else {
			st.Phase, st.CompletedAt = v1alpha1.StepRunning, nil
			st.ForEach = &v1alpha1.ForEachStatus{Total: 5, Begun: 5, Succeeded: 4, Groups: []v1alpha1.ItemGroup{{
				Items: "4", Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: &micro,
			}}}
		}
		s.Steps = append(s.Steps, st)
	}
	for _, c := range []string{
		v1alpha1.ConditionAdmitted, v1alpha1.ConditionRunLockRenewed, v1alpha1.ConditionRunLockAbandoned, v1alpha1.ConditionDeadLettered,
		v1alpha1.ConditionFinished, v1alpha1.ConditionSucceeded, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled,
	} {
		s.Conditions = append(s.Conditions, metav1.Condition{
			Type: c, Status: metav1.ConditionUnknown, Reason: "Running", Message: fmt.Sprint("as of write ", n),
			LastTransitionTime: now, ObservedGeneration: 1,
		})
	}
	return s
}
