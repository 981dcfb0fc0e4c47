// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// Content is what of a policy is rolled out.
type Content struct {
	RunLock v1alpha1.RunLockPolicy
	// Admission is how slots are asked for; nil: as spec says, so nothing of it is tried.
	Admission *v1alpha1.RolloutAdmission
}

// ContentOf is that of a stored revision; without one it is empty.
func ContentOf(rev *v1alpha1.RolloutRevision) Content {
	if rev == nil {
		return Content{}
	}
	return Content{RunLock: rev.RunLock, Admission: rev.Admission}
}

// Is says that two contents mean the same. How slots are asked for is compared where both say it.
func (c Content) Is(o Content) bool {
	return Same(c.RunLock, o.RunLock) && sameAdmission(c.Admission, o.Admission)
}

func sameAdmission(a, b *v1alpha1.RolloutAdmission) bool {
	if a == nil || b == nil {
		return true
	}
	x, y := admissionLock(*a), admissionLock(*b)
	return x == nil && y == nil || x != nil && y != nil && *x == *y
}

// AdmissionOf is how spec has slots asked for; nil: that is not rolled out. With a total one lock
// is for all tenants, so arms by tenant would interfere.
func AdmissionOf(p *v1alpha1.LockPolicy) *v1alpha1.RolloutAdmission {
	if p.Spec.Admission.Total != nil {
		return nil
	}
	return &v1alpha1.RolloutAdmission{Strategy: p.Spec.Admission.Strategy, Lock: *p.Spec.Admission.Lock.DeepCopy()}
}

// Wanted is what spec asks for next, what that is tried on, and whether spec asks for more after
// it. One edit may change runLock and admission: runLock comes first, and admission once that is
// the baseline. So a candidate differs in one of them, and is judged by what that one does.
func Wanted(p *v1alpha1.LockPolicy) (next Content, unit rollout.Unit, more bool) {
	spec := Content{RunLock: *p.Spec.RunLock.DeepCopy(), Admission: AdmissionOf(p)}
	if !canaries(p) || p.Status == nil || p.Status.Rollout == nil {
		return spec, rollout.Run, false
	}
	baseline := ContentOf(&p.Status.Rollout.Baseline)
	if Same(baseline.RunLock, spec.RunLock) {
		return spec, rollout.TenantMinute, false
	}
	if baseline.Admission == nil || spec.Admission == nil {
		return spec, rollout.Run, false
	}
	next = Content{RunLock: spec.RunLock, Admission: baseline.Admission.DeepCopy()}
	return next, rollout.Run, !sameAdmission(baseline.Admission, spec.Admission)
}
