package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// waitsFor says what a run under way waits for: the reason and message of Succeeded=Unknown. The message names moments, never
// durations or the present, so that it changes only with a transition.
func (d *decider) waitsFor() (reason, message string) {
	if c := status.Condition(&d.st, v1alpha1.ConditionAdmitted); d.queued() && c != nil {
		return v1alpha1.ReasonQueued, bounds.Cut(c.Message, bounds.MaxMessageChars)
	}
	text := stateText(d.st.Steps, d.moreText)
	if d.lacksNATS() {
		text = d.natsText() + "; " + d.outageText()
	}
	if d.assembling {
		text = "outputs of items wait to be read or stored; " + text
	}
	if d.outputsLack {
		text = "its outputs wait to be read or stored; " + text
	}
	text = d.noteDeferred(text)
	e := d.st.Ending
	switch {
	case d.run.Spec.Suspend && e != nil:
		return v1alpha1.ReasonSuspended, bounds.Cut(fmt.Sprintf("suspended %s, so no finally step begins; the run ends as %s (%s) by %s; %s",
			d.suspension().by, e.Phase, e.Reason, status.FinallyEnd(d.run, &d.st).UTC().Format(time.RFC3339), text), bounds.MaxMessageChars)
	case d.run.Spec.Suspend:
		return v1alpha1.ReasonSuspended, bounds.Cut("suspended "+d.suspension().by+"; "+text, bounds.MaxMessageChars)
	case e != nil:
		return v1alpha1.ReasonFinalizing, bounds.Cut(fmt.Sprintf("the finally steps run since %s, then the run ends as %s (%s); %s",
			e.AnnouncedAt.UTC().Format(time.RFC3339), e.Phase, e.Reason, text), bounds.MaxMessageChars)
	}
	return d.waitingReason(), text
}

// waitingReason is what steps wait for if nothing is with workers: what may take longest, and needs somebody, first.
func (d *decider) waitingReason() string {
	in := map[v1alpha1.StepPhase]int{}
	for i := range d.st.Steps {
		if it := d.items[i]; it != nil {
			it.phases(in)
			continue
		}
		in[d.st.Steps[i].Phase]++
	}
	switch {
	case d.lacksNATS():
		return v1alpha1.ReasonWaitingForNATS
	case in[v1alpha1.StepRunning] == 0 && d.lacksWorkers():
		return v1alpha1.ReasonWaitingForWorkers
	case in[v1alpha1.StepDispatched]+in[v1alpha1.StepRunning] > 0:
		return v1alpha1.ReasonRunning
	case in[v1alpha1.StepWaiting] > 0:
		return v1alpha1.ReasonWaitingForApproval
	case in[v1alpha1.StepBackingOff] > 0:
		return v1alpha1.ReasonBackingOff
	case in[v1alpha1.StepDelayed] > 0:
		return v1alpha1.ReasonDelayed
	default:
		return v1alpha1.ReasonRunning
	}
}

// lacksWorkers says whether an attempt waits whose topic has no workers that get on.
func (d *decider) lacksWorkers() bool {
	for i := range d.st.Steps {
		if d.workersText(i) != "" {
			return true
		}
	}
	return false
}

// workersText says what is wrong with the workers that a dispatched attempt waits for; "" if nothing is known to be. Moments only:
// how many jobs and workers there are is said by kubectl syncopate why.
func (d *decider) workersText(i int) string {
	job := d.plan.Steps[i].Job
	if job == nil || !waitsForWorker(&d.st.Steps[i], d.items[i]) {
		return ""
	}
	w := d.in.Workers[job.Topic]
	if w.State == WorkersUnknown {
		return d.saidOfWorkers(job.Topic)
	}
	since := w.Since.UTC().Format(time.RFC3339)
	switch w.State {
	case WorkersAbsent:
		return absentText(job.Topic) + since
	case WorkersStuck:
		return stuckText(job.Topic) + since
	case WorkersUnknown, WorkersPull:
	}
	return ""
}

// saidOfWorkers is what the condition says of the workers of a topic: it stands while nothing is known of them, as after a restart.
func (d *decider) saidOfWorkers(topic string) string {
	return cmp.Or(d.said(absentText(topic)), d.said(stuckText(topic)))
}

// said is the part of the persisted message of Succeeded that begins with a text; "" if there is none.
func (d *decider) said(begin string) string {
	if d.run.Status == nil {
		return ""
	}
	c := status.Condition(d.run.Status, v1alpha1.ConditionSucceeded)
	if c == nil {
		return ""
	}
	at := strings.Index(c.Message, begin)
	if at < 0 {
		return ""
	}
	text, _, _ := strings.Cut(c.Message[at:], ";")
	return text
}

