// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"
)

var errRefused = errors.New("connection refused")

// outcome is what becomes of one call to the model store.
type outcome int

const (
	works         outcome = iota
	refused               // an error at once, nothing happens
	timesOut              // nothing happens, the caller waits for its timeout
	losesReply            // happens at once, the caller waits for its timeout
	repliesLate           // happens at once, the reply comes just before the timeout
	happensLate           // happens and replies just before the timeout
	happensAfter          // the caller waits for its timeout, and it happens two seconds later
	outcomesCount         // how many there are
)

// fateFunc says what becomes of the n-th call (from 0) of a verb for a run. It is called one
// at a time.
type fateFunc func(verb, runUID string, n int) outcome

// modelStore is the store as a model: a map, a clock, and a script of what becomes of calls. It
// passes the conformance suite.
type modelStore struct {
	now func() time.Time
	// driftPercent makes the store's clock run fast.
	driftPercent int64

	mu     *sync.Mutex
	fate   fateFunc // nil: everything works
	locks  map[string]modelLock
	fences map[string]int64
	calls  map[string]int // by verb and run

	tickets map[string][]modelTicket // the queue, by run
	ears    map[string]func(n news, runUID string)
	deaf    *bool         // news are lost
	slow    time.Duration // until a process listens
}

type modelLock struct {
	token string
	ends  time.Time
}

func newModelStore(now func() time.Time) *modelStore {
	return &modelStore{
		now: now, mu: &sync.Mutex{}, locks: map[string]modelLock{}, fences: map[string]int64{}, calls: map[string]int{},
		tickets: map[string][]modelTicket{}, ears: map[string]func(news, string){}, deaf: new(bool),
	}
}

// peer is the same store as another process sees it, with faults of its own.
func (s *modelStore) peer() *modelStore {
	p := *s
	p.calls, p.fate = map[string]int{}, nil
	return &p
}

// call runs one verb with its fate.
func (s *modelStore) call(ctx context.Context, verb, runUID string, do func()) error {
	if ctx.Err() != nil { // as of Redis: nothing is sent
		return ctx.Err()
	}
	s.mu.Lock()
	n := s.calls[verb+runUID]
	s.calls[verb+runUID]++
	fate := works
	if s.fate != nil {
		fate = s.fate(verb, runUID, n)
	}
	s.mu.Unlock()
	atomically := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		do()
	}
	switch fate {
	case refused:
		return errRefused
	case timesOut:
		<-ctx.Done()
		return ctx.Err()
	case losesReply:
		atomically()
		<-ctx.Done()
		return ctx.Err()
	case repliesLate:
		atomically()
		awaitAlmost(ctx)
	case happensLate:
		awaitAlmost(ctx)
		atomically()
	case happensAfter:
		<-ctx.Done()
		time.AfterFunc(2*time.Second, atomically)
		return ctx.Err()
	case works, outcomesCount:
		atomically()
	}
	return nil
}

// awaitAlmost waits until a millisecond before the context's deadline.
func awaitAlmost(ctx context.Context) {
	deadline, _ := ctx.Deadline()
	almost, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(-time.Millisecond))
	defer cancel()
	<-almost.Done()
}

// owner is the token that owns the lock; empty: free. Needs mu.
func (s *modelStore) owner(runUID string) string {
	if l := s.locks[runUID]; s.now().Before(l.ends) {
		return l.token
	}
	return ""
}

// own makes token the owner for ttl of the store's time. Needs mu.
func (s *modelStore) own(runUID, token string, ttl time.Duration) {
	s.locks[runUID] = modelLock{token, s.now().Add(ttl * 100 / time.Duration(100+s.driftPercent))}
}

// script sets what becomes of calls from now on.
func (s *modelStore) script(fate fateFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fate = fate
}

// freeAt is when the key of a run ends.
func (s *modelStore) freeAt(runUID string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.locks[runUID].ends
}

// count is the number of calls of a verb for a run.
func (s *modelStore) count(verb, runUID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[verb+runUID]
}

func (s *modelStore) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.locks)
	clear(s.tickets)
	clear(s.fences)
}

// steal makes token the owner, whoever was.
func (s *modelStore) steal(runUID, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own(runUID, token, time.Hour)
}

// ownerOf is the token that owns the lock now; empty: free.
func (s *modelStore) ownerOf(runUID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner(runUID)
}

// Acquire implements store.
func (s *modelStore) Acquire(ctx context.Context, c claim) (grant, error) {
	var got grant
	err := s.call(ctx, "acquire", c.runUID, func() { got = s.acquire(c) })
	if err != nil {
		return grant{}, err
	}
	return got, nil
}

