// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// lacksNATS says whether an attempt is in flight while NATS does not answer: then neither its job
// nor its result gets through.
func (r *Report) lacksNATS() bool {
	return !r.in.NATSDown.IsZero() && r.inFlight()
}

// lacksRoom says whether NATS has no room for what the run is to store there, while it has
// something under way: jobs, or outputs.
func (r *Report) lacksRoom() bool {
	return !r.in.NoRoom.IsZero() && (r.found.OutputsLack || r.found.Assembling || r.inFlight())
}

// inFlight says whether an attempt is in flight.
func (r *Report) inFlight() bool {
	in := map[v1alpha1.StepPhase]int{}
	for i := range r.st.Steps {
		s := &r.st.Steps[i]
		if status.WithWorker(s) && s.DeadLetter == "" {
			in[s.Phase]++
		}
		if r.items[i] != nil {
			r.items[i].Phases(in)
		}
	}
	return in[v1alpha1.StepDispatched]+in[v1alpha1.StepRunning] > 0
}

const (
	natsBegin = "NATS does not answer since "
	roomBegin = "NATS has no room since "
	// shareBegin is in place of roomBegin where others find room.
	shareBegin = "The share of NATS for jobs of one run or namespace is used up since "
)

// brokerReason is the reason of a run that NATS holds up; "": it does not. An outage goes first:
// nothing is known of room then.
func (r *Report) brokerReason() string {
	switch {
	case r.lacksNATS():
		return v1alpha1.ReasonWaitingForNATS
	case r.lacksRoom():
		return v1alpha1.ReasonWaitingForRoom
	default:
		return ""
	}
}

// brokerText tells how far the steps are, and before that what NATS holds up.
func (r *Report) brokerText() string {
	text := stateText(r.st.Steps, r.moreText)
	switch r.brokerReason() {
	case v1alpha1.ReasonWaitingForNATS:
		return r.natsText() + "; " + r.outageText()
	case v1alpha1.ReasonWaitingForRoom:
		return r.roomText() + "; " + text
	default:
		return text
	}
}

// NoRoomSaid is since when NATS has no room, as a run says, and whether only its share of
// it has none;
// zero: it does not say so.
func NoRoomSaid(run *v1alpha1.WorkflowRun) (since time.Time, share bool) {
	if run.Status == nil {
		return time.Time{}, false
	}
	c := status.Condition(run.Status, v1alpha1.ConditionSucceeded)
	if c == nil || c.Reason != v1alpha1.ReasonWaitingForRoom {
		return time.Time{}, false
	}
	_, text, is := strings.Cut(c.Message, roomBegin)
	if !is {
		_, text, share = strings.Cut(c.Message, shareBegin)
	}
	at, err := time.Parse(time.RFC3339, text[:min(len(text), len("2006-01-02T15:04:05Z"))])
	if err != nil {
		return time.Time{}, false
	}
	return at, share
}

// roomText keeps the moment that the condition tells, as natsText does, and what had no room then:
// both may change from one try to the next.
func (r *Report) roomText() string {
	since := r.in.NoRoom.UTC().Format(time.RFC3339)
	text := roomBegin + since + ": jobs and outputs wait"
	if r.in.NoShare {
		text = shareBegin + since + ": jobs wait until others are done"
	}
	return cmp.Or(r.said(roomBegin), r.said(shareBegin), text)
}

// natsText keeps the moment that the condition tells: another process, say after a restart, noticed
// the outage later.
func (r *Report) natsText() string {
	return cmp.Or(r.said(natsBegin), natsBegin+r.in.NATSDown.UTC().Format(time.RFC3339)+": no job goes out and no result comes in")
}

// outageText is stateText while NATS does not answer: whether a worker has a job, or is done with
// it, is not known.
func (r *Report) outageText() string {
	return stepsText(r.st.Steps, func(i int) string {
		s := &r.st.Steps[i]
		if status.WithWorker(s) && s.DeadLetter == "" {
			return fmt.Sprintf("%s was dispatched at %s (attempt %d)", s.Name, bounds.TimeText(s.DispatchedAt), s.Attempt)
		}
		return stepText(s, r.childText(i)+r.placeText(i))
	})
}
