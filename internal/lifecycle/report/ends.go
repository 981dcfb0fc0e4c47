// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// End is why and how a run ended, or is about to end.
type End struct {
	Phase           v1alpha1.RunPhase
	Reason, Message string
}

func failed(reason, format string, args ...any) End {
	return End{Phase: v1alpha1.RunFailed, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// StepsSucceeded is the end of a run whose steps are over as they should.
func StepsSucceeded(steps []v1alpha1.StepStatus, main int) End {
	return End{Phase: v1alpha1.RunSucceeded, Reason: v1alpha1.ReasonSucceeded, Message: successText(steps[:main], len(steps)-main)}
}

// FailedByStep is the end of a run by one of its steps.
func FailedByStep(reason string, s *v1alpha1.StepStatus) End {
	return End{Phase: v1alpha1.RunFailed, Reason: reason, Message: failureText(s)}
}

// Terminated is the end of a run by spec.shutdown: Terminate.
func Terminated(steps []v1alpha1.StepStatus) End {
	return End{v1alpha1.RunCancelled, v1alpha1.ReasonTerminated, "spec.shutdown is Terminate; " + stateText(steps, nothingMore)}
}

// Deleted is the end of a run that is being deleted.
func Deleted(steps []v1alpha1.StepStatus) End {
	return End{v1alpha1.RunCancelled, v1alpha1.ReasonTerminated, "the run is being deleted; " + stateText(steps, nothingMore)}
}

// Cancelled is the end of a run by spec.shutdown: Cancel.
func Cancelled(steps []v1alpha1.StepStatus) End {
	return End{v1alpha1.RunCancelled, v1alpha1.ReasonCancelled, "spec.shutdown is Cancel; " + stateText(steps, nothingMore)}
}

// ParentTerminated is the end of a child run whose parent is terminated, or was deleted.
func ParentTerminated(p *facts.Parent, steps []v1alpha1.StepStatus) End {
	what := "is terminated"
	if p.Gone {
		what = p.Over
	}
	return End{v1alpha1.RunCancelled, v1alpha1.ReasonTerminated, fmt.Sprintf(
		"its parent run %s %s; %s", p.Claim.Name, what, stateText(steps, nothingMore))}
}

// ParentOver is the end of a child run whose parent does not wait for it any more.
func ParentOver(p *facts.Parent, steps []v1alpha1.StepStatus) End {
	return End{v1alpha1.RunCancelled, v1alpha1.ReasonCancelled, fmt.Sprintf(
		"its parent run %s %s; %s", p.Claim.Name, p.Over, stateText(steps, nothingMore))}
}

// DeadlineExceeded is the end of a run by activeDeadlineSeconds; unheard: see DeadlineUnheard.
func DeadlineExceeded(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus, unheard string) End {
	return End{v1alpha1.RunTimedOut, v1alpha1.ReasonDeadlineExceeded, fmt.Sprintf(
		"activeDeadlineSeconds (%d) passed since the admission at %s%s; %s", *run.Spec.ActiveDeadlineSeconds,
		st.Admission.AdmittedAt.UTC().Format(time.RFC3339), unheard, stateText(st.Steps, nothingMore))}
}

// FinallyTimedOut is what ends a clean-up that took longer than finallyTimeoutSeconds; unheard: see
// DeadlineUnheard.
func FinallyTimedOut(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus, unheard string) End {
	return failed(v1alpha1.ReasonFinallyTimeout, "finallyTimeoutSeconds (%d) passed since %s%s; %s",
		bounds.PositiveOr(run.Spec.FinallyTimeoutSeconds, bounds.DefaultFinallyTimeout),
		st.Ending.AnnouncedAt.UTC().Format(time.RFC3339), unheard, stateText(st.Steps, nothingMore))
}

// CleanUpFailed is an announced end with what went wrong in the clean-up.
func CleanUpFailed(announced *v1alpha1.EndingStatus, why string) End {
	message := bounds.Cut(announced.Message, bounds.MaxMessageChars/2) + "; then " + bounds.Cut(why, bounds.MaxMessageChars/2)
	return End{Phase: announced.Phase, Reason: announced.Reason, Message: message}
}

// QueueTimedOut is the end of a run by queueTimeoutSeconds.
func QueueTimedOut(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus, lock *facts.Lock) End {
	return End{v1alpha1.RunTimedOut, v1alpha1.ReasonQueueTimeout, fmt.Sprintf(
		"not admitted within queueTimeoutSeconds (%d)%s", *run.Spec.QueueTimeoutSeconds, whyLocked(st, lock))}
}

func whyLocked(st *v1alpha1.WorkflowRunStatus, lock *facts.Lock) string {
	c := status.Condition(st, v1alpha1.ConditionAdmitted)
	switch lock.State {
	case facts.LockUnavailable:
		return ": the run lock cannot be taken: " + lock.Message
	case facts.LockBusy:
		return ": the run lock is busy"
	case facts.LockHeld:
		if c != nil && c.Status == metav1.ConditionFalse {
			return ": " + c.Message
		}
	}
	return ""
}

// KeyTaken is the end of a run whose idempotency key another run has.
func KeyTaken(claim *facts.Claim, tenant string) End {
	if claim.Same {
		return failed(v1alpha1.ReasonDuplicateRun, "run %s of tenant %s has the same idempotency key and the same spec: see there", claim.Owner, tenant)
	}
	return failed(v1alpha1.ReasonIdempotencyConflict, "run %s of tenant %s has the same idempotency key and another spec", claim.Owner, tenant)
}

// TenantNotAllowed is the end of a run whose namespace may not run for its tenant.
func TenantNotAllowed(run *v1alpha1.WorkflowRun, tenant string) End {
	return failed(v1alpha1.ReasonTenantNotAllowed, "spec.tenant: namespace %q may not run for tenant %q: its annotation %s does not list it",
		run.Namespace, bounds.Cut(tenant, bounds.MaxCodeChars), v1alpha1.AnnotationAllowedTenants)
}

// ClassNotAllowed is the end of a run whose namespace may not use its workload class.
func ClassNotAllowed(run *v1alpha1.WorkflowRun) End {
	return failed(v1alpha1.ReasonClassNotAllowed, "spec.workloadClass: namespace %q may not use class %q: its annotation %s does not list it",
		run.Namespace, bounds.Cut(run.Spec.WorkloadClass, bounds.MaxCodeChars), v1alpha1.AnnotationAllowedClasses)
}

// TopicNotAllowed is the end of a run whose namespace may not use the topic of step i.
func TopicNotAllowed(run *v1alpha1.WorkflowRun, plan *dag.Plan, i int) End {
	return failed(v1alpha1.ReasonTopicNotAllowed, "%s.job.topic: namespace %q may not use topic %q: its annotation %s does not list it",
		plan.Field(i), run.Namespace, bounds.Cut(plan.Steps[i].Job.Topic, bounds.MaxCodeChars), v1alpha1.AnnotationAllowedTopics)
}

// InvalidSpec is the end of a run that cannot be run, with all that is wrong with it.
func InvalidSpec(problems []string) End {
	return End{v1alpha1.RunFailed, v1alpha1.ReasonInvalidSpec, problemsText(problems)}
}

// WorkflowNotFound is the end of a run whose Workflow, or revision, does not exist.
func WorkflowNotFound(why string) End {
	return failed(v1alpha1.ReasonWorkflowNotFound, "%s", bounds.Cut(why, bounds.MaxMessageChars))
}

// OutputsFailed is the end of a run whose steps succeeded, and whose spec.outputs did not.
func OutputsFailed(why string) End {
	return End{v1alpha1.RunFailed, v1alpha1.ReasonOutputsFailed, bounds.Cut(why, bounds.MaxMessageChars)}
}

// NoRoom is the end of a run whose status cannot grow.
func NoRoom() End {
	return failed(v1alpha1.ReasonObjectTooLarge, "the object leaves no room for its status: it has too many labels, or other metadata")
}

// OutputsDoNotFit is the end of a run that would have succeeded, in the form that has no outputs.
func OutputsDoNotFit() End {
	return failed(v1alpha1.ReasonObjectTooLarge, "its steps succeeded, but its outputs do not fit")
}
