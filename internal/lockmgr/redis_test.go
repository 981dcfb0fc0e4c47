// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// fast is a policy for tests that wait for real time: validity 900 ms, renewals every 300 ms.
func fast() Request {
	return Request{RunUID: testRun, Policy: policy.RunLock{
		TTL: 1200 * time.Millisecond,
		Renewal: policy.Renewal{
			Interval: 300 * time.Millisecond, Timeout: 250 * time.Millisecond, MaxConsecutiveFailures: 100, Margin: 300 * time.Millisecond,
		},
	}}
}

// steady is a policy for tests whose lease must outlast a slow machine: renewals every 300 ms,
// validity 9.7 s.
func steady() Request {
	r := fast()
	r.Policy.TTL = 10 * time.Second
	return r
}

// process is a manager with a client of its own.
func process(t testing.TB, addr string) *Manager {
	t.Helper()
	return manager(t, newTestClient(t, addr))
}

func manager(t testing.TB, client redis.UniversalClient) *Manager {
	t.Helper()
	m := New(client, Options{})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return m
}

// mustAcquire tries again when a slow machine makes a call time out: that repeats the same take.
func mustAcquire(t testing.TB, m *Manager, r Request) *Lease {
	t.Helper()
	var err error
	for range 10 {
		var l *Lease
		if l, err = m.Acquire(t.Context(), r); err == nil {
			return l
		}
	}
	t.Fatalf("acquire: %v", err)
	return nil
}

// awaitLoss waits for the end of a lease and returns why, and how long after the take.
func awaitLoss(t *testing.T, l *Lease) (*LostError, time.Duration) {
	t.Helper()
	select {
	case <-l.Context().Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the lease is not lost after 10 s")
	}
	return lossOf(l), time.Since(l.hold.takenAt)
}

// mutation: a client with go-redis's default timeouts makes this fail.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	m := process(t, server.Addr())
	l := mustAcquire(t, m, fast())
	server.Pause()

	lost, after := awaitLoss(t, l)
	if lost == nil || lost.Reason != LeaseDeadlineReached {
		t.Errorf("the lease is lost for %v", lost)
	}
	if want := fast().Policy.Validity(); after < want || after > 3*want {
		t.Errorf("the lease was lost after %s; want %s", after, want)
	}
	started := time.Now()
	l.Release(t.Context())
	r := fast()
	r.RunUID, r.Policy.Renewal.Timeout = "another", time.Minute
	r.Policy.TTL = time.Hour
	var unavailable *UnavailableError
	if _, err := m.Acquire(t.Context(), r); !errors.As(err, &unavailable) {
		t.Errorf("acquire from a Redis that hangs: %v", err)
	}
	if err := m.Ping(t.Context()); err == nil {
		t.Error("a Redis that hangs answers")
	}
	if took := time.Since(started); took > 6*time.Second {
		t.Errorf("three calls to a Redis that hangs took %s; want about one second each", took)
	}

	server.Resume()
	// The token of the lost lease, if it is still there, is our own past.
	mustAcquire(t, m, fast()).Drop(t.Context())
	mustAcquire(t, m, r).Drop(t.Context())
}

func TestRedisRefusesConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	m := process(t, server.Addr())
	l := mustAcquire(t, m, fast())
	server.Stop()

	var unavailable *UnavailableError
	r := fast()
	r.RunUID = "another"
	_, err := m.Acquire(t.Context(), r)
	var dial *net.OpError
	if !errors.As(err, &unavailable) || !errors.As(err, &dial) {
		t.Errorf("acquire without a Redis: %v; want unavailable, and the cause", err)
	}
	if lost, _ := awaitLoss(t, l); lost == nil || lost.Reason != LeaseDeadlineReached {
		t.Errorf("the lease is lost for %v", lost)
	}
	l.Release(t.Context())

	server.Restart()
	again := mustAcquire(t, m, Request{RunUID: testRun, Floor: l.Fence(), FloorLeaseID: l.ID(), Policy: fast().Policy})
	if again.Fence() <= l.Fence() {
		t.Errorf("after a restart without data the fence is %d, after %d", again.Fence(), l.Fence())
	}
	again.Drop(t.Context())
}