// lacksNATS says whether an attempt is in flight while NATS does not answer: then neither its job nor its result gets through.
func (d *decider) lacksNATS() bool {
	if d.in.NATSDown.IsZero() {
		return false
	}
	in := map[v1alpha1.StepPhase]int{}
	for i := range d.st.Steps {
		s := &d.st.Steps[i]
		if status.WithWorker(s) && s.DeadLetter == "" {
			in[s.Phase]++
		}
		if d.items[i] != nil {
			d.items[i].phases(in)
		}
	}
	return in[v1alpha1.StepDispatched]+in[v1alpha1.StepRunning] > 0
}

const natsBegin = "NATS does not answer since "

// natsText keeps the moment that the condition tells: another process, say after a restart, noticed the outage later.
func (d *decider) natsText() string {
	return cmp.Or(d.said(natsBegin), natsBegin+d.in.NATSDown.UTC().Format(time.RFC3339)+": no job goes out and no result comes in")
}

func absentText(topic string) string { return ": nobody pulls jobs of topic " + topic + " since " }

const stuckWords = " get nothing done since "

func stuckText(topic string) string { return ": the workers of topic " + topic + stuckWords }

func nothingMore(int) string { return "" }

// waitsForWorker says whether nobody began the attempt of a step, or one of an item.
func waitsForWorker(s *v1alpha1.StepStatus, it *items) bool {
	if it == nil || status.Ended(s.Phase) {
		return s.Phase == v1alpha1.StepDispatched && s.DeadLetter == ""
	}
	in := map[v1alpha1.StepPhase]int{}
	it.phases(in)
	return in[v1alpha1.StepDispatched] > 0
}

// WaitedFor names the topics of attempts that no worker has begun, each once.
func WaitedFor(run *v1alpha1.WorkflowRun) []string {
	if run == nil || run.Status == nil || Finished(run) {
		return nil
	}
	steps := dag.Steps(run)
	if !status.Aligned(steps, run.Status.Steps) {
		return nil
	}
	var topics []string
	for i := range steps {
		s := &run.Status.Steps[i]
		var it *items
		if status.IsForEach(s) {
			it = &items{groups: groupsOf(s.ForEach)}
		}
		if job := steps[i].Job; job != nil && waitsForWorker(s, it) && !slices.Contains(topics, job.Topic) {
			topics = append(topics, job.Topic)
		}
	}
	return topics
}

// stateText tells how far the steps are and what the unfinished ones that began wait for; more adds to what a dispatched one does.
func stateText(steps []v1alpha1.StepStatus, more func(int) string) string {
	return stepsText(steps, func(i int) string { return stepText(&steps[i], more(i)) })
}

// outageText is stateText while NATS does not answer: whether a worker has a job, or is done with it, is not known.
func (d *decider) outageText() string {
	return stepsText(d.st.Steps, func(i int) string {
		s := &d.st.Steps[i]
		if status.WithWorker(s) && s.DeadLetter == "" {
			return fmt.Sprintf("%s was dispatched at %s (attempt %d)", s.Name, timeText(s.DispatchedAt), s.Attempt)
		}
		return stepText(s, d.childText(i))
	})
}

func stepsText(steps []v1alpha1.StepStatus, text func(int) string) string {
	l := newList(fmt.Sprintf("%s steps finished", strings.Replace(progress(steps, len(steps)), "/", " of ", 1)))
	for i := range steps {
		if t := text(i); t != "" {
			l.add(t)
		}
	}
	return l.text(bounds.MaxMessageChars)
}

