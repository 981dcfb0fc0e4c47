// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// lacksNATS says whether an attempt is in flight while NATS does not answer: then neither its job
// nor its result gets through.
func (r *Report) lacksNATS() bool {
	return !r.in.NATSDown.IsZero() && r.inFlight()
}

// lacksRoom says whether there is no room in NATS for what the run is to store there, while it has
// something under way: jobs, or outputs.
func (r *Report) lacksRoom() bool {
	return !r.in.NoRoom.IsZero() && (r.found.OutputsLack || r.found.Assembling || r.inFlight())
}

// inFlight says whether an attempt is in flight, but for those whose answer is put aside.
func (r *Report) inFlight() bool {
	for i := range r.st.Steps {
		s := &r.st.Steps[i]
		if status.WithWorker(s) && s.DeadLetter == "" || slices.ContainsFunc(r.items[i].Groups(), unanswered) {
			return true
		}
	}
	return false
}

func unanswered(g fanout.Group) bool {
	return status.InFlight(g.Phase) && g.DeadLetter == "" && g.Set.Len() > 0
}

const (
	natsBegin = "NATS does not answer since "
	roomBegin = "NATS has no room since "
	// shareBegin and topicBegin are in place of roomBegin where others find room.
	shareBegin = "The share of NATS for jobs of one run or namespace is used up since "
	topicBegin = "NATS has no consumer for another topic since "
)

// roomBegins are the texts by which a run says what has no room.
func roomBegins() []string {
	return []string{facts.LackNATS: roomBegin, facts.LackShare: shareBegin, facts.LackTopic: topicBegin}
}

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

// NoRoomSaid is since when jobs or outputs of a run find no room in NATS, as it says, and what has
// none; zero: it does not say so.
func NoRoomSaid(run *v1alpha1.WorkflowRun) (since time.Time, lack facts.Lack) {
	if run.Status == nil {
		return time.Time{}, 0
	}
	c := status.Condition(run.Status, v1alpha1.ConditionSucceeded)
	if c == nil || !tellsOfRoom(c.Reason) {
		return time.Time{}, 0
	}
	for i, begin := range roomBegins() {
		if _, text, is := strings.Cut(c.Message, begin); is {
			if at, err := time.Parse(time.RFC3339, text[:min(len(text), len("2006-01-02T15:04:05Z"))]); err == nil {
				return at, facts.Lack(i)
			}
		}
	}
	return time.Time{}, 0
}

// tellsOfRoom says whether a condition with such a reason has a message that tells of room, if it
// is lacking.
func tellsOfRoom(reason string) bool {
	switch reason {
	case v1alpha1.ReasonWaitingForRoom, v1alpha1.ReasonSuspended, v1alpha1.ReasonFinalizing:
		return true
	default:
		return false
	}
}

// roomText keeps the moment that the condition tells, as natsText does, if that is of what has no
// room now.
func (r *Report) roomText() string {
	text := roomBegins()[r.in.Lack] + r.in.NoRoom.UTC().Format(time.RFC3339)
	switch r.in.Lack {
	case facts.LackShare:
		text += ": jobs wait until others are done"
	case facts.LackTopic:
		text += ": there are as many topics as may be (--nats-max-topics, or a limit of NATS), and its jobs wait until one is unused"
	case facts.LackNATS:
		text += ": jobs and outputs wait"
	}
	return cmp.Or(r.said(roomBegins()[r.in.Lack]), text)
}

// noRoomText is added to the words about an attempt that nobody answered while the run finds no
// room: which of its jobs did is not known here.
func noRoomText(in *facts.Input) string {
	if in.NoRoom.IsZero() {
		return ""
	}
	what := "NATS had no room for jobs or outputs of the run"
	switch in.Lack {
	case facts.LackShare:
		what = "the share of NATS for jobs of the run or its namespace was used up"
	case facts.LackTopic:
		what = "NATS had no consumer for a topic of the run"
	case facts.LackNATS:
	}
	return fmt.Sprintf("; since %s %s: the job may not have been published", in.NoRoom.UTC().Format(time.RFC3339), what)
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
		return stepText(s, holdersText(r, i)+r.childText(i)+r.placeText(i))
	})
}
