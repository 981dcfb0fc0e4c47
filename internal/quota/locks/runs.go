// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// TicketOf is the ticket of a run, or of one of its steps.
func TicketOf(uid types.UID, step string) string {
	if step == "" {
		return string(uid)
	}
	return string(uid) + "/" + step
}

// TicketsOf are all tickets that a run may ever have; none for a run without locks. Which steps of
// a Workflow have locks is not in the run: each of them may.
func TicketsOf(run *v1alpha1.WorkflowRun) []string {
	var all []string
	if run.Spec.WorkflowRef != nil {
		all = append(all, TicketOf(run.UID, ""))
		for i := range stepsOf(run) {
			all = append(all, TicketOf(run.UID, run.Status.Steps[i].Name))
		}
		return all
	}
	if len(run.Spec.Locks) > 0 {
		all = append(all, TicketOf(run.UID, ""))
	}
	for _, steps := range [][]v1alpha1.Step{run.Spec.Steps, run.Spec.Finally} {
		for i := range steps {
			if len(steps[i].Locks) > 0 {
				all = append(all, TicketOf(run.UID, steps[i].Name))
			}
		}
	}
	return all
}

func stepsOf(run *v1alpha1.WorkflowRun) []v1alpha1.StepStatus {
	if run.Status == nil {
		return nil
	}
	return run.Status.Steps
}

// uidOf is the UID of the run of a ticket.
func uidOf(ticket string) types.UID {
	uid, _, _ := strings.Cut(ticket, "/")
	return types.UID(uid)
}

// TreeOf names the run at the top of the tree of a run.
func TreeOf(run *v1alpha1.WorkflowRun) string {
	if run.Status != nil && run.Status.Parent != nil && run.Status.Parent.Root != "" {
		return run.Namespace + "/" + run.Status.Parent.Root
	}
	return run.Namespace + "/" + run.Name
}

// fact is what there is to know of a run with locks.
type fact struct {
	uid       types.UID
	name      types.NamespacedName
	tree      string
	version   string
	suspended bool // or left alone, because it needs a newer operator
	finished  bool
	tickets   map[string]Part
}

// Part is a ticket of a run by its status.
type Part struct {
	Holds []v1alpha1.LockHold
	Waits bool // status says that it waits
	Over  bool // it never needs locks again
}

// PartOf is a step of a run, or "" the run itself.
func PartOf(run *v1alpha1.WorkflowRun, step string) Part {
	if run.Status == nil {
		return Part{}
	}
	return partOf(run.Status, step)
}

func factOf(run *v1alpha1.WorkflowRun) fact {
	f := fact{
		uid: run.UID, name: types.NamespacedName{Namespace: run.Namespace, Name: run.Name}, tree: TreeOf(run), version: run.ResourceVersion,
		suspended: run.Spec.Suspend || run.NeedsNewer() > 0, tickets: map[string]Part{},
	}
	for _, ticket := range TicketsOf(run) {
		f.tickets[ticket] = Part{}
	}
	st := run.Status
	if st == nil {
		return f
	}
	f.finished = st.CompletedAt != nil
	for ticket := range f.tickets {
		_, step, _ := strings.Cut(ticket, "/")
		f.tickets[ticket] = partOf(st, step)
	}
	return f
}

func partOf(st *v1alpha1.WorkflowRunStatus, step string) Part {
	if step == "" {
		return Part{Holds: st.Locks, Waits: st.Admission != nil && st.Admission.LockWait != nil, Over: st.CompletedAt != nil}
	}
	p := Part{Over: st.CompletedAt != nil}
	i := slices.IndexFunc(st.Steps, func(s v1alpha1.StepStatus) bool { return s.Name == step })
	if i < 0 {
		return p
	}
	s := &st.Steps[i]
	switch s.Phase {
	case v1alpha1.StepSucceeded, v1alpha1.StepFailed, v1alpha1.StepSkipped, v1alpha1.StepCancelled:
		p.Over = true
	case v1alpha1.StepPending, v1alpha1.StepDispatched, v1alpha1.StepRunning, v1alpha1.StepBackingOff, v1alpha1.StepWaiting, v1alpha1.StepDelayed:
	}
	p.Holds, p.Waits = s.Locks, s.LockWait != nil
	return p
}

// holding is what a ticket holds by status; not ok: nothing.
func (f fact) holding(ticket string) (h store.Holding, ok bool) {
	p := f.tickets[ticket]
	if p.Over || len(p.Holds) == 0 {
		return h, false
	}
	h.Ticket = store.Ticket{ID: ticket, Run: f.name.String(), Tree: f.tree, Version: f.version}
	for _, l := range p.Holds {
		h.Locks = append(h.Locks, store.Hold{Name: l.Name, Permits: int(l.Permits)})
		h.Fence = max(h.Fence, l.Fence)
	}
	return h, true
}

// HoldingOf is what a ticket holds by the status of its run; not ok: nothing.
func HoldingOf(run *v1alpha1.WorkflowRun, ticket string) (h store.Holding, ok bool) {
	return factOf(run).holding(ticket)
}

// OwnerOf is the UID of the run of a ticket.
func OwnerOf(ticket string) types.UID { return uidOf(ticket) }

// PartOfTicket is what a run says of one of its tickets; not ok: it is none of them.
func PartOfTicket(run *v1alpha1.WorkflowRun, ticket string) (p Part, ok bool) {
	p, ok = factOf(run).tickets[ticket]
	return p, ok
}
