// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// succeedItems ends the items that succeed with this decision, once there is a place for their
// outputs. If the object store has to take or give something first, their results wait.
func succeedItems(d *draft, it *fanout.Items) {
	if it.Fresh() == 0 {
		return
	}
	kept, problem := keepOutputs(d, it)
	if !kept && problem == nil {
		for _, k := range it.Postpone() {
			d.out.Verdicts[k] = Waiting
		}
		return
	}
	if problem != nil {
		it.Problem = problem
	}
	it.Succeed()
	if it.St.Failed == 0 {
		d.texts.setError(&d.st.Steps[it.Step], nil)
	}
}

// keepOutputs finds a place for the fresh outputs; not ok without a problem: the object store has
// to take or give something first. A problem means that outputs of earlier items are lost.
func keepOutputs(d *draft, it *fanout.Items) (ok bool, problem *v1alpha1.StepError) {
	text, fresh := it.WithFresh()
	if it.St.Begun >= it.St.Total && it.UnderWay() == it.Fresh() {
		return putTogether(d, it, text) // the last ones need no object of their own
	}
	if !fresh {
		return true, nil // none of them has an output
	}
	if held := d.store.fitting(text, bounds.MaxHeldBytes, len(it.Held())); held != nil {
		holdOutputs(d, it, held)
		return true, nil
	}
	refs := it.St.OutputRefs
	if len(refs) >= fanout.Share(bounds.MaxBatches, forEachSteps(d)) { // all are made one
		before, problem := d.store.parts(refs)
		if before == nil {
			return false, problem
		}
		text, refs = fanout.Joined(append(before, text)), nil
	}
	stored, problem := d.store.moved(protocol.NewOutputRef(status.JobID(d.run, d.st.Steps[it.Step].Name, 1), text), text)
	if stored.lacking || problem != nil {
		return false, problem
	}
	holdOutputs(d, it, nil)
	it.St.OutputRefs = append(slices.Clip(refs), *stored.ref)
	return true, nil
}

// putTogether finds a place for the output of the step, given the outputs of items that are not
// in objects yet.
func putTogether(d *draft, it *fanout.Items, text []byte) (ok bool, problem *v1alpha1.StepError) {
	parts, problem := d.store.parts(it.St.OutputRefs)
	if parts == nil {
		return false, problem
	}
	list, err := fanout.ListOf(append(parts, text), int(it.St.Total), d.in.Pause)
	if err != nil {
		return false, report.OutputsLost(err.Error())
	}
	place, problem := d.store.keep(&Result{ID: status.JobID(d.run, d.st.Steps[it.Step].Name, 1), Result: protocol.Result{Output: list}})
	if place.lacking || problem != nil {
		return false, problem
	}
	if d.assembled == nil {
		d.assembled = map[int]kept{}
	}
	d.assembled[it.Step] = place
	return true, nil
}

// holdOutputs makes a text the outputs of items in status.
func holdOutputs(d *draft, it *fanout.Items, text []byte) {
	d.store.used += len(text) - len(it.Held())
	it.St.Outputs = nil
	if len(text) > 0 {
		it.St.Outputs = &runtime.RawExtension{Raw: text}
	}
}

// finishItems ends a step whose items are all over: it succeeds with the list of their outputs,
// once that has its place.
func finishItems(d *draft, it *fanout.Items) {
	s := &d.st.Steps[it.Step]
	place, placed := d.assembled[it.Step]
	if !placed {
		if placed, it.Problem = putTogether(d, it, it.Held()); it.Problem == nil && !placed {
			d.assembling = true
			d.answers.await(status.JobID(d.run, s.Name, 1))
			return
		}
		place = d.assembled[it.Step]
	}
	if it.Problem != nil {
		settleItems(d, it)
		return
	}
	dropItems(d, it.Step)
	d.store.used += len(bounds.Raw(place.output))
	s.Phase, s.Output, s.OutputRef, s.CompletedAt = v1alpha1.StepSucceeded, place.output, place.ref, bounds.Micro(d.now)
	d.event(report.ItemsSucceeded(s.Name, it.St))
}

// settleItems tells what became of items, and ends their step if that is what follows.
func settleItems(d *draft, it *fanout.Items) {
	reportItems(d, it)
	switch {
	case it.Problem != nil:
		e := *it.Problem
		dropItems(d, it.Step)
		stepFailed(d, it.Step, e, failureReason(&e))
	case it.Done():
		finishItems(d, it)
	}
}

// reportItems makes an event of what a decision did to many items.
func reportItems(d *draft, it *fanout.Items) {
	name := d.st.Steps[it.Step].Name
	if n := it.News.Later.Len(); n > 0 {
		d.event(report.ItemsBackOff(name, &it.News.Later, it.News.DelayedBy))
	}
	if n := it.News.Postponed.Len(); n > 0 {
		d.event(report.ItemsPostponed(name, &it.News.Postponed, it.News.PostponedBy))
	}
	if n := it.News.Failed.Len(); n > 0 {
		d.event(report.ItemsFailed(name, &it.News.Failed, it.News.FailedBy))
	}
	it.News = fanout.News{}
}
