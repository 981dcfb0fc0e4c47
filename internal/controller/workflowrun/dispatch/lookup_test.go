// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// lookedUp is a run whose n attempts are known to be with NATS and were so at the last look, which
// was at the clock's time.
func lookedUp(t *testing.T, q *emptyQueue, n int) (*Session, *v1alpha1.WorkflowRun, *clocktesting.FakePassiveClock) {
	t.Helper()
	s, run, _ := recovery(q, n)
	c := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	s.all.Clock = c
	for i := range run.Status.Steps {
		is := &run.Status.Steps[i]
		is.DispatchedAt = &metav1.MicroTime{Time: c.Now()}
		run.Spec.Steps = append(run.Spec.Steps, v1alpha1.Step{Name: is.Name, Job: &v1alpha1.Job{Topic: "t"}})
		s.published[attempt(is.Name)] = s.losses
	}
	for range 2 { // a first pass, and a look that finds out what is known
		if gone, err := s.LookUp(t.Context(), run); len(gone) > 0 || err != nil || q.looked != 0 {
			t.Fatalf("at first: gone %v, %d looked for, %v", gone, q.looked, err)
		}
		c.SetTime(c.Now().Add(lookUpEvery))
	}
	c.SetTime(c.Now().Add(-lookUpEvery))
	return s, run, c
}

// mutation: LookUp that does not remember when it looked, or that looks for what is to be recovered
// anyway, makes this fail.
func TestSession_LookUpLooksOnceInAWhile(t *testing.T) {
	q := &emptyQueue{there: map[string]bool{"s1": true, "s2": true, "s3": true}}
	s, run, c := lookedUp(t, q, 4)
	delete(s.published, attempt("s4"))
	for _, next := range []struct {
		after  time.Duration
		looked int
	}{{lookUpEvery - time.Second, 0}, {time.Second, 3}, {lookUpEvery - time.Second, 3}, {time.Second, 6}} {
		c.SetTime(c.Now().Add(next.after))
		if gone, err := s.LookUp(t.Context(), run); len(gone) > 0 || err != nil || q.looked != next.looked {
			t.Errorf("gone %v, %d looked for, want %d, %v", gone, q.looked, next.looked, err)
		}
	}
	if len(s.Lacks(run)) != 1 {
		t.Errorf("lacks %v", s.Lacks(run))
	}
}

// mutation: toLookFor that takes what was published since the last look makes this fail: NATS would
// not store it again yet, and a worker that broke the protocol would get it twice while it works.
func TestSession_LookUpLeavesYoungAttemptsAlone(t *testing.T) {
	q := &emptyQueue{}
	s, run, c := lookedUp(t, q, 1)
	delete(s.looks.known, attempt("s1")) // it was published just after the last look
	c.SetTime(c.Now().Add(lookUpEvery))
	if gone, err := s.LookUp(t.Context(), run); len(gone) > 0 || err != nil || q.looked != 0 {
		t.Errorf("gone %v, %d looked for, %v", gone, q.looked, err)
	}
	c.SetTime(c.Now().Add(lookUpEvery))
	if gone, err := s.LookUp(t.Context(), run); len(gone) != 1 || err != nil {
		t.Errorf("at the next one: gone %v, %v", gone, err)
	}
}

// mutation: LookUp that looks again for what was found gone makes this fail: a worker that
// acknowledges and does not answer gets a job twice, and not without end.
func TestSession_LookUpFindsAnAttemptGoneOnce(t *testing.T) {
	q := &emptyQueue{there: map[string]bool{"s1": true}}
	s, run, c := lookedUp(t, q, 2)
	for i, want := range []int{1, 0, 0, 0} {
		c.SetTime(c.Now().Add(lookUpEvery))
		gone, err := s.LookUp(t.Context(), run)
		if len(gone) != want || err != nil || len(s.Lacks(run)) != want {
			t.Errorf("%d: gone %v, lacks %v, %v", i, gone, s.Lacks(run), err)
		}
		if slices.Contains(gone, attempt("s1")) {
			t.Error("what is there is gone")
		}
		s.published[attempt("s2")] = s.losses // it is recovered, and acknowledged again
	}
	run.Status.Steps[1].Attempt = 2
	c.SetTime(c.Now().Add(lookUpEvery))
	if _, err := s.LookUp(t.Context(), run); err != nil || len(s.looks.gone) != 0 || len(s.looks.known) != 1 {
		t.Errorf("kept: %v, %v, %v", s.looks.gone, s.looks.known, err)
	}
}

