// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Job is an attempt whose answer a run waits for, or a step with items, whose attempts are not told
// of one by one.
type Job struct {
	Step    string
	Topic   string
	Attempt int32 // 0: a step with items
	Started bool  // a worker said so, or some of the items began
}

// Jobs are those that a run under way waits for, in the order of its steps.
func Jobs(run *v1alpha1.WorkflowRun) []Job {
	if statusOf(run).CompletedAt != nil {
		return nil
	}
	var jobs []Job
	for _, s := range stepsOf(run) {
		if s.status.ChildRun != nil || (s.status.Phase != v1alpha1.StepDispatched && s.status.Phase != v1alpha1.StepRunning) {
			continue
		}
		j := Job{Step: s.spec.Name, Topic: s.topic(), Attempt: s.status.Attempt, Started: s.status.Phase == v1alpha1.StepRunning}
		if s.items() != nil {
			j.Attempt = 0
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// JobSight is what NATS tells of the job of an attempt, and of all jobs of its topic.
type JobSight struct {
	Stored                          bool
	Queued, Unanswered, Again, Span int
}

// text is how often a job was delivered, as far as that is known; "": nothing is.
func (s JobSight) text() string {
	switch {
	case !s.Stored:
		return ""
	case s.Unanswered == 0:
		return "its job was not delivered to any yet"
	case s.Queued == 0 && s.Unanswered == 1:
		return "its job was delivered " + s.often() + " and not answered"
	}
	jobs := fmt.Sprintf("%d delivered and not answered (%d more than once)", s.Unanswered, s.Again)
	if s.Queued == 0 {
		return "its job was delivered and not answered; jobs of the topic: " + jobs
	}
	return fmt.Sprintf("whether its job was delivered is not known; jobs of the topic: %d not delivered, %s", s.Queued, jobs)
}

// often is for the only job of a topic that is not answered: all deliveries since others were,
// unless some of these came in between.
func (s JobSight) often() string {
	switch {
	case s.Again == 0:
		return "once"
	case s.Span <= 2:
		return "twice"
	default:
		return fmt.Sprintf("2 to %d times", s.Span)
	}
}

// delivered says whether a job was given to a worker for certain.
func (s JobSight) delivered() bool { return s.Stored && s.Queued == 0 && s.Unanswered > 0 }

// Delivered adds what NATS tells of a job that no worker said to have begun.
func (a *Answer) Delivered(j Job, s JobSight) {
	i := slices.IndexFunc(a.Facts, func(f Fact) bool { return f.About == "step "+j.Step })
	if i < 0 || s.text() == "" || a.Reason == v1alpha1.ReasonWaitingForNATS {
		return
	}
	f := &a.Facts[i]
	if s.delivered() {
		f.Text = fmt.Sprintf("waits for an answer from topic %s (attempt %d)", j.Topic, j.Attempt)
	}
	f.Text = Printable(f.Text+"; "+s.text(), maxTextChars)
	if s.delivered() && a.Summary == "waits for workers: "+j.Step {
		a.Summary = "waits for an answer: " + j.Step
	}
}

// gone is what it means that a job is not in the stream of jobs: answers are in another one, and
// whether the run's is there is not looked up.
const gone = "its job is not in the stream of jobs: it was answered and the operator has not taken that yet, or a worker acknowledged it without an " +
	"answer, or it is lost; a job of which there is no answer in NATS is published again once, within 15 min, by an operator that runs"

// Missing adds that NATS does not have the job of an attempt, unless the attempt is as good as new,
// the job may not have been published yet, or one of the dead letters may be its answer.
func (a *Answer) Missing(j Job, letters []PutAside, now time.Time) {
	if a.Reason == v1alpha1.ReasonWaitingForNATS || a.Reason == v1alpha1.ReasonWaitingForRoom {
		return
	}
	i := slices.IndexFunc(a.Facts, func(f Fact) bool { return f.About == "step "+j.Step })
	answered := slices.ContainsFunc(letters, func(p PutAside) bool { return p.about(j) })
	if i < 0 || answered || a.Facts[i].Since == nil || now.Sub(*a.Facts[i].Since) <= patience {
		return
	}
	a.Facts[i].Text = Printable(a.Facts[i].Text+"; "+gone, maxTextChars)
}

// PutAside is a dead letter that is an answer to a step.
type PutAside struct {
	Sequence uint64
	StoredAt time.Time
	Step     string
	Item     string // "-": of no item
	Attempt  int32
	Reason   string
	Cause    string
}

// about says whether a letter may be what a job waits for: its own attempt's answer, or that of an
// attempt that is not there.
func (p PutAside) about(j Job) bool {
	return p.Step == j.Step && (j.Attempt == 0 || p.Attempt >= j.Attempt)
}

// Aside adds the dead letters that answer what the run waits for, the newest of each step. letters
// are in the order in which they were put aside.
func (a *Answer) Aside(jobs []Job, letters []PutAside) {
	for _, j := range jobs {
		var of []PutAside
		for _, p := range letters {
			if p.about(j) {
				of = append(of, p)
			}
		}
		if len(of) > 0 {
			a.beforeHelp(of[len(of)-1].fact(len(of) - 1))
		}
	}
}

func (p PutAside) fact(older int) Fact {
	attempt := fmt.Sprintf("attempt %d", p.Attempt)
	if p.Item != "-" {
		attempt = fmt.Sprintf("item %s (attempt %d)", p.Item, p.Attempt)
	}
	text := fmt.Sprintf("an answer of %s was put aside: dead letter %d, %s", attempt, p.Sequence, join(p.Reason, strings.Join(strings.Fields(p.Cause), " ")))
	if older > 0 {
		text += fmt.Sprintf(" (and %d older)", older)
	}
	return Fact{About: "step " + p.Step, Text: Printable(text, maxTextChars), Since: &p.StoredAt}
}

// beforeHelp adds a fact ahead of the advice.
func (a *Answer) beforeHelp(f Fact) {
	at := slices.IndexFunc(a.Facts, func(f Fact) bool { return f.About == "help" })
	if at < 0 {
		at = len(a.Facts)
	}
	a.Facts = slices.Insert(a.Facts, at, f)
}
