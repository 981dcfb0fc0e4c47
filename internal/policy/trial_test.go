// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// step is when the step of trying began, in the middle of a period.
var step = time.Date(2026, 1, 2, 10, 0, 30, 0, time.UTC)

func locking(delay int64) v1alpha1.RolloutAdmission {
	return v1alpha1.RolloutAdmission{
		Strategy: v1alpha1.AdmissionStrategyLock, Lock: v1alpha1.AdmissionLock{Retry: v1alpha1.AdmissionRetry{DelayMillis: delay}},
	}
}

// trying is a policy that had strategy Lock with 10 ms, and whose candidate of 700 ms is in some
// phase, on half of the tenant-minutes.
func trying(phase rollout.Phase) *v1alpha1.LockPolicy {
	p := rolling(phase)
	before, after := locking(10), locking(700)
	p.Spec.RunLock, p.Spec.Admission = polling, v1alpha1.AdmissionPolicy{MaxConcurrentRuns: new(int32(7)), Strategy: after.Strategy, Lock: after.Lock}
	r := p.Status.Rollout
	r.Unit, r.ChangedAt = v1alpha1.RolloutUnitTenantMinute, metav1.NewTime(step)
	r.Baseline.Admission, r.Candidate.Admission, r.Candidate.RunLock = &before, &after, polling
	return &p
}

// periodIn is the next period in which acme is in an arm.
func periodIn(arm rollout.Arm) time.Time {
	for n := rollout.PeriodOf(step) + 1; ; n++ {
		if rollout.ArmOf(rollout.NameOf("acme", n), candidate, 50) == arm {
			return rollout.BeginOf(n)
		}
	}
}

// mutation: arms in the period in which the step began, an arm that is another at the end of a
// period, and a candidate that is in force after it was rolled back, or for a pool, make this fail.
func TestWhatGovernsAGate(t *testing.T) {
	canary, control := periodIn(rollout.Canary), periodIn(rollout.Control)
	change := func(p *v1alpha1.LockPolicy, change func(*v1alpha1.LockPolicy)) *v1alpha1.LockPolicy {
		change(p)
		return p
	}
	const old, tried = 10 * time.Millisecond, 700 * time.Millisecond
	tests := map[string]struct {
		policy *v1alpha1.LockPolicy
		at     time.Time
		delay  time.Duration // 0: Atomic
		arm    rollout.Arm
	}{
		"the canary has the candidate":          {trying(rollout.Progressing), canary, tried, rollout.Canary},
		"to the end of the period":              {trying(rollout.Progressing), canary.Add(rollout.Period - 1), tried, rollout.Canary},
		"also while it is held":                 {trying(rollout.Holding), canary, tried, rollout.Canary},
		"the control has the baseline":          {trying(rollout.Progressing), control, old, rollout.Control},
		"nobody in the period of the step":      {change(trying(rollout.Progressing), func(p *v1alpha1.LockPolicy) { p.Status.Rollout.ChangedAt.Time = canary.Add(time.Second) }), canary.Add(2 * time.Second), old, rollout.Rest},
		"nor if it began with the step":         {change(trying(rollout.Progressing), func(p *v1alpha1.LockPolicy) { p.Status.Rollout.ChangedAt.Time = canary }), canary, old, rollout.Rest},
		"nor once it was rolled back":           {trying(rollout.RolledBack), canary, old, rollout.Rest},
		"a clock that is far behind":            {trying(rollout.Progressing), canary.Add(-240 * time.Hour), old, rollout.Rest},
		"a baseline without a lock":             {change(trying(rollout.Progressing), func(p *v1alpha1.LockPolicy) { p.Status.Rollout.Baseline.Admission.Strategy = "Atomic" }), control, 0, rollout.Control},
		"a candidate without a lock":            {change(trying(rollout.Progressing), func(p *v1alpha1.LockPolicy) { p.Status.Rollout.Candidate.Admission.Strategy = "Atomic" }), canary, 0, rollout.Canary},
		"tenants that share a total":            {change(trying(rollout.Progressing), func(p *v1alpha1.LockPolicy) { p.Spec.Admission.Total = &v1alpha1.AdmissionTotal{MaxConcurrentRuns: 9} }), canary, tried, rollout.Rest},
		"Immediate is what spec says":           {change(trying(rollout.Progressing), func(p *v1alpha1.LockPolicy) { p.Spec.Rollout.Strategy = "Immediate" }), canary, tried, rollout.Rest},
		"a candidate of runLock":                {change(trying(rollout.Progressing), func(p *v1alpha1.LockPolicy) { p.Status.Rollout.Unit = "Run" }), canary, old, rollout.Rest},
		"a baseline of before there were these": {change(trying(rollout.Progressing), func(p *v1alpha1.LockPolicy) { p.Status.Rollout.Baseline.Admission = nil }), canary, tried, rollout.Rest},
		"a candidate without its content":       {change(trying(rollout.Progressing), func(p *v1alpha1.LockPolicy) { p.Status.Rollout.Candidate.Admission = nil }), canary, old, rollout.Rest},
		"an edit that the operator has not seen": {change(trying(rollout.Stable), func(p *v1alpha1.LockPolicy) {
			p.Status.Rollout.Candidate, p.Status.Rollout.Percent = nil, 0
		}), canary, old, rollout.Rest},
		"a policy that the operator has not seen": {change(trying(rollout.Stable), func(p *v1alpha1.LockPolicy) { p.Status = nil }), canary, tried, rollout.Rest},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := InForce(test.policy).Admission
			e, minute := in.At("acme", test.at)
			delay, arm := time.Duration(0), rollout.Rest
			if e.Lock != nil {
				delay = e.Lock.Retry.Delay
			}
			if minute != nil {
				arm = minute.Arm
				if minute.Candidate != candidate || minute.Tenant != "acme" || minute.Period != rollout.PeriodOf(test.at) {
					t.Errorf("the minute is %+v", minute)
				}
			}
			if delay != test.delay || arm != test.arm || e.Limit("acme") != 7 || e.Trial != nil {
				t.Errorf("delay %s in %q, limit %d; want %s in %q", delay, arm, e.Limit("acme"), test.delay, test.arm)
			}
			if test.arm != rollout.Rest && !in.Waits() {
				t.Error("nobody may have to wait for a lock")
			}
			if g, trial := Governs(runIn(rollout.Canary), []v1alpha1.LockPolicy{*test.policy}); trial != (Trial{}) && test.policy.Status.Rollout.Unit != "Run" || !g.RunLock.Wait.Poll {
				t.Errorf("a run has a part in it: %+v", trial)
			}
		})
	}
}

