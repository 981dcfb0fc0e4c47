// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

// A lock that nobody has comes first, and the next one cannot be read.
//
// mutation: look that trusts in the error of the pipeline alone makes this fail.
func TestALockThatCannotBeReadIsNotFree(t *testing.T) {
	t.Parallel()
	client := newTestClient(t, redistest.Start(t).Addr())
	if err := client.LPush(t.Context(), key("odd", "lock"), "no lock").Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := Look(t.Context(), client, []string{"free", "odd"}); err == nil {
		t.Errorf("%+v, want an error", got)
	}
}

// An offer is no owner, and a lock without a TTL does not end.
func TestLocksAsPeopleSeeThem(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := newTestClient(t, server.Addr())
	m, r := process(t, server.Addr()), steady()
	l := mustAcquire(t, m, r)
	s := newRedisStore(client)
	twoWant := func(uid string) {
		t.Helper()
		if _, err := s.Acquire(t.Context(), claim{runUID: uid, token: "p1.a", ttl: time.Minute}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Acquire(t.Context(), claim{runUID: uid, token: "p2.b", ttl: time.Minute, process: "p2"}); err != nil {
			t.Fatal(err)
		}
	}
	twoWant(testRun)
	if err := client.Set(t.Context(), key("by-hand", "lock"), "mine", 0).Err(); err != nil {
		t.Fatal(err)
	}
	uids := []string{"free", testRun, "", "by-hand"}
	for range lookAtOnce {
		uids = append(uids, "another")
	}
	offered := &uids[2]
	var got map[string]Sight
	for try := 0; try < 10 && !got[*offered].Offered; try++ { // an offer lasts a second, which may be over by then
		*offered = fmt.Sprint("offered-", try)
		twoWant(*offered)
		if _, err := s.Release(t.Context(), *offered, "p1.a"); err != nil {
			t.Fatal(err)
		}
		var err error
		if got, err = Look(t.Context(), client, uids); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]Sight{
		"free": {Left: -2}, "another": {Left: -2},
		testRun:   {Token: l.ID(), Left: r.Policy.TTL, Fence: 1, Waiting: 1},
		*offered:  {Offered: true, Left: offerTime, Fence: 1, Waiting: 1},
		"by-hand": {Token: "mine", Left: -1},
	}
	roughly := cmp.Comparer(func(a, b time.Duration) bool { return (a > 0) == (b > 0) && (a > 0 || a == b) })
	if diff := cmp.Diff(want, got, roughly, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("locks (-want +got):\n%s", diff)
	}
	l.Drop(t.Context())
	server.Pause()
	defer server.Resume()
	if _, err := Look(t.Context(), client, uids); err == nil {
		t.Error("a Redis that hangs answers")
	}
}