// mutation: a fence from INCR alone makes this fail.
func TestRedisLosesItsData(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	m := process(t, server.Addr())
	first := steady()
	first.Floor = 6
	l := mustAcquire(t, m, first)
	server.FlushAll()

	lost, after := awaitLoss(t, l)
	if lost == nil || lost.Reason != OwnershipLost {
		t.Errorf("the lease is lost for %v", lost)
	}
	if after > first.Policy.Validity() {
		t.Errorf("the loss was noticed after %s, not at the next renewal", after)
	}
	l.Release(t.Context())
	next := steady()
	next.Floor, next.FloorLeaseID = l.Fence(), l.ID()
	again := mustAcquire(t, m, next)
	if again.Fence() != l.Fence()+1 {
		t.Errorf("the next fence is %d, after %d", again.Fence(), l.Fence())
	}
	again.Drop(t.Context())
}

// dropReplies is a go-redis hook: scripts run, and their replies are lost while there are drops.
type dropReplies struct{ drops atomic.Int64 }

// DialHook implements redis.Hook.
func (*dropReplies) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (*dropReplies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements redis.Hook.
func (h *dropReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(cmd.Name(), "eval") && h.drops.Add(-1) >= 0 {
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return err
	}
}

func TestRedisReplyOfATakeIsLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := newTestClient(t, server.Addr())
	hook := &dropReplies{}
	client.AddHook(hook)
	m := manager(t, client)
	hook.drops.Store(1)

	var unavailable *UnavailableError
	if _, err := m.Acquire(t.Context(), steady()); !errors.As(err, &unavailable) || !errors.Is(err, io.EOF) {
		t.Fatalf("acquire without a reply: %v", err)
	}
	token, err := server.Client().Get(t.Context(), key(testRun, "lock")).Result()
	if err != nil {
		t.Fatalf("the take did not happen: %v", err)
	}
	var busy *BusyError
	if _, err := process(t, server.Addr()).Acquire(t.Context(), steady()); !errors.As(err, &busy) {
		t.Errorf("acquire by another process: %v; want busy", err)
	}
	l := mustAcquire(t, m, steady())
	if l.ID() != token || l.Fence() != 1 {
		t.Errorf("the next try got %s, fence %d; want the token of the first try, %s, and its fence", l.ID(), l.Fence(), token)
	}
	l.Drop(t.Context())
	if n := server.Client().Exists(t.Context(), key(testRun, "lock")).Val(); n != 0 {
		t.Error("a ghost lock is left")
	}
}

// The lock of a process that is gone is replaced at once; that of any other is not.
// mutation: ask without its second try makes the take fail as busy; one that asks no Gone replaces
// the lock of a process that lives.
func TestManager_ReplacesTheLockOfAProcessThatIsGone(t *testing.T) {
	s := redistest.Start(t)
	dead, live := process(t, s.Addr()), process(t, s.Addr())
	old := mustAcquire(t, dead, steady())
	gone := map[string]bool{}
	want := steady()
	want.Gone = func(process string) bool { return gone[process] }
	var busy *BusyError
	if _, err := live.Acquire(t.Context(), want); !errors.As(err, &busy) {
		t.Fatalf("the lock of a process that lives: %v, want busy", err)
	}
	gone[dead.process] = true
	lease := mustAcquire(t, live, want)
	if lease.Fence() <= old.Fence() {
		t.Errorf("fence %d after %d", lease.Fence(), old.Fence())
	}
	if lost, _ := awaitLoss(t, old); lost.Reason != OwnershipLost {
		t.Errorf("the old lease: %v", lost)
	}
	old.Drop(t.Context())
	if err := lease.Err(); err != nil {
		t.Error(err)
	}
	other := process(t, s.Addr())
	if _, err := other.Acquire(t.Context(), steady()); !errors.As(err, &busy) {
		t.Errorf("the end of the old lease freed the new one: %v", err)
	}
	lease.Release(t.Context())
}

func TestRedisKeepsALeaseThatIsRenewed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	m, client := process(t, server.Addr()), server.Client()
	l := mustAcquire(t, m, steady())
	if err := client.PExpire(t.Context(), key(testRun, "lock"), 5*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	for client.PTTL(ctx, key(testRun, "lock")).Val() < 6*time.Second {
		if ctx.Err() != nil {
			t.Fatal("no renewal started the TTL anew")
		}
	}
	if l.Err() != nil {
		t.Errorf("the lease is over: %v", l.Err())
	}
	l.Drop(t.Context())
}

