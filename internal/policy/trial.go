// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// AdmissionTrial is another way to ask for slots, which is tried.
type AdmissionTrial struct {
	// Candidate is the name of the revision.
	Candidate string
	// Percent of the tenant-minutes have it.
	Percent int
	// Since is when the step began.
	Since time.Time
	// Lock is that of strategy Lock; nil: Atomic.
	Lock *AdmissionLock
}

// TenantMinute is a tenant in a period of a rollout.
type TenantMinute struct {
	Candidate string
	Tenant    string
	Period    int64
	Arm       rollout.Arm
}

// Waits says that some tenants may have to wait for a lock to ask for a slot.
func (a Admission) Waits() bool { return a.Lock != nil || a.Trial != nil && a.Trial.Lock != nil }

// At is what governs the starts of a tenant at a time, the same in all replicas, and its part in a
// rollout; nil: it has none. A step has its first arms in the first period that begins after it, so
// that no period has a part before it. Where that begins a moment later a replica may not know of
// it yet: there the tenant has the baseline, and no vote.
func (a Admission) At(tenant string, now time.Time) (Admission, *TenantMinute) {
	trial := a.Trial
	a.Trial = nil
	period := rollout.PeriodOf(now)
	if trial == nil || !rollout.BeginOf(period).After(trial.Since) {
		return a, nil
	}
	m := &TenantMinute{
		Candidate: trial.Candidate, Tenant: tenant, Period: period,
		Arm: rollout.ArmOf(rollout.NameOf(tenant, period), trial.Candidate, trial.Percent),
	}
	if m.Arm == rollout.Canary {
		a.Lock = trial.Lock
	}
	return a, m
}

// inForce is admission with the limits of spec, under the lock of the baseline, and what is tried.
func (a Admission) inForce(p *v1alpha1.LockPolicy) Admission {
	r := p.Status.Rollout
	if a.Total != nil || r.Baseline.Admission == nil {
		return a
	}
	a.Lock = admissionLock(*r.Baseline.Admission)
	if triedOn(p) == rollout.TenantMinute && r.Candidate.Admission != nil {
		a.Trial = &AdmissionTrial{
			Candidate: r.Candidate.Name, Percent: int(r.Percent), Since: r.ChangedAt.Time, Lock: admissionLock(*r.Candidate.Admission),
		}
	}
	return a
}
