// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
)

// childText says why a child run was not created yet; "" if nothing is known to keep it.
func (r *Report) childText(i int) string {
	s := &r.st.Steps[i]
	if s.ChildRun == nil || s.ChildRun.UID != "" {
		return ""
	}
	if c := r.in.Children[s.ChildRun.Name]; c.State == facts.ChildPostponed {
		return ", which cannot be created now: " + bounds.Printable(c.Cause, bounds.MaxMessageChars/2)
	}
	return ""
}

// moreText is what is to be added to what a step under way does.
func (r *Report) moreText(i int) string {
	return holdersText(r, i) + r.workersText(i) + r.childText(i) + r.placeText(i)
}

// placeText says that a step which backs off finds no place for its next attempt.
func (r *Report) placeText(i int) string {
	if !r.lacksPlace(i) {
		return ""
	}
	return ", and for a place of maxParallelSteps"
}

// lacksPlace is of a step that gave its place up while it backs off, and of a run that has none.
func (r *Report) lacksPlace(i int) bool {
	s := &r.st.Steps[i]
	return s.Phase == v1alpha1.StepBackingOff && !dag.HasPlace(&r.plan.Steps[i], s) && r.plan.Active(r.st.Steps) >= dag.Parallel(r.run)
}

// waitsFor says what a run under way waits for: the reason and message of Succeeded=Unknown. The
// message names moments, never durations or the present, so that it changes only with a transition.
func (r *Report) waitsFor() (reason, message string) {
	if c := status.Condition(r.st, v1alpha1.ConditionAdmitted); status.Queued(r.run, r.st) && c != nil {
		return v1alpha1.ReasonQueued, bounds.Cut(c.Message, bounds.MaxMessageChars)
	}
	text := r.brokerText()
	if r.found.Assembling {
		text = "outputs of items wait to be read or stored; " + text
	}
	if r.found.OutputsLack {
		text = "its outputs wait to be read or stored; " + text
	}
	text = r.noteDeferred(text)
	e := r.st.Ending
	switch {
	case r.run.Spec.Suspend && e != nil:
		return v1alpha1.ReasonSuspended, bounds.Cut(fmt.Sprintf("suspended %s, so no finally step begins; the run ends as %s (%s) by %s; %s",
			suspensionOf(r.in).by, e.Phase, e.Reason, status.FinallyEnd(r.run, r.st).UTC().Format(time.RFC3339), text), bounds.MaxMessageChars)
	case r.run.Spec.Suspend:
		return v1alpha1.ReasonSuspended, bounds.Cut("suspended "+suspensionOf(r.in).by+"; "+text, bounds.MaxMessageChars)
	case e != nil:
		return v1alpha1.ReasonFinalizing, bounds.Cut(fmt.Sprintf("the finally steps run since %s, then the run ends as %s (%s); %s",
			e.AnnouncedAt.UTC().Format(time.RFC3339), e.Phase, e.Reason, text), bounds.MaxMessageChars)
	}
	return r.waitingReason(), text
}

// waitingReason is what steps wait for if nothing is with workers: what may take longest, and
// needs somebody, first.
func (r *Report) waitingReason() string {
	in := r.phases()
	switch outside, own, broker := waits.First(in, true), waits.First(in, false), r.brokerReason(); {
	case broker != "":
		return broker
	case in[v1alpha1.StepRunning] == 0 && r.lacksWorkers():
		return v1alpha1.ReasonWaitingForWorkers
	case in[v1alpha1.StepDispatched]+in[v1alpha1.StepRunning] > 0:
		return v1alpha1.ReasonRunning
	case outside != nil:
		return outside.Reason
	case in[v1alpha1.StepBackingOff] > 0:
		return v1alpha1.ReasonBackingOff
	case own != nil:
		return own.Reason
	default:
		return r.idleReason()
	}
}

