// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// patience bounds a call to Redis in tests: the machine may be slow, and only the tests of faults
// are about time.
const patience = 30 * time.Second

// testClient is set up as the operator's is, but for its patience.
func testClient(t testing.TB, addr string, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	o := &redis.Options{
		Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DisableIdentity: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience, PoolSize: 64, DialerRetries: 1,
	}
	for _, c := range change {
		c(o)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// testQuota has reservations for hours, so that the time that a test takes does not matter.
func testQuota(client redis.UniversalClient, o Options) *Store {
	g := New(client, o)
	g.timeout, g.scripts = patience, loadScripts(2*time.Hour)
	return g
}

// onEach runs a test on a real Redis and on the stand-in, both empty.
func onEach(t *testing.T, test func(t *testing.T, client *redis.Client)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) { test(t, testClient(t, redistest.Start(t).Addr())) })
	t.Run("stand-in", func(t *testing.T) { test(t, testClient(t, miniredis.RunT(t).Addr())) })
}

// bothStrategies are the settings that the same test must pass with.
func bothStrategies() map[string]*LockSettings {
	return map[string]*LockSettings{
		"Atomic": nil,
		"Lock":   {TTL: patience, MaxWait: patience, Retry: policy.BusyRetry{Delay: time.Millisecond, JitterPercent: 50}},
	}
}

func acme() Key { return Key{Policy: "batch", Tenant: "acme"} }

// run is a run of an age in minutes: the higher, the older.
func run(uid string, priority int32, age int) Run {
	return Run{UID: uid, Name: "team/" + uid, Priority: priority, Created: time.Unix(1_800_000_000-int64(age)*60, 0).UTC()}
}

// scene is a quota with what the steps of a test do.
type scene struct {
	t      testing.TB
	client *redis.Client
	quota  *Store
	limits Limits
}

// newScene empties Redis and opens the slots of acme.
func newScene(t testing.TB, client *redis.Client, lock *LockSettings, limit int) *scene {
	t.Helper()
	s := &scene{t: t, client: client, quota: testQuota(client, Options{}), limits: Limits{Max: limit, Lock: lock}}
	s.flush()
	s.rebuild()
	return s
}

func (s *scene) flush() {
	s.t.Helper()
	if err := s.client.FlushAll(s.t.Context()).Err(); err != nil {
		s.t.Fatalf("flush: %v", err)
	}
}

func (s *scene) rebuild(uids ...string) {
	s.t.Helper()
	s.finishes(s.begins(), nil, uids...)
}

func (s *scene) begins() string {
	s.t.Helper()
	token, err := s.quota.BeginRebuild(s.t.Context(), acme())
	if err != nil {
		s.t.Fatalf("begin rebuild: %v", err)
	}
	return token
}

func (s *scene) finishes(token string, want error, uids ...string) {
	s.t.Helper()
	if err := s.quota.FinishRebuild(s.t.Context(), acme(), token, uids); !errors.Is(err, want) || (want == nil && err != nil) {
		s.t.Fatalf("finish rebuild: %v; want %v", err, want)
	}
}

// limit is the same scene after an edit of the limit.
func (s *scene) limit(n int) *scene {
	edited := *s
	edited.limits.Max = n
	return &edited
}

func (s *scene) admits(r Run) {
	s.t.Helper()
	if a, err := s.quota.Admit(s.t.Context(), acme(), s.limits, r); !a.Admitted || err != nil {
		s.t.Fatalf("admit %s: %+v, %v; want admitted", r.UID, a, err)
	}
}

// waits fails the test unless the run is at that position, behind that run ("" for nobody).
func (s *scene) waits(r Run, position int, ahead string) {
	s.t.Helper()
	if ahead != "" {
		ahead = "team/" + ahead
	}
	a, err := s.quota.Admit(s.t.Context(), acme(), s.limits, r)
	if a.Admitted || a.Position != position || a.Ahead != ahead || err != nil {
		s.t.Fatalf("admit %s: %+v, %v; want position %d behind %q", r.UID, a, err, position, ahead)
	}
}

