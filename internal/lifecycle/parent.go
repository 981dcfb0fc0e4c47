// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
)

// namingPatience is how long after its creation a run that claims a parent is left alone, if the
// parent does not name it with its uid: that write is under way, and saves one of this run's.
const namingPatience = 2 * time.Second

// awaitsParent says whether a run claims a parent that can be expected to name it in a moment.
func awaitsParent(in *Input) bool {
	p := in.Parent
	return p != nil && !p.Named && p.Over == "" && !p.Terminated && in.Run.Unwritten() && in.Now.Before(namingEnd(in))
}

func namingEnd(in *Input) time.Time { return in.Run.CreationTimestamp.Add(namingPatience) }

// awaitParent leaves a run alone for a moment.
func awaitParent(in Input) Decision {
	return Decision{Status: stored(in.Run), Verdicts: verdicts(in.Results, Ahead), Wake: namingEnd(&in)}
}

// asParentWants is a run as its parent wants it: suspended while that is.
func asParentWants(in *Input) *v1alpha1.WorkflowRun {
	p := in.Parent
	if p != nil && p.Suspended && (p.Named || Admitted(in.Run)) {
		run := *in.Run
		run.Spec.Suspend = true
		return &run
	}
	return in.Run
}

// claimParent pins the parent that a run claims.
func claimParent(d *draft) {
	if p := d.in.Parent; p != nil && d.st.Fence == nil && d.st.Parent == nil {
		claim := p.Claim
		d.st.Parent = &claim
	}
}

// tenantOf is the tenant of a run at its first write. A child run has that of its parent, since its
// root is accounted to it.
func tenantOf(in *Input) Tenant {
	p, st := in.Parent, in.Run.Status
	if p == nil || p.Tenant == "" || st != nil && (st.Fence != nil || st.Tenant != "") {
		return in.Tenant
	}
	return Tenant{Name: p.Tenant, Allowed: true}
}

// followParent ends a run whose parent does not wait for it any more.
func followParent(d *draft) {
	p := d.in.Parent
	switch {
	case p == nil:
	case p.Terminated:
		endRun(d, report.ParentTerminated(p, d.st.Steps))
	case p.Over != "" && d.st.Ending == nil:
		endSoon(d, report.ParentOver(p, d.st.Steps))
	}
}
