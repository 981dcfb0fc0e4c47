package workflowrun

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// Outcomes of a question to the stream of results, for the metric.
const (
	askedNone   = "none"   // it has no result of the run that is not settled
	askedFound  = "found"  // these are all
	askedPartly = "partly" // there are more than are read at a time
	askedFailed = "failed" // it could not be asked
)

// forgedPause is the wait before the next question after one that found nothing but forged results:
// whoever floods them must not keep the operator busy with reading.
const forgedPause = 200 * time.Millisecond

// asking is what a process remembers of its questions about the results of a run.
type asking struct {
	// since is since when answers cannot be had in full while a time-out waits for them, and cause
	// why, in the words of the first time; zero: they can.
	since time.Time
	cause string
	// next is when the stream is asked again after that.
	next time.Time
	// failures is how often in a row the API server refused what was found.
	failures int
	// from is the sequence from which the next question goes on: what was before it is in status. 0:
	// from the first. It holds for as long as NATS has lost data so many times.
	from   uint64
	losses uint64
}

// missing notes that answers cannot be had in full before a time; it says whether that is news.
func (a *asking) missing(now, next time.Time, cause string) (first bool) {
	first = a.since.IsZero()
	if first {
		a.since, a.cause = now, cause
	}
	a.next = next
	return first
}

// answers is what the core is told of them.
func (p *pass) answers() lifecycle.Answers {
	return lifecycle.Answers{AsOf: p.answeredUntil, MissingSince: p.mem.asking.since, Cause: p.mem.asking.cause}
}

// ask asks the stream for results of the run, because a time-out is due. What it finds counts in this
// pass like a result that was delivered; its delivery, which comes as well, is a duplicate then. It
// says whether another decision knows more.
func (p *pass) ask(ctx context.Context) bool {
	now, a := p.clock.Now(), &p.mem.asking
	if p.more || now.Before(a.next) {
		p.later = pacing.Earliest(p.later, a.next)
		return false
	}
	if p.from == 0 && a.losses == p.losses {
		p.from = a.from
	}
	page, err := p.reader.Answers(ctx, string(p.run.UID), p.from)
	if err != nil {
		p.metrics.answersAsked.WithLabelValues(askedFailed).Inc()
		log.FromContext(ctx).Info("Time-outs wait: the stream of results cannot be asked", "delay", retryDelay(err), "cause", err.Error())
		return p.answersMissing(retryDelay(err), err.Error())
	}
	p.from, p.more = page.Next, page.More
	p.takeFound(page, now)
	if !page.More {
		p.answeredUntil = now
		return true
	}
	wait := time.Duration(0) // what was found is written first
	if len(page.Answers) == 0 {
		wait = forgedPause
	}
	return p.answersMissing(wait, "there are more results than are read at a time") || len(page.Answers) > 0
}

// takeFound adds what was found in the stream to the results of the pass.
func (p *pass) takeFound(page busresults.AnswerPage, now time.Time) {
	for _, found := range page.Answers {
		if p.isDoomed(found) {
			continue
		}
		fact := lifecycle.Result{ID: found.ID, Result: found.Result, PublishedAt: found.PublishedAt}
		if found.Rejected != nil {
			fact.Rejected = found.Rejected.Error()
		}
		p.letters = append(p.letters, &results.Pending{Fact: fact, Since: now})
	}
	outcome := askedNone
	switch {
	case page.More:
		outcome = askedPartly
	case len(page.Answers) > 0:
		outcome = askedFound
	}
	p.metrics.answersAsked.WithLabelValues(outcome).Inc()
}

// isDoomed says whether what was found is about to be put aside: it was refused as often as it may be.
func (p *pass) isDoomed(found busresults.Answer) bool {
	return slices.ContainsFunc(p.doomed, func(l *results.Pending) bool {
		return l.Fact.ID == found.ID && l.Fact.Result.Status == found.Result.Status
	})
}

// answersMissing has the stream asked again after a wait, and says whether the core is to be told.
func (p *pass) answersMissing(wait time.Duration, cause string) (news bool) {
	now := p.clock.Now()
	next := now.Add(wait)
	p.later = pacing.Earliest(p.later, next)
	return p.mem.asking.missing(now, next, cause)
}

// answersHeard ends or continues the questions after a decision that is persisted, if it had to be.
func (p *pass) answersHeard(d lifecycle.Decision) {
	a := &p.mem.asking
	switch {
	case !d.Deferred:
		*a = asking{}
	case p.more && p.allCount(d):
		a.from, a.losses = p.from, p.losses
	default:
		a.from = 0
	}
}

// allCount says whether all results of a decision are in status, or can never get there.
func (p *pass) allCount(d lifecycle.Decision) bool {
	for _, v := range d.Verdicts {
		if v == lifecycle.Waiting || v == lifecycle.Ahead {
			return false
		}
	}
	return true
}

// foundRefused says whether what was found is among the results of a write that the API server
// refused. Nothing found is tried again before a wait: the results that were delivered are tried
// alone, and counted, meanwhile, and those that were not will be.
func (p *pass) foundRefused(cause error) bool {
	for _, l := range p.carried {
		if l.Delivery == nil {
			a := &p.mem.asking
			p.answersMissing(p.failureWait(a.failures), cause.Error())
			a.failures++
			a.from = 0
			return true
		}
	}
	return false
}