// mutation: admission before runLock, or together with it, makes this fail.
func TestWhatIsTriedNext(t *testing.T) {
	edit := func(change func(*v1alpha1.LockPolicy)) *v1alpha1.LockPolicy {
		p := trying(rollout.Stable)
		p.Spec.Admission.Lock.Retry.DelayMillis = 10 // as the baseline
		change(p)
		return p
	}
	tuned := func(p *v1alpha1.LockPolicy) { p.Spec.Admission.Lock.Retry.DelayMillis = 20 }
	fixed := func(p *v1alpha1.LockPolicy) { p.Spec.RunLock.BusyRetry.Mode = v1alpha1.JitterModeFixed }
	total := func(p *v1alpha1.LockPolicy) { p.Spec.Admission.Total = &v1alpha1.AdmissionTotal{MaxConcurrentRuns: 9} }
	ten, twenty := int64(10), int64(20)
	for name, test := range map[string]struct {
		policy *v1alpha1.LockPolicy
		unit   rollout.Unit
		fixed  bool
		delay  *int64 // of admission; nil: it is not rolled out
		more   bool
		same   bool // as the baseline
	}{
		"nothing":               {edit(func(*v1alpha1.LockPolicy) {}), rollout.TenantMinute, false, &ten, false, true},
		"runLock":               {edit(fixed), rollout.Run, true, &ten, false, false},
		"admission":             {edit(tuned), rollout.TenantMinute, false, &twenty, false, false},
		"runLock first":         {edit(func(p *v1alpha1.LockPolicy) { fixed(p); tuned(p) }), rollout.Run, true, &ten, true, false},
		"limits are not":        {edit(func(p *v1alpha1.LockPolicy) { p.Spec.Admission.MaxConcurrentRuns = nil }), rollout.TenantMinute, false, &ten, false, true},
		"nor with a total":      {edit(func(p *v1alpha1.LockPolicy) { total(p); tuned(p) }), rollout.TenantMinute, false, nil, false, true},
		"runLock with a total":  {edit(func(p *v1alpha1.LockPolicy) { total(p); fixed(p) }), rollout.Run, true, nil, false, false},
		"all, if it is at once": {edit(func(p *v1alpha1.LockPolicy) { fixed(p); tuned(p); p.Spec.Rollout.Strategy = "Immediate" }), rollout.Run, true, &twenty, false, false},
		"a lock without effect": {edit(func(p *v1alpha1.LockPolicy) {
			p.Status.Rollout.Baseline.Admission.Strategy, p.Spec.Admission.Strategy = "Atomic", "Atomic"
			tuned(p)
		}), rollout.TenantMinute, false, &twenty, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			next, unit, more := Wanted(test.policy)
			if isFixed := next.RunLock.BusyRetry.Mode == "Fixed"; isFixed != test.fixed || unit != test.unit || more != test.more {
				t.Errorf("fixed %v on %s, more %v", isFixed, unit, more)
			}
			if (next.Admission == nil) != (test.delay == nil) || test.delay != nil && next.Admission.Lock.Retry.DelayMillis != *test.delay {
				t.Errorf("admission %+v", next.Admission)
			}
			if same := next.Is(ContentOf(&test.policy.Status.Rollout.Baseline)); same != test.same {
				t.Errorf("as the baseline: %v", same)
			}
		})
	}
}
