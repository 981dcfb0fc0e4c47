package lifecycle

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// startedTogether is within which time items that were begun count as one group: as begun at its end.
const startedTogether = time.Second

// applyItem applies what a worker said about an item of step i. A success takes effect with all others of the decision, in
// succeedItems.
func (d *decider) applyItem(k, i int) Verdict {
	r, it := &d.in.Results[k], d.items[i]
	var groups []itemGroup // none: the step is over
	if it != nil {
		groups = it.groups
	}
	item, verdict := judgeItem(&d.st.Steps[i], groups, r.ID)
	if verdict != Applied {
		return d.out.unapplied(k, r, d.st.Steps, i, verdict)
	}
	if f := it.fresh[item]; f != nil { // it succeeds with this decision: whatever else is said of the attempt comes too late
		f.results = append(f.results, k)
		return Duplicate
	}
	if r.Rejected != "" {
		d.rejectItem(k, it, item, r.Rejected)
		return Applied
	}
	switch r.Result.Status {
	case protocol.StatusStarted:
		return d.startedItem(it, item, r.PublishedAt)
	case protocol.StatusSucceeded:
		return d.succeedItem(k, it, item)
	case protocol.StatusFailed:
		d.failItem(it, item, workerError(r.Result.Error), r.Result.Final)
	case protocol.StatusRetry:
		d.postponeItem(it, item, r.Result)
	default:
		d.rejectItem(k, it, item, fmt.Sprintf("status %q", bounds.Cut(string(r.Result.Status), bounds.MaxCodeChars)))
	}
	return Applied
}

func (d *decider) startedItem(it *items, item int, published time.Time) Verdict {
	g := it.groups[it.find(item)]
	if g.phase == v1alpha1.StepRunning {
		return Duplicate
	}
	it.take(item)
	at := d.startedAt(published, g.dispatchedAt).Time
	g.phase, g.startedAt = v1alpha1.StepRunning, bounds.Micro(at.Add(startedTogether-1).Truncate(startedTogether))
	it.put(item, g)
	return Applied
}

// rejectItem counts an unusable result as a failed attempt of an item.
func (d *decider) rejectItem(k int, it *items, item int, why string) {
	d.out.rejectResult(k, why)
	d.deadLettered(fmt.Sprintf("result of step %s, item %d: %s", d.st.Steps[it.step].Name, item, why))
	d.failItem(it, item, v1alpha1.StepError{Code: CodeResultRejected, Message: why}, false)
}

// failItem ends an attempt of an item as failed: it backs off, or fails for good. Items that fail together for the same time are
// tried again together.
func (d *decider) failItem(it *items, item int, e v1alpha1.StepError, final bool) {
	step, s := &d.plan.Steps[it.step], &d.st.Steps[it.step]
	g := it.groups[it.find(item)]
	e.Code = normalCode(e.Code)
	g.failures = inc(g.failures)
	if final || isLast(step, e.Code, g.failures) || g.attempt == math.MaxInt32 {
		d.itemFailed(it, item, e)
		return
	}
	it.news.delayedBy = d.noteItemError(it, item, e)
	it.news.later.Add(item)
	at, known := it.waits[g.history()]
	if !known {
		id := status.JobID(d.run, s.Name, g.attempt)
		id.Item = fmt.Sprint(item)
		at = d.now.Add(backoff(step.Retry.Backoff, g.failures, id))
		it.waits[g.history()] = at
	}
	it.take(item)
	it.put(item, waiting(g, at))
}

// postponeItem honours a worker's wish to be asked later about an item.
func (d *decider) postponeItem(it *items, item int, r protocol.Result) {
	g := it.groups[it.find(item)]
	if r.Error != nil {
		it.news.delayedBy = d.noteItemError(it, item, workerError(r.Error))
	}
	wait := d.grant(r)
	it.news.later.Add(item)
	it.take(item)
	it.put(item, waiting(g, d.now.Add(wait)))
}

// waiting is a group as it waits for its next attempt.
func waiting(g itemGroup, until time.Time) itemGroup {
	return itemGroup{phase: v1alpha1.StepBackingOff, attempt: g.attempt, failures: g.failures, nextAttemptAt: bounds.Micro(until)}
}