// phases counts steps and items by phase, but for steps that wait for a place.
func (r *Report) phases() map[v1alpha1.StepPhase]int {
	in := map[v1alpha1.StepPhase]int{}
	for i := range r.st.Steps {
		if it := r.items[i]; it != nil {
			it.Phases(in)
		} else if !r.lacksPlace(i) {
			in[r.st.Steps[i].Phase]++
		}
	}
	return in
}

// lacksWorkers says whether an attempt waits whose topic has no workers that get on.
func (r *Report) lacksWorkers() bool {
	for i := range r.st.Steps {
		if r.workersText(i) != "" {
			return true
		}
	}
	return false
}

// workersText says what is wrong with the workers that a dispatched attempt waits for; "" if
// nothing is known to be. Moments only: how many jobs and workers there are is said by
// kubectl syncopate why.
func (r *Report) workersText(i int) string {
	job := r.plan.Steps[i].Job
	if job == nil || !WaitsForWorker(&r.st.Steps[i], r.items[i].Groups()) {
		return ""
	}
	w := r.in.Workers[job.Topic]
	if w.State == facts.WorkersUnknown {
		return r.saidOfWorkers(job.Topic)
	}
	since := w.Since.UTC().Format(time.RFC3339)
	switch w.State {
	case facts.WorkersAbsent:
		return absentText(job.Topic) + since
	case facts.WorkersStuck:
		return stuckText(job.Topic) + since
	case facts.WorkersFull:
		return fullText(job.Topic) + since
	case facts.WorkersBarred:
		return barredText(job.Topic) + since
	case facts.WorkersUnknown, facts.WorkersPull:
	}
	return ""
}

// saidOfWorkers is what the condition says of the workers of a topic: it stands while nothing is
// known of them, as after a restart.
func (r *Report) saidOfWorkers(topic string) string {
	return cmp.Or(r.said(absentText(topic)), r.said(stuckText(topic)), r.said(fullText(topic)), r.said(barredText(topic)))
}

// said is the part of the persisted message of Succeeded that begins with a text; "" if
// there is none.
func (r *Report) said(begin string) string {
	message := saidBefore(r.run)
	at := strings.Index(message, begin)
	if at < 0 {
		return ""
	}
	text, _, _ := strings.Cut(message[at:], ";")
	return text
}

// saidOf is what follows words in the persisted message of Succeeded, in what it says of the step
// that begins so; "" if there is nothing.
func (r *Report) saidOf(begin, words string) string {
	_, text, _ := strings.Cut(saidBefore(r.run), partSeparator+begin)
	text, _, _ = strings.Cut(text, ";")
	_, text, _ = strings.Cut(text, words)
	return text
}

// saidBefore is the persisted message of Succeeded; "" if there is none.
func saidBefore(run *v1alpha1.WorkflowRun) string {
	if run.Status == nil {
		return ""
	}
	c := status.Condition(run.Status, v1alpha1.ConditionSucceeded)
	if c == nil {
		return ""
	}
	return c.Message
}

// barredText is of a topic that workers cannot have jobs of, though they may be there.
func barredText(topic string) string {
	return ": topic " + topic + " has no consumer in NATS, without which workers get no jobs of it, since "
}

func absentText(topic string) string { return ": nobody pulls jobs of topic " + topic + " since " }

const stuckWords = " get nothing done since "

func stuckText(topic string) string { return ": the workers of topic " + topic + stuckWords }

// fullText names the flag: how many jobs that are stands there, and in the topic's consumer.
func fullText(topic string) string {
	return ": as many jobs of topic " + topic + " are with workers as may be (--nats-max-ack-pending) since "
}

// WaitsForWorker says whether no worker began the attempt of a step, or one of an item
// in its groups.
func WaitsForWorker(s *v1alpha1.StepStatus, groups []fanout.Group) bool {
	for k := range groups {
		if g := &groups[k]; g.Phase == v1alpha1.StepDispatched && g.DeadLetter == "" && g.Set.Len() > 0 {
			return true
		}
	}
	return s.Phase == v1alpha1.StepDispatched && s.DeadLetter == ""
}
