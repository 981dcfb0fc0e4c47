// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// fullQueue has room for so many jobs.
type fullQueue struct {
	emptyQueue
	room, asked atomic.Int64
}

func (q *fullQueue) take() error {
	q.asked.Add(1)
	if q.room.Add(-1) < 0 {
		return fmt.Errorf("publish job: %w", bus.ErrNoRoom)
	}
	return nil
}

func (q *fullQueue) Publish(context.Context, jobs.Job) error { return q.take() }

func (q *fullQueue) Recover(context.Context, jobs.Job) (jobs.RecoverOutcome, error) {
	if err := q.take(); err != nil {
		return 0, err
	}
	return jobs.Published, nil
}

// A run with thousands of attempts must not have a full NATS refuse each of them in each pass, and
// an attempt that was not tried must not count as published: it would be lost.
// mutation: each that goes on after a refusal, or notes what it left out as published, makes this
// fail.
func TestSession_StopsAtTheFirstJobWithoutRoom(t *testing.T) {
	const attempts = 2000
	q := &fullQueue{}
	s, run, list := recovery(&q.emptyQueue, attempts)
	s.all.Jobs = q
	input := func(context.Context, protocol.JobID) (json.RawMessage, error) { return nil, nil }
	for what, do := range map[string]func(*Session) (bool, error){
		"Publish": func(s *Session) (bool, error) { return false, s.Publish(t.Context(), run, q, list()) },
		"Recover": func(s *Session) (bool, error) { return s.Recover(t.Context(), run, q, list(), input) },
	} {
		q.asked.Store(0)
		more, err := do(s.all.Session(s.State, 1))
		if asked := q.asked.Load(); !errors.Is(err, bus.ErrNoRoom) || more || asked == 0 || asked > publishParallel {
			t.Errorf("%s: %d asked, more %t, %v", what, asked, more, err)
		}
		if left := len(s.Lacks(run)); left != attempts {
			t.Errorf("%s: %d of %d attempts are still to be published", what, left, attempts)
		}
	}

	q.room.Store(10)
	s = s.all.Session(s.State, 1)
	if _, err := s.Recover(t.Context(), run, q, list(), input); !errors.Is(err, bus.ErrNoRoom) {
		t.Errorf("with room for some: %v", err)
	}
	if left := len(s.Lacks(run)); left != attempts-10 {
		t.Errorf("%d attempts are still to be published, want %d", left, attempts-10)
	}
	q.room.Store(attempts)
	s = s.all.Session(s.State, 1)
	if _, err := s.Recover(t.Context(), run, q, list(), input); err != nil {
		t.Errorf("with room for all: %v", err)
	}
	if left := len(s.Lacks(run)); left > 0 {
		t.Errorf("%d attempts are left", left)
	}
}

// smallQueue has room for small jobs only. It notes which it was asked to take.
type smallQueue struct {
	emptyQueue
	mu    sync.Mutex
	asked map[string]int // by step
}

func (q *smallQueue) take(j jobs.Job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked[j.ID.Step]++
	if len(j.Input) > 100<<10 {
		return fmt.Errorf("publish job: %w", bus.ErrNoRoom)
	}
	return nil
}

func (q *smallQueue) Publish(_ context.Context, j jobs.Job) error { return q.take(j) }

func (q *smallQueue) Recover(ctx context.Context, j jobs.Job) (outcome jobs.RecoverOutcome, err error) {
	if j.Input, err = j.Render(ctx); err != nil {
		return 0, err
	}
	return jobs.Published, q.take(j)
}

// sized gives each second job a large input.
func sized(list []lifecycle.Job) []lifecycle.Job {
	for i := range list {
		if i%2 == 0 {
			list[i].Input = json.RawMessage(strings.Repeat("1", 200<<10))
		}
	}
	return list
}

// mutation: a gate that keeps small jobs back after a larger one was refused makes this fail.
func TestSession_OneLargeJobDoesNotHoldUpSmallOnes(t *testing.T) {
	q := &smallQueue{asked: map[string]int{}}
	s, run, list := recovery(&q.emptyQueue, 100)
	s.all.Jobs = q
	fresh := sized(list())
	inputs := map[protocol.JobID]json.RawMessage{}
	for _, j := range fresh {
		inputs[j.ID] = j.Input
	}
	if err := s.Publish(t.Context(), run, q, fresh); !errors.Is(err, bus.ErrNoRoom) {
		t.Fatal(err)
	}
	if left := len(s.Lacks(run)); left != 50 {
		t.Errorf("%d attempts are left, want the 50 large ones", left)
	}
	if _, refused := s.Room(); !refused {
		t.Error("it is not known that some were refused")
	}

	// mutation: a Session that does not keep what Publish found out for Recover makes this fail.
	input := func(_ context.Context, id protocol.JobID) (json.RawMessage, error) { return inputs[id], nil }
	clear(q.asked)
	if _, err := s.Recover(t.Context(), run, q, list(), input); err != nil || len(q.asked) > 0 {
		t.Errorf("the same pass tries %d again (%v)", len(q.asked), err)
	}
	next := s.all.Session(s.State, 1)
	if _, err := next.Recover(t.Context(), run, q, list(), input); !errors.Is(err, bus.ErrNoRoom) || len(q.asked) > publishParallel {
		t.Errorf("the next pass tries %d (%v)", len(q.asked), err)
	}
}

