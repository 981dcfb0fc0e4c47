// SPDX-License-Identifier: Apache-2.0

package trials

import (
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/rollout"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

// Part is what a run has in the rollout of its policy.
type Part struct {
	// Policy is its name.
	Policy string
	// Trial is the candidate and the run's arm.
	Trial policy.Trial
	// Ballots count it.
	Ballots *ballot.Box
	// Log is told which run strikes a hard guardrail: counts do not say it. It knows the run.
	Log logr.Logger
}

// Votes are what a write takes along; nil: the run is in no arm.
func (p Part) Votes(run *v1alpha1.WorkflowRun, waits leases.Votes, results []lifecycle.Result, now time.Time) *v1alpha1.PolicyTrial {
	if p.Trial.Arm == rollout.Rest {
		return nil
	}
	t := v1alpha1.PolicyTrial{Candidate: p.Trial.Candidate, Arm: v1alpha1.RolloutArm(p.Trial.Arm)}
	if pinned := pinnedIn(run); pinned != nil && pinned.Candidate == t.Candidate {
		t = *pinned
	}
	t.BusyTries = max(t.BusyTries, int32(waits.BusyTries))
	t.LongestWaitMillis = max(t.LongestWaitMillis, waits.Wait.Milliseconds())
	for _, result := range results {
		t.LongestLatencyMillis = max(t.LongestLatencyMillis, 1, now.Sub(result.PublishedAt).Milliseconds())
	}
	return &t
}

// pinnedIn is the part that is pinned in the status of a run; nil: none is.
func pinnedIn(run *v1alpha1.WorkflowRun) *v1alpha1.PolicyTrial {
	if run.Status == nil || run.Status.Policy == nil {
		return nil
	}
	return run.Status.Policy.Trial
}

// Count counts what a write that was taken says about the rollout. noRoom says that the dead
// letters in it did not fit into the object. A tenant fills that with labels, so they strike
// nobody: else it would take each edit back by them.
func (p Part) Count(before, after *v1alpha1.WorkflowRun, noRoom bool) {
	if p.Trial.Candidate == "" {
		return
	}
	if !policy.Pinned(before) && policy.Pinned(after) {
		p.Ballots.Began(p.entry(), p.Trial.Arm)
	}
	if p.Trial.Arm == rollout.Rest {
		return
	}
	p.countHard(before, after, noRoom)
	if t := pinnedIn(after); t != nil && lifecycle.Finished(after) && !lifecycle.Finished(before) {
		p.Ballots.Ended(p.entry(), p.Trial.Arm, voteOf(t))
	}
}

// countHard counts events of which one is too many.
func (p Part) countHard(before, after *v1alpha1.WorkflowRun, noRoom bool) {
	if !abandoned(before) && abandoned(after) {
		p.strike(ballot.Abandoned)
	}
	if !noRoom && !exhausted(before) && exhausted(after) {
		p.strike(ballot.DeadLettered)
	}
}

func (p Part) strike(kind ballot.Hard) {
	p.Ballots.Struck(p.entry(), p.Trial.Arm, kind)
	p.Log.Info("A run counts for a hard guardrail of a rollout", "policy", p.Policy, "candidate", p.Trial.Candidate, "arm", p.Trial.Arm, "event", kind)
}

// CountFenceRefused counts a run of which a write was refused by the fence. It is counted once by
// a process: counted is true from then on. It is in memory, so an owner of later may
// count it again.
func (p Part) CountFenceRefused(counted *bool) {
	if p.Trial.Arm == rollout.Rest || *counted {
		return
	}
	*counted = true
	p.strike(ballot.FenceRefused)
}

func (p Part) entry() ballot.Entry {
	return ballot.Entry{Policy: p.Policy, Candidate: p.Trial.Candidate}
}

func voteOf(t *v1alpha1.PolicyTrial) ballot.Vote {
	v := ballot.Vote{BusyTries: int(t.BusyTries), Wait: time.Duration(t.LongestWaitMillis) * time.Millisecond, Latency: -1}
	if t.LongestLatencyMillis > 0 {
		v.Latency = time.Duration(t.LongestLatencyMillis) * time.Millisecond
	}
	return v
}

// abandoned says that the lock of a run is, or was before: it stays so, though a later lease
// recovered.
func abandoned(run *v1alpha1.WorkflowRun) bool {
	c := conditionOf(run, v1alpha1.ConditionRunLockAbandoned)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.ReasonRecovered)
}

// exhausted says that a result of a run could not be processed. One that is rejected does not
// count: it is as its worker sent it, so a tenant would take each edit back with it.
func exhausted(run *v1alpha1.WorkflowRun) bool {
	c := conditionOf(run, v1alpha1.ConditionDeadLettered)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonDeliveriesExhausted
}

func conditionOf(run *v1alpha1.WorkflowRun, condition string) *metav1.Condition {
	if run.Status == nil {
		return nil
	}
	return meta.FindStatusCondition(run.Status.Conditions, condition)
}