// acquire is acquire.lua. Needs mu.
func (s *modelStore) acquire(c claim) grant {
	owner := s.owner(c.runUID)
	if owner == c.supersedes {
		owner = ""
	}
	if owner != "" && owner != c.token && (c.process == "" || owner != "~"+c.process) {
		if owner[0] == '~' {
			return grant{queued: s.enqueue(c), offered: s.locks[c.runUID].ends.Sub(s.now())}
		}
		if holder, _, ok := strings.Cut(owner, "."); ok {
			s.tell(holder, newsWanted, c.runUID)
		}
		return grant{queued: s.enqueue(c), owner: owner, left: s.locks[c.runUID].ends.Sub(s.now())}
	}
	if head := s.first(c.runUID); owner == "" && head != "" && head != c.process {
		s.offer(c.runUID, head)
		return grant{queued: s.enqueue(c), offered: offerTime}
	}
	s.leave(c.runUID, c.process)
	if owner != c.token || s.fences[c.runUID] <= c.floor {
		s.fences[c.runUID] = max(s.fences[c.runUID]+1, c.floor+1)
	}
	s.own(c.runUID, c.token, c.ttl)
	return grant{fence: s.fences[c.runUID], others: len(s.tickets[c.runUID]) > 0}
}

type modelTicket struct {
	process string
	ends    time.Time
}

func (s *modelStore) enqueue(c claim) bool {
	if c.process == "" {
		return false
	}
	ends := s.now().Add(ticketTime)
	list := s.tickets[c.runUID]
	i := slices.IndexFunc(list, func(t modelTicket) bool { return t.process == c.process })
	switch {
	case i >= 0:
		list[i].ends = ends
	case len(list) >= maxTickets:
		return false
	default:
		s.tickets[c.runUID] = append(list, modelTicket{c.process, ends})
	}
	return true
}

func (s *modelStore) leave(runUID, process string) {
	s.tickets[runUID] = slices.DeleteFunc(s.tickets[runUID], func(t modelTicket) bool { return t.process == process })
}

// first is the process at the head of the queue; empty: nobody waits. Needs mu.
func (s *modelStore) first(runUID string) string {
	s.tickets[runUID] = slices.DeleteFunc(s.tickets[runUID], func(t modelTicket) bool { return !s.now().Before(t.ends) })
	if len(s.tickets[runUID]) == 0 {
		return ""
	}
	return s.tickets[runUID][0].process
}

// pass keeps the lock for the first in the queue, or frees it. Needs mu.
func (s *modelStore) pass(runUID string) {
	delete(s.locks, runUID)
	if head := s.first(runUID); head != "" {
		s.offer(runUID, head)
	}
}

func (s *modelStore) offer(runUID, process string) {
	s.locks[runUID] = modelLock{"~" + process, s.now().Add(offerTime)}
	for i := range s.tickets[runUID] {
		if t := &s.tickets[runUID][i]; t.process == process {
			t.ends = s.now().Add(offerTime)
		}
	}
	s.tell(process, newsOffered, runUID)
}

// tell passes news on, unless they are to be lost.
func (s *modelStore) tell(process string, n news, runUID string) {
	if hear := s.ears[process]; hear != nil && !*s.deaf {
		go hear(n, runUID)
	}
}

// Listen implements store.
func (s *modelStore) Listen(ctx context.Context, process string, hear func(n news, runUID string)) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(s.slow):
	}
	s.mu.Lock()
	s.ears[process] = hear
	s.mu.Unlock()
	hear(newsBegin, "")
	<-ctx.Done()
	s.mu.Lock()
	delete(s.ears, process)
	s.mu.Unlock()
}

// Renew implements store.
func (s *modelStore) Renew(ctx context.Context, runUID, token string, ttl time.Duration) (bool, error) {
	owner := false
	err := s.call(ctx, "renew", runUID, func() {
		if owner = s.owner(runUID) == token; owner {
			s.own(runUID, token, ttl)
		}
	})
	if err != nil {
		return false, err
	}
	return owner, nil
}

// Release implements store.
func (s *modelStore) Release(ctx context.Context, runUID, token string) (bool, error) {
	owner := false
	err := s.call(ctx, "release", runUID, func() {
		if owner = s.owner(runUID) == token; !owner {
			return
		}
		s.pass(runUID)
	})
	if err != nil {
		return false, err
	}
	return owner, nil
}

// Leave implements store.
func (s *modelStore) Leave(ctx context.Context, runUID, process string) error {
	return s.call(ctx, "leave", runUID, func() {
		s.leave(runUID, process)
		if s.owner(runUID) == "~"+process {
			s.pass(runUID)
		}
	})
}

// Repeats implements store.
func (*modelStore) Repeats() bool { return false }

// Ping implements store.
func (s *modelStore) Ping(ctx context.Context) error { return s.call(ctx, "ping", "", func() {}) }

var _ store = (*modelStore)(nil)
