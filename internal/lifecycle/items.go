// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/retry"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// readItems reads the items of the steps under way.
func readItems(d *draft) {
	for i := range d.st.Steps {
		if s := &d.st.Steps[i]; status.IsForEach(s) && !status.Ended(s.Phase) && dag.FansOut(&d.plan.Steps[i]) && d.initialized {
			d.items[i] = newItems(d, i)
		}
	}
}

func newItems(d *draft, i int) *fanout.Items {
	s := &d.st.Steps[i]
	d.store.noteParts(s.ForEach.OutputRefs)
	return fanout.Read(i, &d.plan.Steps[i], status.JobID(d.run, s.Name, 1), s.ForEach)
}

// storeItems writes the items back into status. The list of a step that asks for its locks is kept
// for the decision that has the answer: one that would be cut for it would give a grant back.
func storeItems(d *draft) {
	lists := d.out.Lists
	d.out.Lists = nil
	active := forEachSteps(d)
	for i, it := range d.items {
		if it != nil || d.asks[i] && dag.FansOut(&d.plan.Steps[i]) {
			keepList(d, d.view.ListName(i), lists)
		}
		if it != nil {
			it.Store(active, d.now)
		}
	}
}

func forEachSteps(d *draft) (n int) {
	for _, it := range d.items {
		if it != nil {
			n++
		}
	}
	return n
}

// dropItems takes the items of a step that ends back: jobs in flight are withdrawn, and what was to
// go out with this decision does not.
func dropItems(d *draft, i int) {
	it := d.items[i]
	if it == nil {
		return
	}
	d.store.used -= len(it.Held())
	unsent := map[protocol.JobID]bool{}
	d.launches = slices.DeleteFunc(d.launches, func(l launch) bool {
		if l.step == i {
			unsent[it.JobID(l.item.Item, l.item.Number)] = true
		}
		return l.step == i
	})
	inFlight := slices.DeleteFunc(it.Drop(), func(id protocol.JobID) bool { return unsent[id] })
	for _, id := range inFlight {
		d.out.Withdraw = append(d.out.Withdraw, Withdrawal{ID: id, Topic: d.plan.Steps[i].Job.Topic})
	}
	d.items[i] = nil
}

// noteItemError makes the error of an item that of its step: the last one stands.
func noteItemError(d *draft, it *fanout.Items, item int, e v1alpha1.StepError, forGood bool) {
	s := &d.st.Steps[it.Step]
	e = report.OfItem(item, e)
	d.texts.setError(s, &e)
	it.Note(forGood, s.Error, report.ErrorText(s.Error))
}

// failItem ends an attempt of an item as failed.
func failItem(d *draft, it *fanout.Items, item int, e v1alpha1.StepError, final bool) {
	e.Code = retry.Code(e.Code)
	forGood := it.Fail(item, e.Code, final, d.now)
	if forGood {
		listFailed(d, it)
	}
	noteItemError(d, it, item, e, forGood)
}

// itemFailed ends an item as failed for good.
func itemFailed(d *draft, it *fanout.Items, item int, e v1alpha1.StepError) {
	it.FailForGood(item)
	listFailed(d, it)
	noteItemError(d, it, item, e, true)
}

func listFailed(d *draft, it *fanout.Items) {
	elsewhere := 0
	for i := range d.st.Steps {
		if s := &d.st.Steps[i]; i != it.Step && status.IsForEach(s) {
			elsewhere += len(s.ForEach.FailedItems)
		}
	}
	it.ListFailed(elsewhere)
}

// anyInFlight says whether an attempt is with NATS or a worker.
func anyInFlight(d *draft) bool {
	for i := range d.st.Steps {
		if status.WithWorker(&d.st.Steps[i]) {
			return true
		}
		if it := d.items[i]; it != nil && it.AnyInFlight() {
			return true
		}
	}
	return false
}

// keepList has a list kept that a step under way goes on to need.
func keepList(d *draft, name string, looked map[string][]any) {
	list, known := looked[name]
	if !known {
		list, known = d.in.Lists[name]
	}
	if !known {
		return
	}
	if d.out.Lists == nil {
		d.out.Lists = map[string][]any{}
	}
	d.out.Lists[name] = list
}