// crowdedQueue has a consumer for topic "t" alone.
type crowdedQueue struct {
	emptyQueue
	refused atomic.Int64
}

func (q *crowdedQueue) Publish(_ context.Context, j jobs.Job) error {
	if j.Topic == "t" {
		return nil
	}
	q.refused.Add(1)
	return fmt.Errorf("publish job: %w", jobs.ErrTooManyTopics)
}

// mutations: note that does not know what has no consumer, or that takes it for a NATS that is
// full; admits that asks for each job of such a topic.
func TestSession_ATopicWithoutAConsumerHoldsUpItsOwnJobs(t *testing.T) {
	q := &crowdedQueue{}
	s, run, list := recovery(&q.emptyQueue, 200)
	s.all.Jobs = q
	fresh := list()
	for i := range fresh[:100] {
		fresh[i].Topic = "another"
	}
	err := s.Publish(t.Context(), run, q, fresh)
	if n := q.refused.Load(); !errors.Is(err, jobs.ErrTooManyTopics) || n == 0 || n > publishParallel {
		t.Errorf("%d were refused: %v", n, err)
	}
	lacks := s.Lacks(run)
	if len(lacks) != 100 || !s.Refused(lacks[99:]) {
		t.Errorf("%d attempts are left, want those of the other topic", len(lacks))
	}
	if _, refused := s.Room(); !refused || !slices.Equal(s.Refusing(), []lifecycle.Lack{lifecycle.LackTopic}) || s.OnlyShare() {
		t.Errorf("refused %t, lacks %v", refused, s.Refusing())
	}
}

// mutation: a gate that does not count refusals of jobs of unknown sizes makes this fail.
func TestSession_RecoverLearnsWhichJobsAreTooLarge(t *testing.T) {
	const attempts, large = 200, 40
	q := &smallQueue{asked: map[string]int{}}
	s, run, list := recovery(&q.emptyQueue, attempts)
	s.all.Jobs = q
	big := map[protocol.JobID]bool{}
	for _, j := range list()[:large] {
		big[j.ID] = true
	}
	input := func(_ context.Context, id protocol.JobID) (json.RawMessage, error) {
		if big[id] {
			return json.RawMessage(strings.Repeat("1", 200<<10)), nil
		}
		return json.RawMessage("{}"), nil
	}
	passes := 0
	for ; len(s.Lacks(run)) > large && passes < large; passes++ {
		clear(q.asked)
		s = s.all.Session(s.State, 1)
		if _, err := s.Recover(t.Context(), run, q, list(), input); !errors.Is(err, bus.ErrNoRoom) {
			t.Fatal(err)
		}
		if passes == 0 && len(q.asked) > 2*publishParallel {
			t.Errorf("the first pass asks for %d", len(q.asked))
		}
	}
	if left := len(s.Lacks(run)); left != large {
		t.Errorf("after %d passes %d attempts are left, want %d", passes, left, large)
	}
}

// mutation: Room that takes another error for a refusal, or an outage for an answer,
// makes this fail.
func TestSession_RoomTellsWhatWasTried(t *testing.T) {
	for _, c := range []struct {
		err            error
		tried, refused bool
	}{
		{nil, true, false},
		{jobs.ErrRecentlyGone, true, false},
		{jobs.ErrTooManyTopics, false, true},
		{bus.ErrNoRoom, false, true},
		{bus.ErrUnreachable, false, false},
	} {
		g := &gate{sizes: map[protocol.JobID]int{}}
		g.note(lifecycle.Job{}, 0, c.err)
		if tried, refused := (&Session{gate: g}).Room(); tried != c.tried || refused != c.refused {
			t.Errorf("%v: tried %t, refused %t", c.err, tried, refused)
		}
	}
	g := &gate{sizes: map[protocol.JobID]int{}}
	g.fenced(bus.ErrNoRoom)
	if _, refused := (&Session{gate: g}).Room(); !refused || g.admits(lifecycle.Job{}) {
		t.Error("a fence that finds no room is nothing")
	}
}