// mutation: LookUp that takes an error for an answer, or lets each run find out for itself that
// nobody answers, makes this fail; so does a pause that ends by a clock that was an hour ahead.
func TestSession_LookUpThatHasNoAnswerKnowsNothing(t *testing.T) {
	q := &emptyQueue{says: context.DeadlineExceeded}
	s, run, c := lookedUp(t, q, 2)
	c.SetTime(c.Now().Add(lookUpEvery))
	if gone, err := s.LookUp(t.Context(), run); len(gone) > 0 || !errors.Is(err, context.DeadlineExceeded) || len(s.Lacks(run)) != 0 {
		t.Errorf("gone %v, %v, lacks %v", gone, err, s.Lacks(run))
	}
	looked, at := q.looked, c.Now()
	for _, another := range []struct {
		after  time.Duration
		looked int
	}{{0, looked}, {lookUpPause - time.Second, looked}, {lookUpPause, looked + 2}, {-time.Hour, 2 * looked}} {
		c.SetTime(at.Add(another.after))
		o := s.all.Session(&State{}, s.losses)
		o.published = s.published
		o.looks = looks{at: c.Now().Add(-lookUpEvery), known: map[protocol.JobID]bool{attempt("s1"): true, attempt("s2"): true}}
		q.looked = looked
		if _, err := o.LookUp(t.Context(), run); (err == nil) != (q.looked == looked) || q.looked != another.looked {
			t.Errorf("another run, %s later: %d looked for, want %d, %v", another.after, q.looked, another.looked, err)
		}
		if another.after == 0 && !o.looks.at.Equal(c.Now().Add(-lookUpEvery)) {
			t.Error("what was left out is not made up for")
		}
	}
}

// mutations: LookUp that has all pause after any error, or that looks in each pass of a run that is
// refused, makes this fail; so does one that leaves all to find out that NATS is out of reach.
func TestSession_AnAnswerThatRefusesKeepsNobodyElseFromLooking(t *testing.T) {
	q := &emptyQueue{says: errAway}
	s, run, c := lookedUp(t, q, 1)
	at := c.Now()
	for _, next := range []struct {
		at    time.Duration
		looks int
	}{{lookUpEvery, 1}, {lookUpEvery + lookUpPause - time.Second, 1}, {lookUpEvery + lookUpPause, 2}} {
		c.SetTime(at.Add(next.at))
		_, err := s.LookUp(t.Context(), run)
		if q.looks != next.looks || (next.at != lookUpEvery+lookUpPause-time.Second) != errors.Is(err, errAway) || s.all.looksPause(c.Now()) {
			t.Errorf("%s later: %d looks, want %d, all pause: %t, %v", next.at, q.looks, next.looks, s.all.looksPause(c.Now()), err)
		}
	}
	q.says = nil
	c.SetTime(c.Now().Add(lookUpPause))
	if gone, err := s.LookUp(t.Context(), run); len(gone) != 1 || err != nil {
		t.Errorf("when it is answered: gone %v, %v", gone, err)
	}
	s, run, c = lookedUp(t, &emptyQueue{says: bus.ErrUnreachable}, 1)
	c.SetTime(c.Now().Add(lookUpEvery))
	if _, err := s.LookUp(t.Context(), run); !errors.Is(err, bus.ErrUnreachable) || !s.all.looksPause(c.Now()) {
		t.Errorf("NATS is out of reach: %v, all pause: %t", err, s.all.looksPause(c.Now()))
	}
}

// mutation: LookUp that has all pause because one run had no time for its topics, or whose pass was
// ended, makes this fail.
func TestSession_OneRunWithManyTopicsKeepsNobodyFromLooking(t *testing.T) {
	q := &emptyQueue{there: map[string]bool{"s1": true, "s2": true}}
	s, run, c := lookedUp(t, q, 2)
	c.SetTime(c.Now().Add(lookUpEvery))
	over, end := context.WithCancel(t.Context())
	end() // its run is handed over
	q.says = errAway
	if _, err := s.LookUp(over, run); err == nil || s.all.looksPause(c.Now()) {
		t.Errorf("%v, all pause: %t", err, s.all.looksPause(c.Now()))
	}
	q.says, q.looks, q.silentAfter = nil, 0, 1 // the second topic gets no answer
	run.Spec.Steps[1].Job.Topic = "other"
	c.SetTime(c.Now().Add(lookUpEvery))
	late, stop := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer stop()
	if _, err := s.LookUp(late, run); err == nil || s.all.looksPause(c.Now()) {
		t.Errorf("a run that had no time for its second topic: %v, all pause: %t", err, s.all.looksPause(c.Now()))
	}
	clear(s.published)
	q.looks = 0
	if _, err := s.Find(late, run); err == nil || s.all.looksPause(c.Now()) {
		t.Errorf("likewise in a take-over: %v, all pause: %t", err, s.all.looksPause(c.Now()))
	}
}

