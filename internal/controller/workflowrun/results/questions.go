// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Outcomes of a question to the stream of results, for the metric.
const (
	askedNone   = "none"   // it has no result of the run that is not settled
	askedFound  = "found"  // these are all
	askedPartly = "partly" // there are more than are read at a time
	askedFailed = "failed" // it could not be asked
)

const (
	// forgedPause is the wait before the next question after one that found nothing but forged
	// results: whoever floods them must not keep the operator busy with reading.
	forgedPause = 200 * time.Millisecond
	// askRetry is the wait before the next question after one that failed, if the error does not
	// ask for another.
	askRetry = time.Second
)

// answers reads results of a run that are stored and not settled; *busresults.Reader does.
type answers interface {
	Answers(ctx context.Context, runUID string, from uint64) (busresults.AnswerPage, error)
}

// Stream asks the stream for results of runs.
type Stream struct {
	Answers answers
	Clock   clock.PassiveClock
	Asked   *prometheus.CounterVec
}

// AskState is what a process remembers of its questions about the results of a run.
type AskState struct {
	// since is since when answers cannot be had in full while a time-out waits for them, and cause
	// why, in the words of the first time; zero: they can.
	since time.Time
	cause string
	// next is when the stream is asked again after that.
	next time.Time
	// failures is how often in a row the API server refused what was found.
	failures int
	// from is the sequence from which the next question goes on: what was before it is in status.
	// 0: from the first. It holds for as long as NATS has lost data so many times.
	from   uint64
	losses uint64
	// stuck is the sequence up to which pages were read whose answers cannot all be in status yet.
	// It holds for as long as from does.
	stuck uint64
}

// missing notes that answers cannot be had in full before a time; it says whether that is news.
func (a *AskState) missing(now, next time.Time, cause string) (first bool) {
	first = a.since.IsZero()
	if first {
		a.since, a.cause = now, cause
	}
	a.next = next
	return first
}

// Questions are those of one pass over a run.
type Questions struct {
	*AskState
	stream *Stream
	losses uint64    // how often NATS had lost data when the pass began
	from   uint64    // from where on the stream is asked next; 0: it was not asked in this pass
	more   bool      // there was more than is read at a time
	until  time.Time // what was stored until then was found in this pass, or had come; zero: that is not known
	// RetryAt is when the stream is asked again; zero: nothing is to be asked.
	RetryAt time.Time
}

// Questions begins a pass over a run.
func (s *Stream) Questions(st *AskState, losses uint64) *Questions {
	return &Questions{AskState: st, stream: s, losses: losses}
}

// Answers is what the core is told of them.
func (q *Questions) Answers() lifecycle.Answers {
	return lifecycle.Answers{AsOf: q.until, MissingSince: q.AskState.since, Cause: q.AskState.cause}
}

// Ask asks the stream for results of the run, because a time-out is due. What it finds counts in
// this pass like a result that was delivered; its delivery, which comes as well, is a duplicate
// then. It says whether another decision has more to decide on.
func (q *Questions) Ask(ctx context.Context, run types.UID, batch *Batch) bool {
	now := q.stream.Clock.Now()
	if q.more || q.tooEarly(now) {
		q.RetryAt = pacing.Earliest(q.RetryAt, q.next)
		return false
	}
	if q.AskState.losses != q.losses {
		q.AskState.from, q.AskState.stuck, q.AskState.losses = 0, 0, q.losses
	}
	if q.from == 0 {
		q.from = q.AskState.from
	}
	page, err := q.stream.Answers.Answers(ctx, string(run), q.from)
	if err != nil {
		wait := RetryDelay(err, askRetry)
		q.stream.Asked.WithLabelValues(askedFailed).Inc()
		log.FromContext(ctx).Info("Time-outs wait: the stream of results cannot be asked", "delay", wait, "cause", err.Error())
		return q.Missing(wait, err.Error())
	}
	q.from, q.more = page.Next, page.More
	q.count(page)
	batch.addFound(page.Answers, now)
	q.heardSome(page, now)
	if !page.More {
		q.until = now
		return true
	}
	wait := time.Duration(0) // what was found is written first
	if len(page.Answers) == 0 {
		wait = forgedPause
	}
	return q.Missing(wait, "there are more results than are read at a time") || len(page.Answers) > 0
}

// tooEarly says whether the stream is asked later. Before answers are given up it is
// asked once more.
func (q *Questions) tooEarly(now time.Time) bool {
	known := q.Answers()
	return now.Before(q.next) && !known.GivenUp(now)
}

// heardSome begins the patience anew where NATS has more answers than it gave: what comes after
// these is not given up. A page that did not get into status before is no news, say because an
// answer in it waits for the object store: the stream gives it each time.
func (q *Questions) heardSome(page busresults.AnswerPage, now time.Time) {
	if page.More && len(page.Answers) > 0 && page.Next > q.stuck && !q.since.IsZero() {
		q.since = now
	}
}

func (q *Questions) count(page busresults.AnswerPage) {
	outcome := askedNone
	switch {
	case page.More:
		outcome = askedPartly
	case len(page.Answers) > 0:
		outcome = askedFound
	}
	q.stream.Asked.WithLabelValues(outcome).Inc()
}

// Missing has the stream asked again after a wait, and says whether the core is to be told.
func (q *Questions) Missing(wait time.Duration, cause string) (news bool) {
	now := q.stream.Clock.Now()
	next := now.Add(wait)
	q.RetryAt = pacing.Earliest(q.RetryAt, next)
	return q.missing(now, next, cause)
}

// Heard ends or continues the questions after a decision on a batch that is persisted, if it had
// to be.
func (q *Questions) Heard(d lifecycle.Decision, batch *Batch) {
	switch {
	case !d.Deferred:
		*q.AskState = AskState{}
	case q.more && allCount(d, batch):
		q.AskState.from = q.from
	case q.more:
		q.AskState.from, q.stuck = 0, max(q.stuck, q.from)
	default:
		q.AskState.from = 0
	}
}

// allCount says whether all results of a decision are in status, or can never get there. News that
// an attempt began, of one that status does not have, is not worth another look: its answer is.
func allCount(d lifecycle.Decision, batch *Batch) bool {
	for i, v := range d.Verdicts {
		fact := &batch.apply[i].Fact
		started := fact.Rejected == "" && fact.Result.Status == protocol.StatusStarted
		if v == lifecycle.Waiting || v == lifecycle.Ahead && !started {
			return false
		}
	}
	return true
}

// Refused puts off the next question after the API server refused a write with what was found.
// Nothing found is tried again before a wait: the results that were delivered are tried alone, and
// counted, meanwhile, and those that were not will be.
func (q *Questions) Refused(wait func(failures int) time.Duration, cause error) {
	q.Missing(wait(q.failures), cause.Error())
	q.failures++
	q.AskState.from = 0
}
