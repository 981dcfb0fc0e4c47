// SPDX-License-Identifier: Apache-2.0

package status

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// Aligned says whether status has the steps of spec, in order.
func Aligned(spec []v1alpha1.Step, steps []v1alpha1.StepStatus) bool {
	if len(spec) != len(steps) {
		return false
	}
	for i := range spec {
		if spec[i].Name != steps[i].Name {
			return false
		}
	}
	return true
}

// Index finds the steps of a status by name. It needs no spec: those of a run that follows a
// Workflow are elsewhere.
func Index(steps []v1alpha1.StepStatus) map[string]int {
	index := make(map[string]int, len(steps))
	for i := range steps {
		if _, taken := index[steps[i].Name]; !taken {
			index[steps[i].Name] = i
		}
	}
	return index
}

// Align gives each step of spec its status: the one it has, else Pending. More steps than status
// may hold: none.
func Align(spec []v1alpha1.Step, steps []v1alpha1.StepStatus) []v1alpha1.StepStatus {
	if len(spec) == 0 || len(spec) > bounds.MaxSteps {
		return nil
	}
	known := make(map[string]*v1alpha1.StepStatus, len(steps))
	for i := range steps {
		known[steps[i].Name] = &steps[i]
	}
	all := make([]v1alpha1.StepStatus, len(spec))
	for i := range spec {
		all[i] = v1alpha1.StepStatus{Name: spec[i].Name, Phase: v1alpha1.StepPending}
		if s := known[spec[i].Name]; s != nil {
			s.DeepCopyInto(&all[i])
		}
	}
	return all
}

// IsForEach says whether a step has begun as one job for each item.
func IsForEach(s *v1alpha1.StepStatus) bool { return s.ForEach != nil }

// WithWorker says whether an attempt of the step's own job is with NATS or a worker.
func WithWorker(s *v1alpha1.StepStatus) bool {
	return InFlight(s.Phase) && !IsForEach(s) && s.ChildRun == nil
}

// InFlight says whether a step is under way. It has a place of maxParallelSteps then; so has one
// between its attempts that holds locks.
func InFlight(p v1alpha1.StepPhase) bool {
	return p == v1alpha1.StepDispatched || p == v1alpha1.StepRunning
}

// Passed says whether a step is over and did what it should.
func Passed(p v1alpha1.StepPhase) bool {
	return p == v1alpha1.StepSucceeded || p == v1alpha1.StepSkipped
}

// Ended says whether a step is over, in whichever way.
func Ended(p v1alpha1.StepPhase) bool {
	return Passed(p) || p == v1alpha1.StepFailed || p == v1alpha1.StepCancelled
}

// Admitted says whether the tenant's quota, or its parent, admitted the run.
func Admitted(st *v1alpha1.WorkflowRunStatus) bool {
	return st.Admission != nil && st.Admission.AdmittedAt != nil
}

// KeepsSlot says whether the run keeps a slot of its tenant while it waits for its locks.
func KeepsSlot(st *v1alpha1.WorkflowRunStatus) bool {
	return st.Admission != nil && st.Admission.SlotExpiresAt != nil
}

// Finished says whether the run ended, in whichever way.
func Finished(run *v1alpha1.WorkflowRun) bool {
	return run != nil && run.Status != nil && run.Status.CompletedAt != nil
}

// Queued says whether the run waits to be admitted.
func Queued(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus) bool {
	return !Admitted(st) && !run.Spec.Suspend
}
