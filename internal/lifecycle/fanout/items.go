// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"slices"
	"strconv"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/itemset"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// AnyInFlight says whether an item is with NATS or a worker.
func (it *Items) AnyInFlight() bool {
	for k := range it.groups {
		if g := &it.groups[k]; status.InFlight(g.Phase) && g.Set.Len() > 0 {
			return true
		}
	}
	return false
}

// Items are the items of a step under way, within one decision.
type Items struct {
	Step    int                     // index of the step
	St      *v1alpha1.ForEachStatus // its counts and outputs are up to date; Store writes groups
	Problem *v1alpha1.StepError     // of the first item that failed for good, if it ends the step
	News    News

	spec   *v1alpha1.Step
	job    protocol.JobID // of the step; those of items are made of it
	groups []Group
	failed itemset.Set            // as far as status lists them
	fresh  map[int]*freshOutput   // items that succeed with this decision
	waits  map[[2]int32]time.Time // by history: the next attempt of items that failed in this decision
}

// News is what this decision did to items, for the events about it.
type News struct {
	Failed, Later       itemset.Set
	FailedBy, DelayedBy string      // the last error
	Postponed           itemset.Set // their workers asked for that
	PostponedBy         string      // the last one, with what it asked for
}

// Read are the items of a step by its status. What cannot be read was not written by Decide, and is
// left out.
func Read(step int, spec *v1alpha1.Step, job protocol.JobID, st *v1alpha1.ForEachStatus) *Items {
	st.Total = min(max(st.Total, 0), expr.MaxListItems)
	st.Begun = min(max(st.Begun, 0), st.Total)
	it := &Items{
		Step: step, St: st, spec: spec, job: job, groups: Groups(st),
		fresh: map[int]*freshOutput{}, waits: map[[2]int32]time.Time{},
	}
	it.failed, _ = itemset.Parse(st.FailedItems)
	return it
}

// Store writes the groups into status, of one of some active steps with forEach.
func (it *Items) Store(active int, now time.Time) {
	it.bound(active, now)
	it.settleLocks()
	it.St.Groups = nil
	for k := range it.groups {
		g := &it.groups[k]
		it.St.Groups = append(it.St.Groups, v1alpha1.ItemGroup{
			Items: g.Set.String(), Phase: g.Phase, Attempt: g.Attempt, Failures: g.Failures,
			DispatchedAt: g.DispatchedAt, StartedAt: g.StartedAt, NextAttemptAt: g.NextAttemptAt, DeadLetter: g.DeadLetter,
		})
	}
}

// ListFailed writes which items failed into status, while there is room: elsewhere is what other
// steps have listed.
func (it *Items) ListFailed(elsewhere int) {
	text := it.failed.String()
	if len(text) <= bounds.MaxFailedChars && elsewhere+len(text) <= bounds.MaxFailedBytes {
		it.St.FailedItems = text
	}
}

// Drop takes back the items of a step that ends, and names the attempts in flight. Outputs are left
// to be dropped.
func (it *Items) Drop() []protocol.JobID {
	var inFlight []protocol.JobID
	for k := range it.groups {
		g := &it.groups[k]
		if !status.InFlight(g.Phase) {
			continue
		}
		for item := range g.Set.All() {
			inFlight = append(inFlight, it.JobID(item, g.Attempt))
		}
	}
	it.St.Groups, it.St.Outputs, it.St.OutputRefs = nil, nil, nil
	return inFlight
}

// JobID names an attempt of an item.
func (it *Items) JobID(item int, attempt int32) protocol.JobID {
	id := it.job
	id.Item, id.Attempt = strconv.Itoa(item), attempt
	return id
}

// find is the number of the group with an item; -1: it is in none.
func (it *Items) find(item int) int {
	return slices.IndexFunc(it.groups, func(g Group) bool { return g.Set.Contains(item) })
}

// take takes an item out of its group.
func (it *Items) take(item int) {
	if k := it.find(item); k >= 0 {
		it.groups[k].Set.Remove(item)
	}
}

// put adds an item to the group that is where it is.
func (it *Items) put(item int, g Group) {
	for k := range it.groups {
		if same(&it.groups[k], &g) {
			it.groups[k].Set.Add(item)
			return
		}
	}
	g.Set = itemset.Set{}
	g.Set.Add(item)
	it.groups = append(it.groups, g)
}

// UnderWay is how many items are with workers, or wait for another attempt or their locks.
func (it *Items) UnderWay() (n int) {
	for k := range it.groups {
		n += it.groups[k].Set.Len()
	}
	return n
}

// Phases counts the items under way by phase.
func (it *Items) Phases(in map[v1alpha1.StepPhase]int) {
	for k := range it.groups {
		in[it.groups[k].Phase] += it.groups[k].Set.Len()
	}
}

// Done says whether all items are over.
func (it *Items) Done() bool { return it.St.Begun >= it.St.Total && it.UnderWay() == 0 }

// Groups are the groups of the items; none of a step that is over.
func (it *Items) Groups() []Group {
	if it == nil {
		return nil
	}
	return it.groups
}
