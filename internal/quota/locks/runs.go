// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/itemset"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// TicketOf is the ticket of a part of a run: "" the run itself, "build" a step, "build/3" an item.
func TicketOf(uid types.UID, part string) string {
	if part == "" {
		return string(uid)
	}
	return string(uid) + "/" + part
}

// TicketsOf are the tickets of a run and its steps, all that there may ever be, and those of items
// that status names; none for a run without locks. Which steps of a Workflow have locks is not in
// the run: each of them may.
func TicketsOf(run *v1alpha1.WorkflowRun) []string {
	var all []string
	for name, ofItems := range partsOf(run).each {
		if !ofItems {
			all = append(all, TicketOf(run.UID, name))
		}
	}
	for i, steps := 0, stepsOf(run); i < len(steps); i++ {
		if s := &steps[i]; s.ForEach != nil {
			for _, l := range s.ForEach.Locks {
				all = append(all, TicketOf(run.UID, l.Part(s.Name)))
			}
		}
	}
	return all
}

// HasLocks says whether a run may ever have a ticket.
func HasLocks(run *v1alpha1.WorkflowRun) bool { return run.Spec.WorkflowRef != nil || run.HasLocks() }

// parts are the parts of a run that may have locks. They are not listed before they are asked for:
// most runs that there are have ended, and few of their parts were ever locked.
type parts struct{ run *v1alpha1.WorkflowRun }

func partsOf(run *v1alpha1.WorkflowRun) parts { return parts{run} }

// each yields the name of each of them, "" for the run itself, and whether it stands for the items
// of that step.
func (p parts) each(yield func(name string, ofItems bool) bool) {
	switch {
	case p.run == nil:
	case p.run.Spec.WorkflowRef != nil:
		steps := stepsOf(p.run)
		for i, more := 0, yield("", false); more && i < len(steps); i++ {
			more = yield(steps[i].Name, false) && yield(steps[i].Name, true)
		}
	case len(p.run.Spec.Locks) == 0 || yield("", false):
		_ = eachStep(p.run.Spec.Steps, yield) && eachStep(p.run.Spec.Finally, yield)
	}
}

// eachStep is each of some steps; it says whether to go on.
func eachStep(steps []v1alpha1.Step, yield func(name string, ofItems bool) bool) bool {
	for i := range steps {
		s := &steps[i]
		if len(s.Locks) > 0 && !yield(s.Name, false) || s.ForEach != nil && len(s.ForEach.Locks) > 0 && !yield(s.Name, true) {
			return false
		}
	}
	return true
}

// has says whether a part is one of them; an item is that status names.
func (p parts) has(part string) bool {
	step, _, isItem := strings.Cut(part, "/")
	for name, ofItems := range p.each {
		if name == step && ofItems == isItem {
			return true
		}
	}
	if !isItem || p.run == nil {
		return false
	}
	s := stepNamed(stepsOf(p.run), step)
	return s != nil && s.ForEach != nil && slices.ContainsFunc(s.ForEach.Locks, func(l v1alpha1.ItemLocks) bool { return l.Part(step) == part })
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
	newer     bool // see unread
	shutdown  bool // is to be cancelled, or terminated
	finished  bool
	tickets   map[string]Part // those of TicketsOf that hold or wait
	parts     parts
	status    *v1alpha1.WorkflowRunStatus
}

// begun says whether status names the steps. Before that a run of a Workflow has tickets that it
// does not declare: its first locks are taken for the write that names its steps.
func (f fact) begun() bool { return f.status != nil && len(f.status.Steps) > 0 }

// unread says whether a newer operator wrote what a run says of its parts, so that it may hold what
// this one does not read. That a run has ended all can read.
func (f fact) unread() bool { return f.newer && !f.finished }

// NeverHas says that a run never has a ticket again: what it says of it does not change back.
func NeverHas(run *v1alpha1.WorkflowRun, ticket string) bool {
	_, _, never := PartsOfTickets(run)(ticket)
	return never
}

