package lifecycle

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/itemset"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// items is the state of the items of a step under way, within one decision.
type items struct {
	step   int
	st     *v1alpha1.ForEachStatus // its counts and outputs are kept up to date; groups are written by storeItems, failedItems by listFailed
	groups []itemGroup
	failed itemset.Set // as far as status lists them

	fresh   map[int]*freshOutput   // items that succeed with this decision
	output  *kept                  // of the step, once there is a place for it
	problem *v1alpha1.StepError    // of the first item that failed for good, if that is the end of the step
	waits   map[[2]int32]time.Time // when items are tried again that failed in this decision, by attempt and failures
	news    itemNews
}

// itemNews is what this decision did to items, for the events about it.
type itemNews struct {
	failed, later       itemset.Set
	failedBy, delayedBy string // the last error
}

// itemGroup is v1alpha1.ItemGroup with its items read.
type itemGroup struct {
	set                                    itemset.Set
	phase                                  v1alpha1.StepPhase
	attempt, failures                      int32
	dispatchedAt, startedAt, nextAttemptAt *metav1.MicroTime
	deadLetter                             v1alpha1.DeadLetterReason
}

// history is what makes items different for good.
func (g *itemGroup) history() [2]int32 { return [2]int32{g.attempt, g.failures} }

// since is the moment from which a group counts its time-out, or its next attempt.
func (g *itemGroup) since() time.Time {
	for _, at := range []*metav1.MicroTime{g.nextAttemptAt, g.startedAt, g.dispatchedAt} {
		if at != nil {
			return at.Time
		}
	}
	return time.Time{}
}

// groupsOf reads the groups of a step; what cannot be read was not written by Decide, and is left out.
func groupsOf(st *v1alpha1.ForEachStatus) []itemGroup {
	groups := make([]itemGroup, 0, len(st.Groups))
	for i := range st.Groups {
		g := &st.Groups[i]
		set, err := itemset.Parse(g.Items)
		if err != nil {
			continue
		}
		groups = append(groups, itemGroup{
			set: set, phase: g.Phase, attempt: g.Attempt, failures: g.Failures,
			dispatchedAt: g.DispatchedAt, startedAt: g.StartedAt, nextAttemptAt: g.NextAttemptAt, deadLetter: g.DeadLetter,
		})
	}
	return groups
}

// readItems reads the items of the steps under way.
func (d *decider) readItems() {
	for i := range d.st.Steps {
		if s := &d.st.Steps[i]; status.IsForEach(s) && !status.Ended(s.Phase) && dag.FansOut(&d.plan.Steps[i]) && d.seen {
			d.items[i] = d.newItems(i)
		}
	}
}

func (d *decider) newItems(i int) *items {
	st := d.st.Steps[i].ForEach
	st.Total = min(max(st.Total, 0), expr.MaxListItems)
	st.Begun = min(max(st.Begun, 0), st.Total)
	for k := range st.OutputRefs {
		if d.parts == nil {
			d.parts = map[string]bool{}
		}
		d.parts[st.OutputRefs[k].Name] = true
	}
	it := &items{step: i, st: st, groups: groupsOf(st), fresh: map[int]*freshOutput{}, waits: map[[2]int32]time.Time{}}
	it.failed, _ = itemset.Parse(st.FailedItems) // not readable: not written by Decide
	return it
}

// find is the number of the group with an item; -1: it is in none.
func (it *items) find(item int) int {
	return slices.IndexFunc(it.groups, func(g itemGroup) bool { return g.set.Contains(item) })
}

// take takes an item out of its group.
func (it *items) take(item int) {
	if k := it.find(item); k >= 0 {
		it.groups[k].set.Remove(item)
	}
}

// put adds an item to the group that is where it is.
func (it *items) put(item int, g itemGroup) {
	for k := range it.groups {
		if same(&it.groups[k], &g) {
			it.groups[k].set.Add(item)
			return
		}
	}
	g.set = itemset.Set{}
	g.set.Add(item)
	it.groups = append(it.groups, g)
}

func same(a, b *itemGroup) bool {
	return a.phase == b.phase && a.history() == b.history() && a.deadLetter == b.deadLetter &&
		a.dispatchedAt.Equal(b.dispatchedAt) && a.startedAt.Equal(b.startedAt) && a.nextAttemptAt.Equal(b.nextAttemptAt)
}

// underWay is how many items are with workers or wait for another attempt.
func (it *items) underWay() (n int) {
	for k := range it.groups {
		n += it.groups[k].set.Len()
	}
	return n
}

// phases counts the items under way by phase.
func (it *items) phases(in map[v1alpha1.StepPhase]int) {
	for k := range it.groups {
		in[it.groups[k].phase] += it.groups[k].set.Len()
	}
}

// done says whether all items are over.
func (it *items) done() bool { return it.st.Begun >= it.st.Total && it.underWay() == 0 }

