// SPDX-License-Identifier: Apache-2.0

package check

import "slices"

const deny = "Deny"

func judgeAdmission(f Facts) []Finding {
	if f.Admission.Why != "" {
		return AdmissionPolicies.unread(f.Admission.Unread)
	}
	var found []Finding
	for _, p := range f.Admission.Items {
		if why := p.powerless(); why != "" {
			found = append(found, AdmissionPolicies.find(Failed, "apply config/status, config/approval and config/schedules, or, where the chart installed the operator, "+
				"helm upgrade with statusPolicy, approverPolicy and schedulesPolicy", "admission policy %s %s", p.Name, why))
		} else if p.Why != "" {
			found = append(found, AdmissionPolicies.find(Unknown, p.Hint, "admission policy %s: cannot tell: %s", p.Name, p.Why))
		}
	}
	return AdmissionPolicies.orOK(found, "%d admission policies deny", len(f.Admission.Items))
}

// powerless says why a policy refuses nothing, or less than it should.
func (p AdmissionPolicy) powerless() string {
	denies := func(bindings [][]string) bool {
		return slices.ContainsFunc(bindings, func(actions []string) bool { return slices.Contains(actions, deny) })
	}
	switch {
	case p.Missing:
		return "is not installed"
	case len(p.Bindings)+len(p.PartBindings) == 0:
		return "has no binding, so it is not asked"
	case !denies(p.Bindings) && !denies(p.PartBindings):
		return "has no binding with the action Deny, so it refuses nothing"
	case p.Ignores:
		return "has failurePolicy Ignore"
	case p.Narrowed || !denies(p.Bindings):
		return "does not look at all that the shipped one looks at, or asks something else"
	}
	return ""
}

func judgeFence(f Facts) []Finding {
	switch {
	case f.Fence.Why != "":
		return LowerFence.unread(f.Fence.Unread)
	case f.Fence.Taken:
		return []Finding{LowerFence.find(Failed, "apply config/crd of the operator's release, and config/status, or, where the chart installed the operator, helm upgrade with statusPolicy",
			"a dry run that lowers the fence of run %s was taken: a stale operator could overwrite a newer one", f.Fence.Run)}
	}
	return LowerFence.ok("a dry run that lowers the fence of run %s was refused: %s", f.Fence.Run, f.Fence.Said)
}
