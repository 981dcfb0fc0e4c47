// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// seenByTools is what kubectl wait, Argo CD and Flux make of a run.
func seenByTools(t *testing.T, run *v1alpha1.WorkflowRun) *status.Result {
	t.Helper()
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(run)
	if err != nil {
		t.Fatal(err)
	}
	got, err := status.Compute(&unstructured.Unstructured{Object: o})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Each phase of a run, as the library that health checks are made with sees it: nothing that is not
// done is Current, and what is not Current says why. Mutations that make this fail: conditions
// Reconciling or Stalled without a message.
func TestHealthChecksUnderstandEachPhase(t *testing.T) {
	dispatched := func(t *testing.T, adjust func(*v1alpha1.WorkflowRunSpec)) *v1alpha1.WorkflowRun {
		run := newRun(newStep("a", maxFailures(1)))
		adjust(&run.Spec)
		advance(t, run, epoch)
		return run
	}
	asIs := func(*v1alpha1.WorkflowRunSpec) {}
	for name, c := range map[string]struct {
		run     func(*testing.T) *v1alpha1.WorkflowRun
		phase   v1alpha1.RunPhase
		want    status.Status
		message string // a part of it
	}{
		"nobody has looked": {want: status.InProgressStatus, message: "latest observed generation is -1", run: func(*testing.T) *v1alpha1.WorkflowRun {
			run := newRun(newStep("a"))
			run.Status = &v1alpha1.WorkflowRunStatus{ObservedGeneration: -1} // by default of the schema
			return run
		}},
		"Redis is down": {phase: v1alpha1.RunPending, want: status.InProgressStatus, message: "The run lock cannot be taken", run: func(t *testing.T) *v1alpha1.WorkflowRun {
			run := newRun(newStep("a"))
			d := decideAt(run, epoch, unavailable())
			run.Status = persisted(t, &d.Status)
			return run
		}},
		"queued": {phase: v1alpha1.RunQueued, want: status.InProgressStatus, message: "tenant", run: func(t *testing.T) *v1alpha1.WorkflowRun {
			run := newRun(newStep("a"))
			in := letIn(Input{Run: run, Now: epoch, Lock: held(1)})
			in.Gate = Gate{State: GateFull}
			d := Decide(in)
			run.Status = persisted(t, &d.Status)
			return run
		}},
		"suspended": {phase: v1alpha1.RunSuspended, want: status.InProgressStatus, message: "suspend", run: func(t *testing.T) *v1alpha1.WorkflowRun {
			return dispatched(t, func(s *v1alpha1.WorkflowRunSpec) { s.Suspend = true })
		}},
		"running": {phase: v1alpha1.RunRunning, want: status.InProgressStatus, message: "a waits for a worker", run: func(t *testing.T) *v1alpha1.WorkflowRun {
			return dispatched(t, asIs)
		}},
		"succeeded": {phase: v1alpha1.RunSucceeded, want: status.CurrentStatus, message: "current", run: func(t *testing.T) *v1alpha1.WorkflowRun {
			run := dispatched(t, asIs)
			advance(t, run, epoch, succeeded("a", 1, `1`))
			return run
		}},
		"failed": {phase: v1alpha1.RunFailed, want: status.FailedStatus, message: "step a failed: Broken: no disk", run: func(t *testing.T) *v1alpha1.WorkflowRun {
			run := dispatched(t, asIs)
			advance(t, run, epoch, failed("a", 1, "Broken", "no disk"))
			return run
		}},
		"cancelled": {phase: v1alpha1.RunCancelled, want: status.FailedStatus, message: "spec.shutdown is Cancel", run: func(t *testing.T) *v1alpha1.WorkflowRun {
			run := dispatched(t, asIs)
			run.Spec.Shutdown = v1alpha1.ShutdownCancel
			advance(t, run, epoch)
			return run
		}},
		"timed out": {phase: v1alpha1.RunTimedOut, want: status.FailedStatus, message: "activeDeadlineSeconds", run: func(t *testing.T) *v1alpha1.WorkflowRun {
			run := dispatched(t, func(s *v1alpha1.WorkflowRunSpec) { s.ActiveDeadlineSeconds = new(int32(60)) })
			advance(t, run, epoch.Add(time.Minute))
			return run
		}},
		"its object has no room": {phase: v1alpha1.RunFailed, want: status.FailedStatus, message: "no room", run: func(t *testing.T) *v1alpha1.WorkflowRun {
			run := dispatched(t, asIs)
			in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Form: FormBare})
			d := Decide(in)
			run.Status = persisted(t, &d.Status)
			return run
		}},
	} {
		t.Run(name, func(t *testing.T) {
			run := c.run(t)
			got := seenByTools(t, run)
			if got.Status != c.want || !strings.Contains(got.Message, c.message) || run.Status.Phase != c.phase {
				t.Errorf("phase %q is %s: %q, want %s: %q", run.Status.Phase, got.Status, got.Message, c.want, c.message)
			}
		})
	}
}

// A status of the schema's default counts like none. mutation: Unwritten that is false for it
// makes this fail.
func TestADefaultStatusIsNone(t *testing.T) {
	for name, st := range map[string]*v1alpha1.WorkflowRunStatus{"none": nil, "the default": {ObservedGeneration: -1}} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"))
			run.Status = st
			if !run.Unwritten() {
				t.Error("it counts as written")
			}
			d := decideAt(run, epoch, unavailable())
			if !d.Changed || d.Status.Progress != "0/1" || d.Status.ObservedGeneration != 1 {
				t.Errorf("%+v", d.Status)
			}
			lost := unavailable()
			lost.State, lost.Lost = LockBusy, v1alpha1.ReasonOwnershipLost
			if d := decideAt(run, epoch, lost); d.Changed {
				t.Errorf("a run that nobody wrote lost a lease: %+v", d.Status)
			}
		})
	}
}
