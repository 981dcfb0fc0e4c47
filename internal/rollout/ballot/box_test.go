// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// mutation: busy from the first try on, or a latency that was not there counted as 0,
// make this fail.
func TestVotes(t *testing.T) {
	reg := prometheus.NewRegistry()
	b := NewBox(reg, nil)
	e := Entry{Policy: "shared", Candidate: "4f2a-2"}
	for _, arm := range []rollout.Arm{rollout.Canary, rollout.Control, rollout.Control, rollout.Rest} {
		b.Began(e, arm)
	}
	b.Ended(e, rollout.Canary, Vote{BusyTries: 2, Wait: time.Second, Latency: -1})
	b.Ended(e, rollout.Control, Vote{BusyTries: 1, Wait: 400 * time.Millisecond, Latency: 3 * time.Millisecond})
	b.Ended(e, rollout.Control, Vote{})
	b.Struck(e, rollout.Canary, Abandoned)
	b.Struck(e, rollout.Canary, FenceRefused)
	b.Struck(e, rollout.Control, DeadLettered)

	got := b.Of(e)
	canary := rollout.Counts{Runs: 1, Ended: 1, Contended: 1, Busy: 1, Abandoned: 1, FenceRefused: 1}
	canary.Waits.Add(time.Second)
	control := rollout.Counts{Runs: 2, Ended: 2, Contended: 1, DeadLettered: 1}
	control.Waits.Add(400 * time.Millisecond)
	control.Waits.Add(0)
	control.Latencies.Add(3 * time.Millisecond)
	control.Latencies.Add(0)
	if want := (rollout.Tally{Canary: canary, Control: control, Rest: 1}); got != want {
		t.Errorf("counted %+v; want %+v", got, want)
	}
	if n := testutil.CollectAndCount(b.runs); n != 10 {
		t.Errorf("%d series", n)
	}
	if other := b.Of(Entry{Policy: "shared", Candidate: "other"}); other != (rollout.Tally{}) {
		t.Errorf("another candidate has %+v", other)
	}
}

func TestOldCandidatesAreForgotten(t *testing.T) {
	b := NewBox(nil, nil)
	for i := range maxTallies + 1 {
		b.Began(Entry{Policy: "shared", Candidate: fmt.Sprint(i)}, rollout.Canary)
	}
	if len(b.tallies) != maxTallies || b.Of(Entry{Policy: "shared", Candidate: "0"}).Canary.Runs != 0 || b.Of(Entry{Policy: "shared", Candidate: "1"}).Canary.Runs != 1 {
		t.Errorf("%d candidates are counted", len(b.tallies))
	}
}

// A candidate that is held for long is counted, or read, all the while. Were it forgotten, its
// counts would go back.
//
// mutation: the oldest is forgotten, and not the one that nobody used for longest.
func TestACandidateInUseIsNotForgotten(t *testing.T) {
	b := NewBox(nil, nil)
	counted, read := Entry{Policy: "counted", Candidate: "4f2a-2"}, Entry{Policy: "read", Candidate: "4f2a-2"}
	b.Began(read, rollout.Canary)
	b.Began(counted, rollout.Canary)
	for i := range 2 * maxTallies {
		b.Began(Entry{Policy: "shared", Candidate: fmt.Sprint(i)}, rollout.Canary)
		b.Ended(counted, rollout.Canary, Vote{})
		b.Of(read)
	}
	if n := b.Of(read).Canary.Runs; n != 1 {
		t.Errorf("of the one that is read %d runs are known", n)
	}
	if n := b.Of(counted).Canary.Ended; n != 2*maxTallies || len(b.tallies) != maxTallies {
		t.Errorf("of the one that is counted %d ends are known; %d candidates are counted", n, len(b.tallies))
	}
}
