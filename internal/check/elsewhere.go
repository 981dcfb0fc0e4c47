// SPDX-License-Identifier: Apache-2.0

package check

import "slices"

// judgeElsewhere says whether the cluster has another operator. A Lease alone does not: a tenant
// can make one. It takes something that only an administrator of the cluster or of NATS can give. A
// Lease that ended may be that of a replica that could not give it back.
func judgeElsewhere(f Facts) []Finding {
	const (
		runs = "docs/install.md, One operator per cluster. If your own one is there, say so with --operator-namespace"
		look = "kubectl get pods -A -l app.kubernetes.io/component=manager says where operators run (docs/checks.md, SYN115). A Lease alone is no reason to stop or delete anything"
	)
	e := f.Elsewhere
	if e.Why != "" {
		return OneOperator.unread(e.Unread)
	}
	live, claimed, ended := f.leases()
	var found []Finding
	if len(live) > 0 {
		found = append(found, OneOperator.find(Failed, runs, "another operator runs in namespace %s: one serves the whole cluster, and two take each other's results", some(live)))
	}
	switch {
	case len(claimed) == 0:
	case e.Asked.Why != "":
		found = append(found, OneOperator.find(Unknown, e.Asked.Hint, "cannot tell whether an operator runs in namespace %s, where a Lease says so: %s", some(claimed), e.Asked.Why))
	default:
		found = append(found, OneOperator.find(Warning, look, "a Lease like an operator's is renewed in namespace %s: anybody who may edit there can make one", some(claimed)))
	}
	if len(ended) > 0 {
		found = append(found, OneOperator.find(Warning, look, "a Lease like an operator's is in namespace %s, and no longer renewed: anybody who may edit there can make one", some(ended)))
	}
	return OneOperator.orOK(found, "no other namespace has an operator")
}

// leases are the namespaces of operators that run, of Leases that are renewed and nothing more, and
// of Leases that are not.
func (f Facts) leases() (live, claimed, ended []string) {
	now := f.Now.Add(min(0, f.Server.Clock.Offset)) // as of partitions
	for _, r := range f.Elsewhere.Replicas {
		switch {
		case now.Sub(r.Renewed)-r.Duration > leaseGrace:
			ended = append(ended, r.Namespace)
		case slices.Contains(f.Elsewhere.Entitled, r.Namespace), slices.Contains(f.NATS.Homes, r.Namespace):
			live = append(live, r.Namespace)
		default:
			claimed = append(claimed, r.Namespace)
		}
	}
	each := func(names []string) []string {
		slices.Sort(names)
		return slices.Compact(names)
	}
	return each(live), each(claimed), each(ended)
}
