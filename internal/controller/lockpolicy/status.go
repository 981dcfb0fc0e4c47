// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// statuses derives the status of each policy from all policies and the figures.
type statuses struct {
	owners    policy.Owners
	conflicts map[string]policy.Conflict
	runs      map[string]v1alpha1.PolicyRuns // by policy
	figures   figures
	now       time.Time
}

func newStatuses(policies []v1alpha1.LockPolicy, f figures, now time.Time) *statuses {
	owners := policy.OwnersOf(policies)
	return &statuses{owners: owners, conflicts: policy.Conflicts(policies), runs: f.runsByPolicy(owners), figures: f, now: now}
}

// of is the status of one policy, but for its rollout and what that has in force. What is not known
// yet stays as it is. One whose metrics are shared with others has no contention of its own to say.
func (s *statuses) of(p *v1alpha1.LockPolicy, shared bool) *v1alpha1.LockPolicyStatus {
	next := &v1alpha1.LockPolicyStatus{}
	if p.Status != nil {
		next = p.Status.DeepCopy()
	}
	next.ObservedGeneration = p.Generation
	ready := s.ready(p)
	meta.SetStatusCondition(&next.Conditions, ready)
	meta.SetStatusCondition(&next.Conditions, stalled(ready))
	if s.figures.counted() {
		runs := s.runs[p.Name]
		next.Runs = &runs
	}
	if c := s.figures.contention(p.Name); c != nil {
		next.Contention = c
	}
	if shared {
		next.Contention = nil
	}
	return next
}

func (s *statuses) ready(p *v1alpha1.LockPolicy) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady,
		Message: "Governs all its classes", ObservedGeneration: p.Generation, LastTransitionTime: metav1.NewTime(s.now),
	}
	if conflict, ok := s.conflicts[p.Name]; ok {
		c.Status, c.Reason = metav1.ConditionFalse, v1alpha1.ReasonClassConflict
		c.Message = fmt.Sprintf("Class %q belongs to the older policy %q; take it out of one of them", conflict.Class, conflict.Policy)
	}
	return c
}

// stalled tells tools that a policy which is not ready stays so until somebody changes one.
func stalled(ready metav1.Condition) metav1.Condition {
	c := ready
	c.Type, c.Status = v1alpha1.ConditionStalled, metav1.ConditionFalse
	if ready.Status != metav1.ConditionTrue {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// effective is what follows from a policy's spec and defaults, for the runs that are in no canary.
func effective(p *v1alpha1.LockPolicy, status *v1alpha1.LockPolicyStatus, owners policy.Owners) *v1alpha1.EffectiveLockPolicy {
	next := *p
	next.Status = status
	lock := policy.InForce(&next).RunLock
	out := &v1alpha1.EffectiveLockPolicy{
		Classes:             strings.Join(owners.Governed(p), ", "),
		Scope:               v1alpha1.LockScopeActivation,
		TTLSeconds:          int64(lock.TTL.Seconds()),
		OnFailure:           v1alpha1.RenewalFailureFence,
		WaitMode:            v1alpha1.WaitModeHandOff,
		RenewIntervalMillis: lock.Renewal.Interval.Milliseconds(),
		MarginMillis:        lock.Renewal.Margin.Milliseconds(),
		ValidityMillis:      lock.Validity().Milliseconds(),
		BusyRetryDelay:      lock.BusyRetry.String(),
	}
	if lock.ForRun {
		out.Scope = v1alpha1.LockScopeRun
	}
	if lock.Renewal.Continue {
		out.OnFailure = v1alpha1.RenewalFailureContinue
	}
	if lock.Wait.Poll {
		out.WaitMode = v1alpha1.WaitModePoll
	}
	return out
}