// mutation: note that counts as refused in a row what was under way beside a job of the same size
// makes this fail, and so does an inOrder that leaves the order as it is.
func TestGate_JobsOfOneSizeSayOneThing(t *testing.T) {
	s, _, list := recovery(&emptyQueue{}, 5)
	jobs := list()
	for i := range jobs[:4] {
		jobs[i].Input = json.RawMessage("12345")
	}
	for _, j := range jobs[:4] {
		s.gate.note(j, 0, bus.ErrNoRoom)
	}
	if s.gate.admits(jobs[0]) || !s.gate.admits(jobs[4]) {
		t.Error("what is not smaller is let through, or what is smaller is not")
	}
	if first := s.gate.inOrder(jobs)[0].ID; first != jobs[4].ID {
		t.Errorf("%s goes first", first)
	}
}

// A pass may end before it comes to the jobs that were refused, or NATS may hang: neither says that
// there is room for them.
//
// mutations: note that takes the end of a time for an answer, that forgets no size once another
// reason is known, or that forgets one that was refused.
func TestSession_WhatWasRefusedIsRefusedUntilItIsAskedForAgain(t *testing.T) {
	small, large := lifecycle.Job{ID: protocol.JobID{Step: "small"}}, lifecycle.Job{ID: protocol.JobID{Step: "large"}}
	sizes := map[protocol.JobID]int{}
	(&gate{sizes: sizes}).note(large, 1000, bus.ErrNoRoom)
	lacks := []protocol.JobID{small.ID, large.ID}
	s := &Session{gate: &gate{sizes: sizes}} // of the next pass
	for _, hangs := range []error{context.DeadlineExceeded, context.Canceled} {
		s.gate.note(large, 0, fmt.Errorf("publish job: %w", hangs))
	}
	if tried, _ := s.Room(); tried || !s.Refused(lacks) {
		t.Errorf("while NATS hangs: tried %t, refused %t", tried, s.Refused(lacks))
	}
	s.gate.note(small, 10, nil)
	if tried, _ := s.Room(); !tried || !s.Refused(lacks) || s.Refused(lacks[:1]) {
		t.Errorf("after another job: tried %t, refused %t", tried, s.Refused(lacks))
	}
	if s.gate.note(large, 0, errors.New("too many topics")); s.Refused(lacks) {
		t.Error("it lacks something else, and is said to lack room")
	}
}

// mutation: inOrder that takes no size for one that was not refused.
func TestGate_WhatCouldNotBeFencedIsTriedAfterWhatWasNotRefused(t *testing.T) {
	s, _, list := recovery(&emptyQueue{}, 3)
	jobs := list()
	s.gate.note(jobs[0], 1000, bus.ErrNoRoom)
	s.gate.note(jobs[1], 0, fmt.Errorf("fence job: %w", bus.ErrNoRoom))
	var order []protocol.JobID
	for _, j := range s.gate.inOrder(jobs) {
		order = append(order, j.ID)
	}
	if want := []protocol.JobID{jobs[2].ID, jobs[1].ID, jobs[0].ID}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
}

// mutations: OnlyShare that is false where a topic lacks its consumer, too; Lacks that leaves one
// out, or has them in another order.
func TestSession_TellsAllThatHadNoRoom(t *testing.T) {
	share, topic, nats := errShareUsed, jobs.ErrTooManyTopics, bus.ErrNoRoom
	for name, c := range map[string]struct {
		refusals []error
		lacks    []lifecycle.Lack
		share    bool // alone, as far as NATS goes
	}{
		"nothing":         {nil, nil, false},
		"share":           {[]error{share}, []lifecycle.Lack{lifecycle.LackShare}, true},
		"topic":           {[]error{topic}, []lifecycle.Lack{lifecycle.LackTopic}, false},
		"NATS":            {[]error{nats}, []lifecycle.Lack{lifecycle.LackNATS}, false},
		"share and topic": {[]error{share, topic}, []lifecycle.Lack{lifecycle.LackTopic, lifecycle.LackShare}, true},
		"all":             {[]error{share, topic, nats}, []lifecycle.Lack{lifecycle.LackNATS, lifecycle.LackTopic, lifecycle.LackShare}, false},
	} {
		s := &Session{gate: &gate{sizes: map[protocol.JobID]int{}}}
		for i, err := range c.refusals {
			s.gate.note(lifecycle.Job{ID: attempt(fmt.Sprint("s", i)), Topic: fmt.Sprint("t", i)}, 1, err)
		}
		if got := s.Refusing(); !slices.Equal(got, c.lacks) || s.OnlyShare() != c.share {
			t.Errorf("%s: %v, only its share %t", name, got, s.OnlyShare())
		}
	}
	fenced := &Session{gate: &gate{sizes: map[protocol.JobID]int{}}}
	if fenced.gate.fenced(errShareUsed); !slices.Equal(fenced.Refusing(), []lifecycle.Lack{lifecycle.LackShare}) {
		t.Errorf("of a fence: %v", fenced.Refusing())
	}
}