func TestRedisNeedsOnlyTheDocumentedRights(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	rights := regexp.MustCompile(`An ACL user needs:\n//\n((?://\t.*\n)+)`).FindSubmatch(doc)
	if rights == nil {
		t.Fatal("doc.go names no rights")
	}
	user := append([]string{"--user", "locks", "on", ">secret"}, strings.Fields(strings.ReplaceAll(string(rights[1]), "//", ""))...)
	server := redistest.Start(t, user...)
	client, err := NewClient(ClientConfig{Addrs: []string{server.Addr()}, Username: "locks", Password: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	m := manager(t, client)
	heard := make(chan news, 1000)
	listening, cancel := context.WithCancel(t.Context())
	defer cancel()
	go m.store.Listen(listening, "probe", func(n news, _ string) { heard <- n })
	for _, want := range []news{newsBegin, "x"} { // a right to listen that is missing shows in nothing else
		select {
		case n := <-heard:
			if n != want {
				t.Fatalf("heard %q, want %q", n, want)
			}
		case <-t.Context().Done():
			t.Fatal("nothing is heard")
		}
		if err := server.Client().Publish(t.Context(), "syncopate:locks:probe", "x y").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	r := steady()
	r.Floor = 3
	l := mustAcquire(t, m, r)
	if uids, all, err := List(t.Context(), client, 10); err != nil || !all || len(uids) != 1 || uids[0] != testRun {
		t.Errorf("list: %v, %v, %v", uids, all, err)
	}
	if owner, err := m.store.Renew(t.Context(), testRun, l.ID(), time.Second); !owner || err != nil {
		t.Errorf("renewal: owner %v, %v", owner, err)
	}
	woken := make(chan struct{}, 1)
	r.Waiter, r.Wake = "second", func() { woken <- struct{}{} }
	var busy *BusyError
	other := manager(t, client)
	if _, err := other.Acquire(t.Context(), r); !errors.As(err, &busy) || !busy.Queued {
		t.Fatalf("acquire of a held lock: %v; want a place in line", err)
	}
	for channel, heard := "syncopate:locks:"+other.process, int64(0); heard == 0; { // what is offered before it listens, it does not hear
		n, err := server.Client().PubSubNumSub(t.Context(), channel).Result()
		if err != nil {
			t.Fatal(err)
		}
		heard = n[channel]
	}
	l.Drop(t.Context())
	<-woken
	mustAcquire(t, other, r).Drop(t.Context())
	if owner, err := m.store.Release(t.Context(), testRun, l.ID()); owner || err != nil {
		t.Errorf("the lock was not released: owner %v, %v", owner, err)
	}
}

// mutation: acquire.lua without DEL of tickets that have no queue makes this fail: who is counted
// as waiting is not in the queue.
func TestTicketsWithoutAQueueKeepNobodyOut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newRedisStore(newTestClient(t, server.Addr()))
	ask := func(process string) grant {
		t.Helper()
		got, err := s.Acquire(t.Context(), claim{runUID: testRun, token: process + ".x", ttl: time.Minute, process: process})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	ask("a")
	ask("b")
	if err := server.Client().Del(t.Context(), key(testRun, "queue")).Err(); err != nil {
		t.Fatal(err)
	}
	ask("b")
	ask("c")
	if _, err := s.Release(t.Context(), testRun, "a.x"); err != nil {
		t.Fatal(err)
	}
	if got := ask("b"); got.fence != 2 {
		t.Errorf("%+v; want the lock, b is first in line", got)
	}
}

func TestOddLocksAndFences(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newRedisStore(newTestClient(t, server.Addr()))
	c := claim{runUID: testRun, token: "a.x", ttl: time.Minute, process: "a"}
	// mutation: acquire.lua that takes an empty owner for the empty token to replace
	// makes this fail.
	server.Client().Set(t.Context(), key(testRun, "lock"), "", 0)
	if got, err := s.Acquire(t.Context(), c); err != nil || got.fence != 0 {
		t.Errorf("a lock whose owner is empty: %+v, %v; want busy", got, err)
	}
	server.FlushAll()
	// mutation: acquire.lua without the bound makes this fail: it would answer a fence that is not
	// above the floor.
	for _, floor := range []int64{1<<53 - 1, 1 << 53, 1<<63 - 2} {
		c.floor = floor
		if got, err := s.Acquire(t.Context(), c); err == nil || !concernsOneRun(err) {
			t.Errorf("floor %d: %+v, %v; want an error about this run", floor, got, err)
		}
	}
	server.Client().LPush(t.Context(), key("other", "lock"), "x")
	c.runUID, c.floor = "other", 0
	if _, err := s.Acquire(t.Context(), c); err == nil || !concernsOneRun(err) {
		t.Errorf("a lock of another type: %v; want an error about this run", err)
	}
}
