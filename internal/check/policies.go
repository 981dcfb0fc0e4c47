// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

func judgePolicies(f Facts) []Finding {
	if f.Policies.Why != "" {
		return unreadAll(f.Policies.Unread, ClassConflicts, PolicyArithmetic)
	}
	all := together(f)
	var conflicts, sums []Finding
	found := policy.Conflicts(all)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		conflicts = append(conflicts, ClassConflicts.find(Failed, "take the class out of one of them",
			"LockPolicy %s lists class %q in vain: the older LockPolicy %s has it", name, found[name].Class, found[name].Policy))
	}
	for i := range all {
		for _, why := range wrong(policy.Of(&all[i])) {
			sums = append(sums, PolicyArithmetic.find(Failed, "docs/locks.md says how the times hang together", "LockPolicy %s: %s", all[i].Name, why))
		}
	}
	return append(ClassConflicts.orOK(conflicts, "no two of %d LockPolicies list the same class", len(all)),
		PolicyArithmetic.orOK(sums, "the times of %d LockPolicies fit", len(all))...)
}

// together is the policies of the cluster with those of the files in their place. One that is new
// is the youngest.
func together(f Facts) []v1alpha1.LockPolicy {
	all := slices.Clone(f.Policies.Items)
	for _, m := range f.Manifests {
		if m.Policy == nil {
			continue
		}
		p := *m.Policy
		if at := slices.IndexFunc(all, func(o v1alpha1.LockPolicy) bool { return o.Name == p.Name }); at >= 0 {
			p.CreationTimestamp = all[at].CreationTimestamp
			all[at] = p
			continue
		}
		p.CreationTimestamp.Time = f.Now
		all = append(all, p)
	}
	return all
}

// wrong is what the rules of the CRD refuse: a CRD of before, or one without them, has let it in.
func wrong(e policy.Effective) []string {
	var all []string
	l := e.RunLock
	if 2*l.Renewal.Interval >= l.Validity() {
		all = append(all, fmt.Sprintf("two renewals (every %s) do not fit into the validity of a lease (%s: ttl %s less margin %s)",
			l.Renewal.Interval, l.Validity(), l.TTL, l.Renewal.Margin))
	}
	if l.Renewal.Timeout >= l.Renewal.Interval {
		all = append(all, fmt.Sprintf("the time-out of a renewal (%s) is not below its interval (%s)", l.Renewal.Timeout, l.Renewal.Interval))
	}
	if l.Renewal.Continue && !l.ForRun {
		all = append(all, "onFailure Continue needs scope Run")
	}
	if a := e.Admission.Lock; a != nil && a.TTL <= a.MaxWait {
		all = append(all, fmt.Sprintf("the lock of admission ends after %s, before it is tried for %s", a.TTL, a.MaxWait))
	}
	return all
}

// shortestTimeout is the least time that a call to Redis has, by any policy or by default.
func shortestTimeout(f Facts) time.Duration {
	least := policy.Defaults().RunLock.Renewal.Timeout
	for _, p := range together(f) {
		least = min(least, policy.Of(&p).RunLock.Renewal.Timeout)
	}
	return least
}