func (s *scene) reserves(uid string, want bool) {
	s.t.Helper()
	if a, err := s.quota.Reserve(s.t.Context(), acme(), s.limits, run(uid, 0, 0), time.Minute); a.Admitted != want || err != nil {
		s.t.Fatalf("reserve %s: %+v, %v; want %v", uid, a, err, want)
	}
}

func (s *scene) releases(uid string, next ...string) {
	s.t.Helper()
	got, err := s.quota.Release(s.t.Context(), acme(), s.limits, uid)
	if !slices.Equal(got, nextUp(next...)) || err != nil {
		s.t.Fatalf("release %s wakes %v, %v; want %v", uid, got, err, next)
	}
}

// nextUp are runs made by run, as those whose turn has come.
func nextUp(uids ...string) []Next {
	var all []Next
	for _, uid := range uids {
		all = append(all, Next{UID: uid, Name: run(uid, 0, 0).Name})
	}
	return all
}

func uidsOf(next []Next) []string {
	uids := make([]string, 0, len(next))
	for _, n := range next {
		uids = append(uids, n.UID)
	}
	return uids
}

// isClosed fails the test unless every call about slots that could let somebody in is refused.
func (s *scene) isClosed(why RebuildReason) {
	s.t.Helper()
	ctx := s.t.Context()
	calls := map[string]error{}
	_, calls["admit"] = s.quota.Admit(ctx, acme(), s.limits, run("closed", 0, 0))
	_, calls["reserve"] = s.quota.Reserve(ctx, acme(), s.limits, run("closed", 0, 0), time.Minute)
	_, calls["release"] = s.quota.Release(ctx, acme(), s.limits, "closed")
	_, calls["next"] = s.quota.Next(ctx, acme(), s.limits)
	_, calls["book"] = s.quota.Snapshot(ctx, acme())
	_, calls["drop"] = s.quota.Drop(ctx, acme(), s.limits, []string{"closed"})
	calls["restore"] = s.quota.Restore(ctx, acme(), []string{"closed"})
	for call, err := range calls {
		if e, ok := errors.AsType[*RebuildingError](err); !ok || e.Why != why || e.Key != acme() {
			s.t.Errorf("%s: %v; want closed: %s", call, err, why)
		}
	}
	if s.t.Failed() {
		s.t.FailNow()
	}
}

// holds fails the test unless these runs have slots, these are in the queue, in order, and
// these have reservations.
func (s *scene) holds(slots, queue, reserved []string) {
	s.t.Helper()
	b, err := s.quota.Snapshot(s.t.Context(), acme())
	if err != nil {
		s.t.Fatalf("book: %v", err)
	}
	uids := func(n int, uid func(int) string) []string {
		var all []string
		for i := range n {
			all = append(all, uid(i))
		}
		return all
	}
	got := [][]string{
		uids(len(b.Slots), func(i int) string { return b.Slots[i].UID }),
		uids(len(b.Queue), func(i int) string { return b.Queue[i].UID }),
		uids(len(b.Reserved), func(i int) string { return b.Reserved[i].UID }),
	}
	if diff := cmp.Diff([][]string{slots, queue, reserved}, got); diff != "" {
		s.t.Fatalf("slots, line, reservations (-want +got):\n%s", diff)
	}
}

// advance lets d pass for reservations, by moving their ends.
func (s *scene) advance(d time.Duration) { s.t.Helper(); advance(s.t, s.client, s.quota, d) }

func advance(t testing.TB, client redis.UniversalClient, g *Store, d time.Duration) {
	t.Helper()
	key := g.keys(acme())[3]
	uids, err := client.ZRange(t.Context(), key, 0, -1).Result()
	for _, uid := range uids {
		err = errors.Join(err, client.ZIncrBy(t.Context(), key, -float64(d.Milliseconds()), uid).Err())
	}
	if err != nil {
		t.Fatalf("let %s pass: %v", d, err)
	}
}

// must ends a benchmark or a helper at an error.
func must(t testing.TB, err error, what string, args ...any) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", fmt.Sprintf(what, args...), err)
	}
}
