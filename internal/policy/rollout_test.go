// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

const candidate = "4f2a0011-2"

// polling is what was in force; the candidate hands locks on.
var polling = v1alpha1.RunLockPolicy{Wait: v1alpha1.LockWait{Mode: v1alpha1.WaitModePoll}}

// rolling is a policy whose candidate is in some phase, on half of the runs.
func rolling(phase rollout.Phase) v1alpha1.LockPolicy {
	p := lockPolicy("shared", 1, "shared")
	p.Generation = 2
	p.Spec.Rollout = &v1alpha1.LockPolicyRollout{Strategy: v1alpha1.RolloutStrategyCanary}
	p.Status = &v1alpha1.LockPolicyStatus{Rollout: &v1alpha1.LockPolicyRolloutStatus{
		Phase: v1alpha1.RolloutPhase(phase), Percent: 50,
		Baseline:  v1alpha1.RolloutRevision{Name: "91bc0011-1", Generation: 1, RunLock: polling},
		Candidate: &v1alpha1.RolloutRevision{Name: candidate, Generation: 2},
	}}
	return p
}

// runIn is a run of the class that is in an arm when half of the runs are the canary.
func runIn(arm rollout.Arm) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{WorkloadClass: "shared"}}
	for i := byte('a'); rollout.ArmOf(string(run.UID), candidate, 50) != arm; i++ {
		run.UID = types.UID([]byte{i})
	}
	return run
}

func written(run *v1alpha1.WorkflowRun, ref *v1alpha1.PolicyReference) *v1alpha1.WorkflowRun {
	run.Status = &v1alpha1.WorkflowRunStatus{Fence: new(int64(1)), Policy: ref}
	return run
}

// waiting is a run that waits for its first lock, and has said so.
func waiting(run *v1alpha1.WorkflowRun, ref *v1alpha1.PolicyReference) *v1alpha1.WorkflowRun {
	run.Status = &v1alpha1.WorkflowRunStatus{Policy: ref}
	return run
}

func pinned(name, revision string, arm v1alpha1.RolloutArm) *v1alpha1.PolicyReference {
	return &v1alpha1.PolicyReference{Name: name, Trial: &v1alpha1.PolicyTrial{Candidate: revision, Arm: arm}}
}

// mutation: an arm that is drawn again after the first write, a candidate that is in force after it
// was rolled back, and one that is in force before the operator has seen it make this fail.
func TestWhatGovernsARunInARollout(t *testing.T) {
	edited := rolling(rollout.Progressing)
	edited.Generation, edited.Spec.RunLock.TTLSeconds = 3, 60 // and the operator has not seen it
	unseen := rolling(rollout.Stable)
	unseen.Status.Rollout.Candidate, unseen.Status.Rollout.Percent = nil, 0
	immediate := rolling(rollout.Progressing)
	immediate.Spec.Rollout.Strategy = v1alpha1.RolloutStrategyImmediate
	fresh := rolling(rollout.Stable)
	fresh.Status = nil
	tests := map[string]struct {
		policy     v1alpha1.LockPolicy
		run        *v1alpha1.WorkflowRun
		handOff    bool
		generation int64
		trial      Trial
	}{
		"the canary has the candidate":                          {rolling(rollout.Progressing), runIn(rollout.Canary), true, 2, Trial{candidate, rollout.Canary}},
		"also while it is held":                                 {rolling(rollout.Holding), runIn(rollout.Canary), true, 2, Trial{candidate, rollout.Canary}},
		"the control has the baseline":                          {rolling(rollout.Progressing), runIn(rollout.Control), false, 1, Trial{candidate, rollout.Control}},
		"a run keeps its arm":                                   {rolling(rollout.Progressing), written(runIn(rollout.Control), pinned("shared", candidate, "Canary")), true, 2, Trial{candidate, rollout.Canary}},
		"also one that waits for its first lock":                {rolling(rollout.Progressing), waiting(runIn(rollout.Control), pinned("shared", candidate, "Canary")), true, 2, Trial{candidate, rollout.Canary}},
		"and one that waits and has none":                       {rolling(rollout.Progressing), waiting(runIn(rollout.Canary), &v1alpha1.PolicyReference{Name: "shared"}), false, 1, Trial{}},
		"a run of before has none":                              {rolling(rollout.Progressing), written(runIn(rollout.Canary), &v1alpha1.PolicyReference{Name: "shared"}), false, 1, Trial{}},
		"a run of another policy has none":                      {rolling(rollout.Progressing), written(runIn(rollout.Canary), pinned("other", candidate, "Canary")), false, 1, Trial{}},
		"the canary of a candidate of before has the baseline":  {rolling(rollout.Progressing), written(runIn(rollout.Canary), pinned("shared", "77aa-1", "Canary")), false, 1, Trial{"77aa-1", rollout.Canary}},
		"what was rolled back is in force for no run":           {rolling(rollout.RolledBack), written(runIn(rollout.Canary), pinned("shared", candidate, "Canary")), false, 1, Trial{candidate, rollout.Canary}},
		"nor is it for new runs":                                {rolling(rollout.RolledBack), runIn(rollout.Canary), false, 1, Trial{}},
		"an edit that the operator has not seen is not":         {unseen, runIn(rollout.Canary), false, 1, Trial{}},
		"nor one that comes while another is tried":             {edited, runIn(rollout.Canary), true, 2, Trial{candidate, rollout.Canary}},
		"Immediate is what spec says":                           {immediate, runIn(rollout.Control), true, 2, Trial{}},
		"a policy that the operator has not seen is as it says": {fresh, runIn(rollout.Canary), true, 2, Trial{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			e, trial := Governs(test.run, []v1alpha1.LockPolicy{test.policy})
			if e.RunLock.Wait.Poll == test.handOff || e.Generation != test.generation || trial != test.trial {
				t.Errorf("poll %v, generation %d, %+v", e.RunLock.Wait.Poll, e.Generation, trial)
			}
			if ttl := e.RunLock.TTL.Seconds(); ttl != 30 {
				t.Errorf("TTL %g s: of an edit that is not tried yet", ttl)
			}
		})
	}
	if e, trial := Governs(&v1alpha1.WorkflowRun{}, nil); e.Name != "" || trial != (Trial{}) {
		t.Errorf("without policies %+v, %+v", e, trial)
	}
}

