// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// effective is the policy in force for the run's class; false: the policies are not known.
func (v *viewer) effective() (policy.Effective, bool) {
	if v.policies == nil {
		return policy.Effective{}, false
	}
	e, _ := policy.Governs(v.run, v.policies)
	return e, true
}

// lock tells who wrote last.
func (v *viewer) lock() {
	if v.st.Lock == nil {
		return
	}
	text := "last write by " + orDash(v.st.Lock.Holder)
	if v.st.Fence != nil {
		text += fmt.Sprintf(", fence %d", *v.st.Fence)
	}
	if n := v.st.Lock.ConsecutiveRenewalFailures; n > 0 {
		text += fmt.Sprintf(", renewals failed in a row: %d", n)
	}
	if v.st.Lock.AcquiredAt != nil {
		text += ", under a lease"
	}
	v.add(Fact{About: "lock", Text: text, Since: secondTime(v.st.Lock.AcquiredAt)})
}

// takeOver says how long the run waits for another holder.
func (v *viewer) takeOver() string {
	if c := v.condition(v1alpha1.ConditionRunLockRenewed); c != nil && c.Reason == v1alpha1.ReasonLockBusy {
		return "" // that one says whose the lock is, and when it ends
	}
	e, known := v.effective()
	if !known {
		return "another holder takes over"
	}
	return fmt.Sprintf("another holder takes over, at the latest %s after the last renewal", Span(e.RunLock.TTL))
}

// retried says how often a lock that cannot be taken is tried again.
func (v *viewer) retried() string {
	c := v.condition(v1alpha1.ConditionRunLockRenewed)
	if c == nil || c.Reason != v1alpha1.ReasonLockBusy {
		return "every 1 to 5 s"
	}
	e, known := v.effective()
	switch {
	case !known:
		return "as runLock.busyRetry of its policy says"
	case e.RunLock.Wait.Poll:
		return "every " + e.RunLock.BusyRetry.String()
	default:
		return "every " + e.RunLock.BusyRetry.String() + ", and at once when it is handed on"
	}
}

// policyFacts tells where what is in force is not what people may think.
func (v *viewer) policyFacts() {
	e, known := v.effective()
	if !known {
		return
	}
	was := "the built-in defaults"
	if p := v.st.Policy; p != nil {
		was = fmt.Sprintf("%s (generation %d)", p.Name, p.Generation)
	}
	is := "the built-in defaults"
	if e.Name != "" {
		is = fmt.Sprintf("%s (generation %d)", e.Name, e.Generation)
	}
	if v.st.Fence != nil && was != is {
		v.add(Fact{About: "policy", Text: is + " is in force at the next take of the lock; the last write was under " + was})
	}
	owners := policy.OwnersOf(v.policies)
	for i := range v.policies {
		v.conflict(&v.policies[i], owners)
		if v.policies[i].Name == e.Name {
			v.rollout(&v.policies[i])
		}
	}
}

// rollout says that the policy of the run was edited, and the edit is not in force for all.
func (v *viewer) rollout(p *v1alpha1.LockPolicy) {
	if p.Status == nil {
		return
	}
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRolledOut)
	if c == nil {
		return
	}
	if text := v.means(c); text != "" {
		v.add(Fact{About: "policy", Text: p.Name + " " + text, Since: secondTime(&c.LastTransitionTime)})
	}
}

func (v *viewer) conflict(p *v1alpha1.LockPolicy, owners policy.Owners) {
	class := v.run.Spec.WorkloadClass
	if p.Status == nil || !slices.Contains(p.Spec.WorkloadClasses, class) || owners.Of(class) == p.Name {
		return // another class of its is the older policy's
	}
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return
	}
	if text := v.means(c); text != "" {
		v.add(Fact{About: "policy", Text: p.Name + " " + text, Since: secondTime(&c.LastTransitionTime)})
	}
}
