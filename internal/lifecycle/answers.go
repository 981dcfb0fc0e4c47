package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// answerPatience bounds how long a time-out waits for answers that cannot be had.
const answerPatience = time.Minute

// Answers is what the shell found out about results that the stream has stored and that need not have
// been delivered: they lie undelivered after a change of leader, or were given back with a delay.
type Answers struct {
	// AsOf: every result of the run that was stored until then is among Input.Results, unless it is
	// settled. Zero: nobody asked.
	AsOf time.Time
	// MissingSince is since when answers cannot be had in full: the stream, or the object store with
	// the output of one, cannot be asked. Zero: they can, as far as is known.
	MissingSince time.Time
	Cause        string // why they cannot be had
}

// patienceEnd is until when time-outs wait for answers; zero: there is no telling.
func (a *Answers) patienceEnd() time.Time {
	if a.MissingSince.IsZero() {
		return time.Time{}
	}
	return a.MissingSince.Add(answerPatience)
}

// givenUp says whether answers could not be had for so long that time-outs do without.
func (a *Answers) givenUp(now time.Time) bool {
	end := a.patienceEnd()
	return !end.IsZero() && !now.Before(end)
}

// timedOut says whether a time-out of attempts in flight is to be decided now. One that is due waits
// until the stream was asked for what it had stored by then: an answer that is there is no time-out.
func (d *decider) timedOut(at time.Time) bool {
	switch a := &d.in.Answers; {
	case at.IsZero() || d.now.Before(at):
		return false
	case !at.After(a.AsOf) || a.givenUp(d.now):
		return true
	default:
		d.out.Needs.Answers, d.deferred = true, true
		return false
	}
}

// runTimedOut is timedOut for a deadline of the run, which ends all attempts. While it waits nothing
// begins.
func (d *decider) runTimedOut(at time.Time) bool {
	switch {
	case at.IsZero() || d.now.Before(at):
		return false
	case len(d.unsettled) > 0 && !d.in.Answers.givenUp(d.now):
		d.deferred = true
	case !d.anyWithWorker() || d.timedOut(at):
		return true
	}
	d.outOfTime = true
	return false
}

// answered says whether an attempt whose time is over has an answer at hand that cannot be applied
// yet, because its output waits for the object store: so that it does not time out.
func (d *decider) answered(id protocol.JobID) bool {
	if !d.unsettled[id] || d.in.Answers.givenUp(d.now) {
		return false
	}
	d.deferred = true
	return true
}

// noteUnsettled remembers which attempts have answers at hand that could not be applied.
func (d *decider) noteUnsettled() {
	for k, v := range d.out.Verdicts {
		if v != Waiting {
			continue
		}
		if d.unsettled == nil {
			d.unsettled = map[protocol.JobID]bool{}
		}
		d.unsettled[d.in.Results[k].ID] = true
	}
}

// anyWithWorker says whether an attempt is in flight.
func (d *decider) anyWithWorker() bool {
	for i := range d.st.Steps {
		if status.WithWorker(&d.st.Steps[i]) {
			return true
		}
		if it := d.items[i]; it != nil && it.anyInFlight() {
			return true
		}
	}
	return false
}

func (it *items) anyInFlight() bool {
	for k := range it.groups {
		if g := &it.groups[k]; status.InFlight(g.phase) && g.set.Len() > 0 {
			return true
		}
	}
	return false
}

// missingText says why answers cannot be had; "" if they can. It is the same for as long as that
// lasts.
func (d *decider) missingText() string {
	a := &d.in.Answers
	if a.MissingSince.IsZero() {
		return ""
	}
	return fmt.Sprintf("whether workers answered in time cannot be found out since %s: %s",
		a.MissingSince.UTC().Format(time.RFC3339), bounds.Cut(bounds.Printable(a.Cause), bounds.MaxMessageChars/4))
}

// deferredText says that a time-out waits for answers that cannot be had; "" if none does.
func (d *decider) deferredText() string {
	missing := d.missingText()
	if !d.deferred || missing == "" {
		return ""
	}
	return fmt.Sprintf("time-outs wait until %s at most, because %s; ", d.in.Answers.patienceEnd().UTC().Format(time.RFC3339), missing)
}

// unheardText is added to the words about a time-out that was decided without that knowledge.
func (d *decider) unheardText() string {
	if missing := d.missingText(); missing != "" && d.in.Answers.givenUp(d.now) {
		return "; " + missing
	}
	return ""
}

// noteDeferred puts before the words about a run that a time-out waits, and tells it once.
func (d *decider) noteDeferred(text string) string {
	waits := d.deferredText()
	if waits == "" {
		return text
	}
	c := status.Condition(&d.st, v1alpha1.ConditionSucceeded)
	if c == nil || !strings.Contains(c.Message, d.missingText()) {
		d.event(EventWarning, "TimeoutWaits", strings.TrimSuffix(waits, "; "))
	}
	return bounds.Cut(waits+text, bounds.MaxMessageChars)
}

// noneYet collects the moments for a wake. What is due and waits for answers is none: the shell comes
// again when it may have them.
func (d *decider) noneYet() earliest {
	e := earliest{}
	if d.deferred {
		e.beyond = d.now
		e.add(d.in.Answers.patienceEnd())
	}
	return e
}
