// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// Trial is the part that a run has in a rollout; the zero Trial: none.
type Trial struct {
	// Candidate is the name of the revision that is tried.
	Candidate string
	// Arm of the run.
	Arm rollout.Arm
}

// Governs is what governs a run, and its part in the rollout of that. The part is decided before
// the first write under the lock, or that says that the first lock is waited for, which pins it in
// status.
func Governs(run *v1alpha1.WorkflowRun, policies []v1alpha1.LockPolicy) (Effective, Trial) {
	p := governing(run.Spec.WorkloadClass, policies)
	e, trial := InForce(p), trialOf(run, p)
	if trial.Arm == rollout.Canary && triedOn(p) == rollout.Run && trial.Candidate == p.Status.Rollout.Candidate.Name {
		if baseline := e.RunLock; !Pinned(run) {
			e.Untried = &baseline
		}
		e.RunLock, e.Generation = runLock(p.Status.Rollout.Candidate.RunLock), p.Status.Rollout.Candidate.Generation
	}
	return e, trial
}

func trialOf(run *v1alpha1.WorkflowRun, p *v1alpha1.LockPolicy) Trial {
	if p == nil {
		return Trial{}
	}
	if st := run.Status; Pinned(run) {
		if st.Policy == nil || st.Policy.Trial == nil || st.Policy.Name != p.Name {
			return Trial{}
		}
		return Trial{Candidate: st.Policy.Trial.Candidate, Arm: rollout.Arm(st.Policy.Trial.Arm)}
	}
	if triedOn(p) != rollout.Run {
		return Trial{}
	}
	r := p.Status.Rollout
	return Trial{Candidate: r.Candidate.Name, Arm: rollout.ArmOf(string(run.UID), r.Candidate.Name, int(r.Percent))}
}

// Pinned says that the part of a run in the rollout of its policy is decided, as status tells: the
// run had its lock, or waits for its first one under a policy. Most have no part.
func Pinned(run *v1alpha1.WorkflowRun) bool {
	return run.Status != nil && (run.Status.Fence != nil || run.Status.Policy != nil)
}

// InForce is what a policy says to the runs that are in no canary: what spec says, but for what is
// still to prove itself. Of admission, which is tried by tenant, it has both: see Admission.At.
func InForce(p *v1alpha1.LockPolicy) Effective {
	e := Of(p)
	if !canaries(p) || p.Status == nil || p.Status.Rollout == nil {
		return e
	}
	if baseline := runLock(p.Status.Rollout.Baseline.RunLock); baseline != e.RunLock {
		e.RunLock, e.Generation = baseline, p.Status.Rollout.Baseline.Generation
	}
	e.Admission = e.Admission.inForce(p)
	return e
}

// Same says that two versions of runLock mean the same.
func Same(a, b v1alpha1.RunLockPolicy) bool { return runLock(a) == runLock(b) }

// canaries says that edits of a policy are tried on a part of the runs, or of the tenant-minutes.
func canaries(p *v1alpha1.LockPolicy) bool {
	return p != nil && p.Spec.Rollout != nil && p.Spec.Rollout.Strategy == v1alpha1.RolloutStrategyCanary
}

// triedOn is what a candidate is being tried on; empty: none is.
func triedOn(p *v1alpha1.LockPolicy) rollout.Unit {
	if !canaries(p) || p.Status == nil || p.Status.Rollout == nil || p.Status.Rollout.Candidate == nil {
		return ""
	}
	if phase := rollout.Phase(p.Status.Rollout.Phase); phase != rollout.Progressing && phase != rollout.Holding {
		return ""
	}
	return UnitOf(p.Status.Rollout)
}

// UnitOf is what the candidate of a rollout is, or was, tried on.
func UnitOf(r *v1alpha1.LockPolicyRolloutStatus) rollout.Unit {
	if r.Unit == v1alpha1.RolloutUnitTenantMinute {
		return rollout.TenantMinute
	}
	return rollout.Run // also of what was stored before there were others
}

// PlanOf is how edits of a policy are rolled out.
func PlanOf(p *v1alpha1.LockPolicy) rollout.Plan {
	if !canaries(p) {
		return rollout.Plan{}
	}
	r := p.Spec.Rollout
	plan := rollout.Plan{
		Canary:           true,
		MinContendedRuns: int64(orDefault(r.MinContendedRuns, 40)),
		MaxStep:          minutes(orDefault(r.MaxStepMinutes, 60)),
		Hold:             r.OnInsufficientData == v1alpha1.OnInsufficientDataHold,
		BusyRunsPercent:  int64(orDefault(r.Guardrails.BusyRunsPercent, 120)),
		WaitTailPercent:  int64(orDefault(r.Guardrails.LockWaitTailPercent, 150)),
		LatencyPercent:   int64(orDefault(r.Guardrails.ResultLatencyPercent, 120)),
	}
	steps := r.StepsPercent
	if len(steps) == 0 {
		steps = []int32{5, 20, 50}
	}
	for _, percent := range steps {
		plan.StepsPercent = append(plan.StepsPercent, int(percent))
	}
	return plan
}