// mutations: LookUp, or Find, that takes keys which cannot be read, of forged results say, for
// a NATS that does not answer; LookUp that does so again in each pass, or not for five minutes.
func TestSession_ALookThatWasAnsweredInPartKeepsNobodyElseFromLooking(t *testing.T) {
	q := &emptyQueue{says: fmt.Errorf("%w: %w", jobs.ErrInPart, context.DeadlineExceeded)}
	s, run, c := lookedUp(t, q, 2)
	late, stop := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer stop()
	at := c.Now().Add(lookUpEvery)
	for _, next := range []struct {
		after time.Duration
		looks int
	}{{0, 1}, {lookUpPause - time.Second, 1}, {lookUpPause, 2}} {
		c.SetTime(at.Add(next.after))
		if _, err := s.LookUp(late, run); q.looks != next.looks || s.all.looksPause(c.Now()) {
			t.Errorf("%s later: %d looks, want %d, all pause: %t, %v", next.after, q.looks, next.looks, s.all.looksPause(c.Now()), err)
		}
	}
	other := s.all.Session(&State{}, s.losses)
	other.published, other.looks = s.published, looks{at: c.Now().Add(-lookUpEvery), known: map[protocol.JobID]bool{attempt("s1"): true}}
	q.says, q.looks = nil, 0
	if gone, err := other.LookUp(t.Context(), run); len(gone) != 1 || err != nil || q.looks != 1 {
		t.Errorf("another run: gone %v, %d looks, %v", gone, q.looks, err)
	}
	q.says = fmt.Errorf("%w: %w", jobs.ErrInPart, context.DeadlineExceeded)
	clear(s.published)
	if _, err := s.Find(late, run); err == nil || s.all.looksPause(c.Now()) {
		t.Errorf("in a take-over: %v, all pause: %t", err, s.all.looksPause(c.Now()))
	}
}

// mutation: Find that says all though one is missing, that notes what is missing as known, or that
// notes nothing, makes this fail; so does one that asks on while NATS does not answer.
func TestSession_FindKnowsWhatIsThere(t *testing.T) {
	q := &emptyQueue{there: map[string]bool{"s1": true}}
	s, run, c := lookedUp(t, q, 2)
	clear(s.published)
	s.untold[attempt("s1")] = true // its publish had no answer
	q.says = errAway
	if all, err := s.Find(t.Context(), run); all || !errors.Is(err, errAway) || len(s.Lacks(run)) != 2 {
		t.Errorf("NATS is away: all %t, %v, lacks %v", all, err, s.Lacks(run))
	}
	q.says = context.DeadlineExceeded
	if all, err := s.Find(t.Context(), run); all || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("NATS does not answer: all %t, %v", all, err)
	}
	q.says = nil
	if all, err := s.Find(t.Context(), run); all || err != nil || len(s.Lacks(run)) != 2 {
		t.Errorf("soon after that it is asked: all %t, %v, lacks %v", all, err, s.Lacks(run))
	}
	c.SetTime(c.Now().Add(lookUpPause + time.Second))
	if all, err := s.Find(t.Context(), run); all || err != nil || !slices.Equal(s.Lacks(run), []protocol.JobID{attempt("s2")}) {
		t.Errorf("one is there: all %t, %v, lacks %v", all, err, s.Lacks(run))
	}
	q.there["s2"] = true
	if all, err := s.Find(t.Context(), run); !all || err != nil || len(s.Lacks(run)) > 0 {
		t.Errorf("both are there: all %t, %v, lacks %v", all, err, s.Lacks(run))
	}
	if len(s.Events()) != 1 {
		t.Errorf("events %v, want that of the one whose dispatch was not told", s.Events())
	}
}
