package lockmgr

import (
	"context"
	"errors"
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

// fateFunc says what becomes of the n-th call (from 0) of a verb for a run. It is called one at a time.
type fateFunc func(verb, runUID string, n int) outcome

// modelStore is the store as a model: a map, a clock, and a script of what becomes of calls. It passes the conformance suite.
type modelStore struct {
	now func() time.Time
	// driftPercent makes the store's clock run fast.
	driftPercent int64

	mu     *sync.Mutex
	fate   fateFunc // nil: everything works
	locks  map[string]modelLock
	fences map[string]int64
	calls  map[string]int // by verb and run
}

type modelLock struct {
	token string
	ends  time.Time
}

func newModelStore(now func() time.Time) *modelStore {
	return &modelStore{
		now: now, mu: &sync.Mutex{}, locks: map[string]modelLock{}, fences: map[string]int64{}, calls: map[string]int{},
	}
}

// peer is the same store as another process sees it, with faults of its own.
func (s *modelStore) peer() *modelStore {
	return &modelStore{now: s.now, mu: s.mu, locks: s.locks, fences: s.fences, calls: map[string]int{}}
}

// call runs one verb with its fate.
func (s *modelStore) call(ctx context.Context, verb, runUID string, do func()) error {
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
func (s *modelStore) Acquire(ctx context.Context, runUID, token, supersedes string, floor int64, ttl time.Duration) (fence int64, ok bool, err error) {
	var got int64
	err = s.call(ctx, "acquire", runUID, func() {
		owner := s.owner(runUID)
		if owner != "" && owner != token && owner != supersedes {
			return
		}
		if owner != token || s.fences[runUID] <= floor {
			s.fences[runUID] = max(s.fences[runUID]+1, floor+1)
		}
		got = s.fences[runUID]
		s.own(runUID, token, ttl)
	})
	if err != nil {
		return 0, false, err
	}
	return got, got > 0, nil
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
		if owner = s.owner(runUID) == token; owner {
			delete(s.locks, runUID)
		}
	})
	if err != nil {
		return false, err
	}
	return owner, nil
}

// Ping implements store.
func (s *modelStore) Ping(ctx context.Context) error { return s.call(ctx, "ping", "", func() {}) }

var _ store = (*modelStore)(nil)
