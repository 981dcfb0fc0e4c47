// SPDX-License-Identifier: Apache-2.0

package check

import "slices"

// judgeElsewhere says whether the cluster has another operator. A Lease that ended may be that of a
// replica that could not give it back.
func judgeElsewhere(f Facts) []Finding {
	const hint = "docs/install.md, One operator per cluster. If your own one is there, say so with --operator-namespace"
	if f.Elsewhere.Why != "" {
		return OneOperator.unread(f.Elsewhere.Unread)
	}
	now := f.Now.Add(min(0, f.Server.Clock.Offset)) // as of partitions
	var live, ended []string
	for _, r := range f.Elsewhere.Replicas {
		if now.Sub(r.Renewed)-r.Duration > leaseGrace {
			ended = append(ended, r.Namespace)
			continue
		}
		live = append(live, r.Namespace)
	}
	slices.Sort(live)
	slices.Sort(ended)
	var found []Finding
	if live = slices.Compact(live); len(live) > 0 {
		found = append(found, OneOperator.find(Failed, hint, "another operator runs in namespace %s: one serves the whole cluster, and two take each other's results", some(live)))
	}
	if ended = slices.Compact(ended); len(ended) > 0 {
		found = append(found, OneOperator.find(Warning, hint, "another operator left a Lease in namespace %s, which it no longer renews", some(ended)))
	}
	return OneOperator.orOK(found, "no other namespace has an operator")
}
