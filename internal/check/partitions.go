// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"time"
)

// leaseGrace is how late a Lease may be renewed before its owner counts as gone: clocks may differ,
// and a take-over takes seconds.
const leaseGrace = time.Minute

func judgePartitions(f Facts) []Finding {
	const hint = "kubectl syncopate shards shows all; docs/runbooks has SyncopatePartitionsWithoutOwner. Runs of such a partition do not go on"
	p := f.Partitions
	switch {
	case p.Why != "":
		return PartitionOwners.unread(p.Unread)
	case p.Leader:
		return PartitionOwners.ok("one leader drives all runs (--ownership=leader)")
	}
	now := f.Now.Add(min(0, f.Server.Clock.Offset)) // clocks of replicas may be this machine's or the API server's: late is what is late by both
	var found []Finding
	if len(p.Unowned) > 0 {
		found = append(found, PartitionOwners.find(Failed, hint, "%d of %d partitions have no owner: %s", len(p.Unowned), p.Total, some(texts(p.Unowned))))
	}
	for _, o := range p.Owners {
		switch late := now.Sub(o.Renewed) - o.Duration; {
		case o.NoLease:
			found = append(found, PartitionOwners.find(Failed, hint, "replica %s owns partitions and has no Lease: it is gone, and nobody took over", o.Name))
		case late > leaseGrace:
			found = append(found, PartitionOwners.find(Failed, hint, "replica %s owns partitions, and its Lease ended %s ago", o.Name, late.Round(time.Second)))
		}
	}
	return PartitionOwners.orOK(found, "%d partitions are owned by %d replicas", p.Total, len(p.Owners))
}

func texts(numbers []int) []string {
	all := make([]string, len(numbers))
	for i, n := range numbers {
		all[i] = fmt.Sprint(n)
	}
	return all
}