func TestPlans(t *testing.T) {
	p := rolling(rollout.Stable)
	if plan := PlanOf(&p); plan.Fault() != "" || len(plan.StepsPercent) != 3 || plan.MinContendedRuns != 40 || plan.MaxStep.Hours() != 1 || plan.Hold {
		t.Errorf("defaults are %+v: %s", plan, plan.Fault())
	}
	if PlanOf(&v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}).Canary {
		t.Error("a policy without a rollout has canaries")
	}
}

// Who says that it waits for its first lock begins. When that is must not depend on the arm.
//
// mutation: a patience that is the candidate's before the arm is pinned, or the baseline's after
// that, makes this fail.
func TestUntilItsArmIsPinnedARunIsAsPatientAsTheBaseline(t *testing.T) {
	p := rolling(rollout.Progressing)
	slow := v1alpha1.RunLockPolicy{TTLSeconds: 600, Wait: v1alpha1.LockWait{BudgetMillis: new(int64(60_000))}}
	p.Status.Rollout.Candidate.RunLock = slow
	baseline, tried := runLock(polling), runLock(slow)
	for name, test := range map[string]struct {
		run  *v1alpha1.WorkflowRun
		want RunLock
	}{
		"the canary that says nothing yet":   {runIn(rollout.Canary), baseline},
		"the control":                        {runIn(rollout.Control), baseline},
		"the canary that waits, and said so": {waiting(runIn(rollout.Canary), pinned("shared", candidate, "Canary")), tried},
		"the canary that had its lock":       {written(runIn(rollout.Canary), pinned("shared", candidate, "Canary")), tried},
		"the control that had its lock":      {written(runIn(rollout.Control), pinned("shared", candidate, "Control")), baseline},
	} {
		t.Run(name, func(t *testing.T) {
			e, trial := Governs(test.run, []v1alpha1.LockPolicy{p})
			if got := e.Patience(); got != test.want {
				t.Errorf("as patient as a budget of %s and a TTL of %s; want %s and %s", got.Wait.Budget, got.TTL, test.want.Wait.Budget, test.want.TTL)
			}
			if canary := trial.Arm == rollout.Canary; canary != (e.RunLock == tried) {
				t.Errorf("in arm %s its lock is %+v", trial.Arm, e.RunLock)
			}
		})
	}
}
