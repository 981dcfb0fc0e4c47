package lifecycle

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// namingPatience is how long after its creation a run that claims a parent is left alone, if the parent does not name it with its
// uid: that write is under way, and saves one of this run's.
const namingPatience = 2 * time.Second

// Parent is what was seen of the parent that a run claims to have (v1alpha1.WorkflowRun.ClaimsParent). None of Named, Over and
// Terminated changes back, so they may come from a cache; but that a parent is gone is only known from a live read.
type Parent struct {
	Claim      v1alpha1.ParentStatus // as it is pinned
	Tenant     string                // that of the parent; "" if it has none yet
	Named      bool                  // its status names this run, by name and uid, as the child of a step
	Over       string                // why it does not wait for this run any more, to go on after its name; "" if it may
	Terminated bool                  // it is to end at once, or did
	Suspended  bool
	NeedsNewer int32 // the version that this core lacks to read what the parent says; 0: it lacks none
}

// SeenParent is what a run sees of the parent that it claims; parent nil: that is gone. nil: the run claims none.
func SeenParent(run, parent *v1alpha1.WorkflowRun) *Parent {
	claim := run.ClaimsParent()
	if claim == nil {
		return nil
	}
	p := &Parent{Claim: *claim}
	if parent == nil || string(parent.UID) != claim.UID {
		p.Over = "is gone"
		return p
	}
	p.Claim.Root = rootOf(parent)
	p.Terminated, p.Suspended = parent.Spec.Shutdown == v1alpha1.ShutdownTerminate, parent.Spec.Suspend
	st := parent.Status
	if st == nil {
		return p
	}
	p.Tenant, p.Suspended = st.Tenant, p.Suspended || st.Phase == v1alpha1.RunSuspended
	p.NeedsNewer = parent.NeedsNewer()
	p.names(st.Steps, run)
	if Finished(parent) {
		reason := status.ReasonOf(st, v1alpha1.ConditionSucceeded)
		p.Over = fmt.Sprintf("ended as %s (%s)", st.Phase, reason)
		p.Terminated = p.Terminated || reason == v1alpha1.ReasonTerminated
	}
	return p
}

// names looks for the step whose child the run is.
func (p *Parent) names(steps []v1alpha1.StepStatus, run *v1alpha1.WorkflowRun) {
	for i := range steps {
		s := &steps[i]
		if s.ChildRun == nil || s.ChildRun.Name != run.Name {
			continue
		}
		p.Named = s.ChildRun.UID == string(run.UID)
		switch {
		case status.Ended(s.Phase):
			p.Over = fmt.Sprintf("does not wait for it: step %s is %s", s.Name, s.Phase)
		case s.ChildRun.UID != "" && !p.Named:
			p.Over = fmt.Sprintf("has another run of this name as the child of step %s", s.Name)
		}
		return
	}
}

// rootOf is the run at the top of a run that is a parent.
func rootOf(parent *v1alpha1.WorkflowRun) string {
	if parent.Status != nil && parent.Status.Parent != nil && parent.Status.Parent.Root != "" {
		return parent.Status.Parent.Root
	}
	return parent.Name
}

// early says whether a run claims a parent that can be expected to name it in a moment.
func (in *Input) early() bool {
	p := in.Parent
	return p != nil && !p.Named && p.Over == "" && !p.Terminated && in.Run.Unwritten() && in.Now.Before(in.namingEnd())
}

func (in *Input) namingEnd() time.Time { return in.Run.CreationTimestamp.Add(namingPatience) }

// decideEarly leaves a run alone for a moment.
func decideEarly(in Input) Decision {
	return Decision{Status: stored(in.Run), Verdicts: verdicts(in.Results, Ahead), Wake: in.namingEnd()}
}

// adopted is a run as its parent wants it: suspended while that is.
func adopted(in *Input) *v1alpha1.WorkflowRun {
	p := in.Parent
	if p != nil && p.Suspended && (p.Named || Admitted(in.Run)) {
		run := *in.Run
		run.Spec.Suspend = true
		return &run
	}
	return in.Run
}

// claimParent pins the parent that a run claims, with its tenant: that is whom its root is accounted to.
func (d *decider) claimParent() {
	p := d.in.Parent
	if p == nil || d.st.Fence != nil {
		return
	}
	if d.st.Parent == nil {
		claim := p.Claim
		d.st.Parent = &claim
	}
	if d.st.Tenant == "" && p.Tenant != "" {
		d.in.Tenant = Tenant{Name: p.Tenant, Allowed: true}
	}
}

// unborn is the run as it is validated. What a child waits for may have come since its root was validated: its own creation is no
// bound.
func (d *decider) unborn() *v1alpha1.WorkflowRun {
	if d.in.Parent == nil {
		return d.run
	}
	run := *d.run
	run.CreationTimestamp = metav1.Time{}
	return &run
}

// parent ends a run whose parent does not wait for it any more.
func (d *decider) parent() {
	p := d.in.Parent
	switch {
	case p == nil:
	case p.Terminated:
		d.end(v1alpha1.RunCancelled, v1alpha1.ReasonTerminated, fmt.Sprintf(
			"its parent run %s is terminated; %s", p.Claim.Name, stateText(d.st.Steps, nothingMore)))
	case p.Over != "" && d.st.Ending == nil:
		d.finish(v1alpha1.RunCancelled, v1alpha1.ReasonCancelled, fmt.Sprintf(
			"its parent run %s %s; %s", p.Claim.Name, p.Over, stateText(d.st.Steps, nothingMore)))
	}
}

// admitChild lets a child in once its parent names it. It needs no slot, since its root has one: a child that waited for one could
// wait for its own root.
func (d *decider) admitChild() {
	if !d.in.Parent.Named {
		return
	}
	d.st.Admission.AdmittedAt = bounds.Second(d.now)
	d.event(EventNormal, v1alpha1.ReasonAdmitted, "Admitted"+d.slotText())
}

// slotText tells under whose slot a child runs.
func (d *decider) slotText() string {
	if d.st.Parent == nil {
		return ""
	}
	return " under the slot of run " + d.st.Parent.Root + ", as a child of run " + d.st.Parent.Name
}

// parentText is why a run that claims a parent is not admitted.
func (d *decider) parentText() string {
	return fmt.Sprintf("Waits for run %s, its parent by its owner reference, to name it in its status", d.in.Parent.Claim.Name)
}

// suspension is what is said of a suspended run: what suspends it, that it does, and what would resume it.
type suspension struct{ by, is, end string }

func (d *decider) suspension() suspension {
	if d.in.Run.Spec.Suspend || d.in.Parent == nil {
		return suspension{by: "by spec.suspend", is: "spec.suspend is set", end: "spec.suspend is taken back"}
	}
	parent := "its parent run " + d.in.Parent.Claim.Name
	return suspension{by: "with " + parent, is: parent + " is suspended", end: parent + " is resumed"}
}