// itemFailed ends an item as failed for good.
func (d *decider) itemFailed(it *items, item int, e v1alpha1.StepError) {
	it.take(item)
	it.st.Failed++
	it.failed.Add(item)
	d.listFailed(it)
	it.news.failed.Add(item)
	it.news.failedBy = d.noteItemError(it, item, e)
	if it.problem == nil && d.plan.Steps[it.step].ForEach.OnItemFailure != v1alpha1.Collect {
		it.problem = d.st.Steps[it.step].Error
	}
}

// noteItemError makes the error of an item that of its step, the last one stands, and puts it into words.
func (d *decider) noteItemError(it *items, item int, e v1alpha1.StepError) string {
	s := &d.st.Steps[it.step]
	e.Message = strings.TrimSuffix(fmt.Sprintf("item %d: %s", item, e.Message), ": ")
	d.setError(s, &e)
	return errorText(s.Error)
}

// settleItems tells what became of items, and ends their step if that is what follows.
func (d *decider) settleItems(it *items) {
	d.tellItems(it)
	switch {
	case it.problem != nil:
		reason := v1alpha1.ReasonStepFailed
		if it.problem.Code == CodeOutputTooLarge {
			reason = v1alpha1.ReasonOutputTooLarge
		}
		e := *it.problem
		d.dropItems(it.step)
		d.stepFailed(it.step, e, reason)
	case it.done():
		d.finishItems(it)
	}
}

// tellItems makes an event of what a decision did to many items.
func (d *decider) tellItems(it *items) {
	name := d.st.Steps[it.step].Name
	if n := it.news.later.Len(); n > 0 {
		d.event(EventWarning, "ItemsBackingOff", bounds.Cut(fmt.Sprintf("Step %s: items %s are tried again%s", name, it.news.later.String(), because(it.news.delayedBy)), bounds.MaxMessageChars))
	}
	if n := it.news.failed.Len(); n > 0 {
		d.event(EventWarning, "ItemsFailed", bounds.Cut(fmt.Sprintf("Step %s: items %s failed%s", name, it.news.failed.String(), because(it.news.failedBy)), bounds.MaxMessageChars))
	}
	it.news = itemNews{}
}

func because(last string) string {
	if last == "" {
		return ""
	}
	return "; " + last
}

// dropItems takes the items of a step that ends back: jobs in flight are withdrawn, outputs are left to be dropped.
func (d *decider) dropItems(i int) {
	it := d.items[i]
	if it == nil {
		return
	}
	for k := range it.groups {
		if status.InFlight(it.groups[k].phase) {
			d.withdrawItems(i, &it.groups[k])
		}
	}
	d.outputBytes -= len(it.held())
	it.st.Groups, it.st.Outputs, it.st.OutputRefs = nil, nil, nil
	d.items[i] = nil
}

func (d *decider) withdrawItems(i int, g *itemGroup) {
	for item := range g.set.All() {
		d.out.Withdraw = append(d.out.Withdraw, Withdrawal{
			ID: status.ItemJobID(d.run, d.st.Steps[i].Name, item, g.attempt), Topic: d.plan.Steps[i].Job.Topic,
		})
	}
}

// groupEnd is when the items of a group in flight time out; zero: they are not in flight.
func groupEnd(step *v1alpha1.Step, g *itemGroup) time.Time {
	return status.AttemptEnd(step, &v1alpha1.StepStatus{Phase: g.phase, DispatchedAt: g.dispatchedAt, StartedAt: g.startedAt})
}

// itemTimeouts ends attempts of items whose time is over.
func (d *decider) itemTimeouts() {
	for i, it := range d.items {
		if it == nil {
			continue
		}
		step := &d.plan.Steps[i]
		for _, g := range append([]itemGroup(nil), it.groups...) {
			if !d.timedOut(groupEnd(step, &g)) {
				continue
			}
			e := d.timeoutError(step, &v1alpha1.StepStatus{Phase: g.phase, DispatchedAt: g.dispatchedAt, StartedAt: g.startedAt})
			for item := range g.set.All() {
				if id := status.ItemJobID(d.run, d.st.Steps[i].Name, item, g.attempt); !d.answered(id) {
					d.out.Withdraw = append(d.out.Withdraw, Withdrawal{ID: id, Topic: step.Job.Topic})
					d.failItem(it, item, e, false)
				}
			}
		}
		d.settleItems(it)
	}
}