// PartsOfTickets looks at a run once, and gives what it says of any of its tickets, with whether it
// declares it, and whether it never has it again.
func PartsOfTickets(run *v1alpha1.WorkflowRun) func(ticket string) (p Part, declared, never bool) {
	f := factOf(run)
	return func(ticket string) (Part, bool, bool) {
		p, declared := f.part(ticket)
		p.Over = p.Over && !f.unread()
		return p, declared, p.Over || !declared && f.begun() && !f.unread()
	}
}

// Part is a part of a run by its status.
type Part struct {
	Holds []v1alpha1.LockHold
	Waits bool // status says that it waits
	Over  bool // it never needs locks again
}

// PartOf is a step of a run, an item of one ("build/3"), or "" the run itself.
func PartOf(run *v1alpha1.WorkflowRun, part string) Part {
	if run.Status == nil {
		return Part{}
	}
	return partOf(run.Status, part)
}

// ChildrenOf are the child runs inside of a part of a run that were let in, by its status. What the
// part has is theirs, too: one may be at its clean-up when the part is over.
func ChildrenOf(run *v1alpha1.WorkflowRun, part string) []v1alpha1.ChildRunStatus {
	return childrenOf(run.Status, part)
}

func childrenOf(st *v1alpha1.WorkflowRunStatus, part string) (all []v1alpha1.ChildRunStatus) {
	if st == nil {
		return nil
	}
	for i := range st.Steps {
		if s := &st.Steps[i]; s.ChildRun != nil && s.ChildRun.UID != "" && (part == "" || part == s.Name) {
			all = append(all, *s.ChildRun)
		}
	}
	return all
}

// factOf shares the spec and status of a run, to read them.
func factOf(run *v1alpha1.WorkflowRun) fact {
	f := fact{
		uid: run.UID, name: types.NamespacedName{Namespace: run.Namespace, Name: run.Name}, tree: TreeOf(run), version: run.ResourceVersion,
		suspended: run.Spec.Suspend || run.NeedsNewer() > 0, newer: run.NeedsNewer() > 0, shutdown: run.Spec.Shutdown != "", tickets: map[string]Part{}, parts: partsOf(run), status: run.Status,
	}
	f.finished = f.status != nil && f.status.CompletedAt != nil
	if f.status == nil || f.finished { // what ended needs no locks; what Redis has of it is dropped
		return f
	}
	f.noteItems()
	if own := f.ofSteps(); len(own) > 0 {
		for name, ofItems := range f.parts.each {
			if p, ok := own[name]; ok && !ofItems {
				f.tickets[TicketOf(f.uid, name)] = p
			}
		}
	}
	return f
}

// ofSteps is what steps hold and wait for, and "" the run itself, whether or not it declares locks.
func (f fact) ofSteps() map[string]Part {
	all := map[string]Part{}
	note := func(part string, p Part) {
		if len(p.Holds) > 0 || p.Waits {
			all[part] = p
		}
	}
	for i := range f.status.Steps {
		s := &f.status.Steps[i]
		note(s.Name, partOfStep(s))
	}
	note("", partOf(f.status, ""))
	return all
}

// noteItems notes what items hold and wait for.
func (f fact) noteItems() {
	for i := range f.status.Steps {
		s := &f.status.Steps[i]
		if s.ForEach == nil {
			continue
		}
		for _, l := range s.ForEach.Locks {
			if len(l.Locks) > 0 || l.LockWait != nil {
				part := l.Part(s.Name)
				f.tickets[TicketOf(f.uid, part)] = partOf(f.status, part)
			}
		}
	}
}

func partOfTicket(st *v1alpha1.WorkflowRunStatus, ticket string) Part {
	if st == nil {
		return Part{}
	}
	_, part, _ := strings.Cut(ticket, "/")
	return partOf(st, part)
}