// stepText is what a step that began waits for; "" of one that did not, or is over.
func stepText(s *v1alpha1.StepStatus, more string) string {
	switch s.Phase {
	case v1alpha1.StepRunning:
		switch {
		case s.ChildRun != nil:
			return fmt.Sprintf("%s runs as child run %s since %s%s", s.Name, s.ChildRun.Name, timeText(s.StartedAt), more)
		case status.IsForEach(s):
			return itemsText(s) + more
		}
		return fmt.Sprintf("%s runs since %s (attempt %d)%s", s.Name, timeText(s.StartedAt), s.Attempt, asideText(s))
	case v1alpha1.StepDispatched:
		if strings.Contains(more, stuckWords) { // a worker may have it, and be one of them
			return fmt.Sprintf("%s was dispatched at %s (attempt %d)%s", s.Name, timeText(s.DispatchedAt), s.Attempt, more)
		}
		return fmt.Sprintf("%s waits for a worker since %s (attempt %d)%s%s", s.Name, timeText(s.DispatchedAt), s.Attempt, asideText(s), more)
	case v1alpha1.StepPending, v1alpha1.StepSucceeded, v1alpha1.StepFailed, v1alpha1.StepSkipped, v1alpha1.StepCancelled:
	case v1alpha1.StepWaiting:
		return fmt.Sprintf("%s waits for an approval since %s", s.Name, timeText(s.StartedAt))
	case v1alpha1.StepDelayed:
		return fmt.Sprintf("%s is delayed until %s", s.Name, timeText(s.DelayedUntil))
	case v1alpha1.StepBackingOff:
		return fmt.Sprintf("%s waits for its next attempt at %s (attempt %d: %s)", s.Name, timeText(s.NextAttemptAt), s.Attempt, errorText(s.Error))
	}
	return ""
}

// asideText says that nobody works at an attempt in flight any more.
func asideText(s *v1alpha1.StepStatus) string {
	if s.DeadLetter == "" {
		return ""
	}
	return ": its answer is a dead letter"
}

// itemsText tells how far the items of a step are.
func itemsText(s *v1alpha1.StepStatus) string {
	f := s.ForEach
	text := fmt.Sprintf("%s runs since %s: %d of %d items are over", s.Name, timeText(s.StartedAt), f.Succeeded+f.Failed, f.Total)
	if f.Failed > 0 {
		text += fmt.Sprintf(" (%d failed)", f.Failed)
	}
	return text
}

func problemsText(problems []string) string {
	l := newList("")
	for _, p := range problems {
		l.add(bounds.Cut(p, bounds.MaxMessageChars))
	}
	return l.text(bounds.MaxProblemsChars)
}

// successText counts the steps that decide about success; those of spec.finally are named apart, since status.progress counts them, too.
func successText(steps []v1alpha1.StepStatus, finally int) string {
	skipped, failed := 0, 0
	for i := range steps {
		switch steps[i].Phase {
		case v1alpha1.StepSkipped:
			skipped++
		case v1alpha1.StepFailed:
			failed++
		default:
		}
	}
	text := fmt.Sprintf("%d of %d steps succeeded", len(steps)-skipped-failed, len(steps))
	if skipped > 0 {
		text += fmt.Sprintf(", %d skipped", skipped)
	}
	if failed > 0 {
		text += fmt.Sprintf(", %d failed with onFailure Continue", failed)
	}
	if finally > 0 {
		text += fmt.Sprintf(" (beside them %d of spec.finally)", finally)
	}
	return text
}

func failureText(s *v1alpha1.StepStatus) string {
	if s.Attempt == 0 { // it failed before it was dispatched
		return bounds.Cut(fmt.Sprintf("step %s failed: %s", s.Name, errorText(s.Error)), bounds.MaxMessageChars)
	}
	return bounds.Cut(fmt.Sprintf("step %s failed: %s (attempt %d, failures %d)", s.Name, errorText(s.Error), s.Attempt, s.Failures), bounds.MaxMessageChars)
}

func errorText(e *v1alpha1.StepError) string {
	switch {
	case e == nil:
		return "not an error"
	case e.Message == "":
		return e.Code
	default:
		return e.Code + ": " + bounds.Cut(e.Message, bounds.MaxMessageChars/2)
	}
}

// progress is "finished/all"; skipped steps count as finished, cancelled ones do not.
func progress(steps []v1alpha1.StepStatus, all int) string {
	finished := 0
	for i := range steps {
		if status.Passed(steps[i].Phase) || steps[i].Phase == v1alpha1.StepFailed {
			finished++
		}
	}
	return strconv.Itoa(finished) + "/" + strconv.Itoa(all)
}

// list is "head; a; b; and N more" within a bound.
type list struct{ parts []string }

func newList(head string) *list {
	if head == "" {
		return &list{}
	}
	return &list{parts: []string{head}}
}

func (l *list) add(part string) { l.parts = append(l.parts, part) }

// text joins what fits in limit characters and counts the rest. The first part always stands.
func (l *list) text(limit int) string {
	const reserve = len("; and 200 more")
	var b strings.Builder
	for i, part := range l.parts {
		if i > 0 && b.Len()+len(part)+reserve > limit {
			fmt.Fprintf(&b, "; and %d more", len(l.parts)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(part)
	}
	return bounds.Cut(b.String(), limit)
}
