// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// Expiry is when a finished run is to be deleted; zero: never. An end that was still to come, by a
// clock that was ahead, counts from when it was stored.
func Expiry(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus) time.Time {
	if run.Spec.TTLSecondsAfterFinished == nil || st.CompletedAt == nil {
		return time.Time{}
	}
	end := st.CompletedAt
	if st.EndStoredAt.Before(end) {
		end = st.EndStoredAt
	}
	return end.Add(bounds.Seconds(*run.Spec.TTLSecondsAfterFinished))
}

// FinallyEnd is when the finally steps are out of time; zero: they do not run.
func FinallyEnd(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus) time.Time {
	if st.Ending == nil {
		return time.Time{}
	}
	return st.Ending.AnnouncedAt.Add(bounds.Seconds(bounds.PositiveOr(run.Spec.FinallyTimeoutSeconds, bounds.DefaultFinallyTimeout)))
}

// AttemptTimeout bounds an attempt from its start.
func AttemptTimeout(s *v1alpha1.Step) time.Duration {
	return bounds.Seconds(bounds.PositiveOr(s.TimeoutSeconds, bounds.DefaultTimeout))
}

// StartTimeout bounds an attempt from its dispatch to its start.
func StartTimeout(s *v1alpha1.Step) time.Duration {
	return bounds.Seconds(bounds.PositiveOr(s.StartTimeoutSeconds, bounds.DefaultTimeout))
}

// AttemptEnd is when an attempt in flight times out; zero: nothing is in flight.
func AttemptEnd(step *v1alpha1.Step, s *v1alpha1.StepStatus) time.Time {
	switch {
	case WithWorker(s) && s.Phase == v1alpha1.StepRunning && s.StartedAt != nil:
		return s.StartedAt.Add(AttemptTimeout(step))
	case WithWorker(s) && s.DispatchedAt != nil:
		return s.DispatchedAt.Add(StartTimeout(step))
	default:
		return time.Time{}
	}
}

// ActiveDeadline is when an admitted run times out; zero: never, or its steps are over.
func ActiveDeadline(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus) time.Time {
	if run.Spec.ActiveDeadlineSeconds == nil || !Admitted(st) || st.Ending != nil {
		return time.Time{}
	}
	return st.Admission.AdmittedAt.Add(bounds.Seconds(*run.Spec.ActiveDeadlineSeconds))
}

// StepsEnd is when the steps that may be under way are out of time with their run: those of
// spec.steps, or the finally steps once the end is announced; zero: never.
func StepsEnd(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus) time.Time {
	if st.Ending != nil {
		return FinallyEnd(run, st)
	}
	return ActiveDeadline(run, st)
}

// QueueEnd is when a waiting run times out; zero: never, or its clock does not run. The clock runs
// from queuedAt, which the first write of a run has that is not suspended, with the lock or
// without: when it was created nobody may have been there to see it.
func QueueEnd(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus) time.Time {
	if run.Spec.QueueTimeoutSeconds == nil || Admitted(st) || run.Spec.Suspend || st.Admission == nil || st.Admission.QueuedAt == nil {
		return time.Time{}
	}
	return st.Admission.QueuedAt.Add(bounds.Seconds(*run.Spec.QueueTimeoutSeconds))
}