// part is what a run says of one of its tickets, also of an item that status does not name; not ok:
// it is none of them.
func (f fact) part(ticket string) (p Part, ok bool) {
	if p, ok = f.tickets[ticket]; ok || f.uid != uidOf(ticket) {
		return p, ok
	}
	_, part, isPart := strings.Cut(ticket, "/")
	if isPart && part == "" || !f.parts.has(part) {
		return Part{}, false
	}
	return partOfTicket(f.status, ticket), true
}

func partOf(st *v1alpha1.WorkflowRunStatus, part string) Part {
	if part == "" {
		return Part{Holds: st.Locks, Waits: st.Admission != nil && st.Admission.LockWait != nil, Over: st.CompletedAt != nil}
	}
	p := Part{Over: st.CompletedAt != nil}
	step, item, ofItem := strings.Cut(part, "/")
	s := stepNamed(st.Steps, step)
	if s == nil {
		return p
	}
	own := partOfStep(s)
	p.Over = p.Over || own.Over
	if ofItem {
		return itemOf(s.ForEach, item, p)
	}
	p.Holds, p.Waits = own.Holds, own.Waits
	return p
}

// stepNamed is a step by its name; nil: there is none.
func stepNamed(steps []v1alpha1.StepStatus, name string) *v1alpha1.StepStatus {
	for i := range steps {
		if steps[i].Name == name {
			return &steps[i]
		}
	}
	return nil
}

// partOfStep is a step of a run that has not ended.
func partOfStep(s *v1alpha1.StepStatus) Part {
	p := Part{Holds: s.Locks, Waits: s.LockWait != nil}
	switch s.Phase {
	case v1alpha1.StepSucceeded, v1alpha1.StepFailed, v1alpha1.StepSkipped, v1alpha1.StepCancelled:
		p.Over = true
	case v1alpha1.StepPending, v1alpha1.StepDispatched, v1alpha1.StepRunning, v1alpha1.StepBackingOff, v1alpha1.StepWaiting, v1alpha1.StepDelayed:
	}
	return p
}

// itemOf is an item by the status of its step: those that began and are in no group are over.
func itemOf(f *v1alpha1.ForEachStatus, text string, p Part) Part {
	item, err := strconv.Atoi(text)
	if err != nil || f == nil || int64(item) >= int64(f.Begun) {
		return p
	}
	for i := range f.Locks {
		if l := &f.Locks[i]; int(l.Item) == item {
			p.Holds, p.Waits = l.Locks, l.LockWait != nil
			return p
		}
	}
	p.Over = p.Over || !slices.ContainsFunc(f.Groups, func(g v1alpha1.ItemGroup) bool {
		set, err := itemset.Parse(g.Items)
		return err == nil && set.Contains(item)
	})
	return p
}

// holding is what a ticket holds by status; not ok: nothing.
func (f fact) holding(ticket string) (h store.Holding, ok bool) {
	p, _ := f.part(ticket)
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

// HeldBy are the tickets of a run that hold something by its status.
func HeldBy(run *v1alpha1.WorkflowRun) (all []string) {
	st := run.Status
	if st == nil || st.CompletedAt != nil {
		return nil
	}
	note := func(part string, held []v1alpha1.LockHold) {
		if len(held) > 0 {
			all = append(all, TicketOf(run.UID, part))
		}
	}
	note("", st.Locks)
	for i := range st.Steps {
		s := &st.Steps[i]
		note(s.Name, s.Locks)
		if s.ForEach == nil {
			continue
		}
		for _, l := range s.ForEach.Locks {
			note(l.Part(s.Name), l.Locks)
		}
	}
	return all
}

// OwnerOf is the UID of the run of a ticket.
func OwnerOf(ticket string) types.UID { return uidOf(ticket) }

func nameOf(run string) types.NamespacedName {
	namespace, name, _ := strings.Cut(run, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}