// judgeItem compares an attempt of an item with the persisted state of its step.
func judgeItem(s *v1alpha1.StepStatus, groups []itemGroup, id protocol.JobID) (item int, v Verdict) {
	item, err := strconv.Atoi(id.Item)
	if err != nil || !status.IsForEach(s) || item >= int(s.ForEach.Begun) {
		return 0, Ahead
	}
	k := slices.IndexFunc(groups, func(g itemGroup) bool { return g.set.Contains(item) })
	switch {
	case k < 0 || status.Ended(s.Phase):
		return item, Duplicate
	case id.Attempt > groups[k].attempt:
		return item, Ahead
	case id.Attempt < groups[k].attempt:
		return item, Stale
	case status.InFlight(groups[k].phase):
		return item, Applied
	default:
		return item, Duplicate
	}
}

// storeItems writes the items back into status.
func (d *decider) storeItems() {
	lists := d.out.Lists
	d.out.Lists = nil
	for i, it := range d.items {
		if it == nil {
			continue
		}
		d.keepList(d.st.Steps[i].Name, lists)
		it.bound(d.forEachSteps())
		it.st.Groups = nil
		for k := range it.groups {
			g := &it.groups[k]
			it.st.Groups = append(it.st.Groups, v1alpha1.ItemGroup{
				Items: g.set.String(), Phase: g.phase, Attempt: g.attempt, Failures: g.failures,
				DispatchedAt: g.dispatchedAt, StartedAt: g.startedAt, NextAttemptAt: g.nextAttemptAt, DeadLetter: g.deadLetter,
			})
		}
	}
}

// keepList has the list of a step under way kept.
func (d *decider) keepList(step string, looked map[string][]any) {
	list, known := looked[step]
	if !known {
		list, known = d.in.Lists[step]
	}
	if !known {
		return
	}
	if d.out.Lists == nil {
		d.out.Lists = map[string][]any{}
	}
	d.out.Lists[step] = list
}

// listFailed writes which items failed into status, as long as there is room for that in the run.
func (d *decider) listFailed(it *items) {
	text := it.failed.String()
	all := len(text)
	for i := range d.st.Steps {
		if s := &d.st.Steps[i]; i != it.step && status.IsForEach(s) {
			all += len(s.ForEach.FailedItems)
		}
	}
	if len(text) <= bounds.MaxFailedChars && all <= bounds.MaxFailedBytes {
		it.st.FailedItems = text
	}
}

// bound sorts the groups and keeps their number within the share of one of several steps. Groups with the same history are made one
// first, which makes the times of some later; then those that wait for another attempt, whatever their history: in flight it is
// part of their job ids.
func (it *items) bound(active int) {
	it.groups = slices.DeleteFunc(it.groups, func(g itemGroup) bool { return g.set.Len() == 0 })
	slices.SortFunc(it.groups, compareGroups)
	it.groups = merged(it.groups, share(bounds.MaxGroups, active), func(a, b *itemGroup) bool {
		return a.phase == b.phase && a.history() == b.history() && a.deadLetter == b.deadLetter
	})
	it.groups = merged(it.groups, share(bounds.MaxGroups, active), func(a, b *itemGroup) bool {
		return a.phase == v1alpha1.StepBackingOff && b.phase == a.phase
	})
}

func compareGroups(a, b itemGroup) int {
	first, _ := a.set.First()
	second, _ := b.set.First()
	return cmp.Or(
		cmp.Compare(phaseOrder(a.phase), phaseOrder(b.phase)), cmp.Compare(a.attempt, b.attempt), cmp.Compare(a.failures, b.failures),
		cmp.Compare(a.deadLetter, b.deadLetter), a.since().Compare(b.since()), cmp.Compare(first, second),
	)
}

func phaseOrder(p v1alpha1.StepPhase) int {
	return slices.Index([]v1alpha1.StepPhase{v1alpha1.StepRunning, v1alpha1.StepDispatched, v1alpha1.StepBackingOff}, p)
}

// share is what each of some steps may have of what a run may have.
func share(all, steps int) int { return max(all/max(1, steps), bounds.MinShare) }

// merged makes neighbours one that may be, those that are closest in time first, until there are few enough groups or none left
// that may.
func merged(groups []itemGroup, limit int, may func(a, b *itemGroup) bool) []itemGroup {
	for len(groups) > limit {
		best := -1
		var gap time.Duration
		for k := 0; k+1 < len(groups); k++ {
			if !may(&groups[k], &groups[k+1]) {
				continue
			}
			if g := groups[k+1].since().Sub(groups[k].since()).Abs(); best < 0 || g <= gap { // of equal ones the youngest: the oldest is to time out first
				best, gap = k, g
			}
		}
		if best < 0 {
			return groups
		}
		a, b := &groups[best], &groups[best+1]
		*a = itemGroup{
			set: a.set.Union(b.set), phase: a.phase, attempt: max(a.attempt, b.attempt), failures: min(a.failures, b.failures),
			dispatchedAt: later(a.dispatchedAt, b.dispatchedAt), startedAt: later(a.startedAt, b.startedAt),
			nextAttemptAt: later(a.nextAttemptAt, b.nextAttemptAt), deadLetter: a.deadLetter,
		}
		groups = slices.Delete(groups, best+1, best+2)
	}
	return groups
}

func later(a, b *metav1.MicroTime) *metav1.MicroTime {
	if a == nil || (b != nil && b.After(a.Time)) {
		return b
	}
	return a
}
