// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/internal/rollout"
)

var (
	tried  = Entry{Policy: "shared", Candidate: "4f2a-2"}
	period = rollout.PeriodOf(time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC))
	during = rollout.BeginOf(period).Add(10 * time.Second)
	after  = rollout.BeginOf(period + 1)
)

func acme() Minute { return Minute{Entry: tried, Tenant: "acme", Period: period} }

// start is one that is over at once; the process has the vote.
func (b *Box) start(m Minute, arm rollout.Arm, uid string, v Vote) {
	if b.Enter(m, arm, during) {
		b.Claimed(m, true)
	}
	b.Leave(m, uid, v)
}

// mutation: a vote before the minute is over or while a start is under way, a vote of a process
// that has it not, and a second one of the same minute make this fail.
func TestATenantMinuteVotesOnce(t *testing.T) {
	wait := Vote{BusyTries: 2, Wait: time.Second}
	for name, test := range map[string]struct {
		play func(b *Box)
		at   time.Time
		want rollout.Tally
	}{
		"before it is over": {func(b *Box) { b.start(acme(), rollout.Canary, "a", wait) }, after.Add(-1), rollout.Tally{}},
		"once it is over":   {func(b *Box) { b.start(acme(), rollout.Canary, "a", wait) }, after, rollout.Tally{Canary: voted(wait)}},
		"however many starts there were": {func(b *Box) {
			for i := range 10 {
				b.start(acme(), rollout.Control, fmt.Sprint(i), wait)
			}
		}, after, rollout.Tally{Control: voted(wait)}},
		"of starts without a busy lock": {func(b *Box) {
			b.start(acme(), rollout.Control, "a", Vote{})
		}, after, rollout.Tally{Control: voted(Vote{})}},
		"of the start that found it busy": {func(b *Box) {
			b.start(acme(), rollout.Control, "a", Vote{})
			b.start(acme(), rollout.Control, "b", wait)
			b.start(acme(), rollout.Control, "c", Vote{})
		}, after, rollout.Tally{Control: voted(wait)}},
		"of the worst of a run that came again": {func(b *Box) {
			b.start(acme(), rollout.Canary, "a", PutOff(1))
			b.start(acme(), rollout.Canary, "a", Vote{BusyTries: 1, Wait: time.Millisecond})
		}, after, rollout.Tally{Canary: voted(Vote{BusyTries: 2, Wait: 2 * time.Minute})}},
		"in neither arm": {func(b *Box) { b.start(acme(), rollout.Rest, "a", wait) }, after, rollout.Tally{Rest: 1}},
		"of another process": {func(b *Box) {
			b.Enter(acme(), rollout.Canary, during)
			b.Claimed(acme(), false)
			b.Leave(acme(), "a", wait)
		}, after, rollout.Tally{}},
		"nobody knows whose": {func(b *Box) {
			b.Enter(acme(), rollout.Canary, during)
			b.Leave(acme(), "a", wait)
		}, after, rollout.Tally{}},
		"while a start is under way": {func(b *Box) {
			b.start(acme(), rollout.Canary, "a", wait)
			b.Enter(acme(), rollout.Canary, during)
		}, after.Add(time.Hour), rollout.Tally{}},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBox(nil, nil)
			test.play(b)
			for range 2 {
				b.Close(test.at)
			}
			if diff := cmp.Diff(test.want, b.Of(tried)); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
		})
	}
}

// voted is an arm in which one tenant-minute voted so.
func voted(v Vote) rollout.Counts {
	c := rollout.Counts{Runs: 1, Ended: 1}
	if v.BusyTries > 0 {
		c.Contended = 1
	}
	if v.BusyTries > 1 {
		c.Busy = 1
	}
	c.Waits.Add(v.Wait)
	return c
}

// mutation: a claim with each start makes this fail.
func TestAProcessClaimsAMinuteOnce(t *testing.T) {
	b := NewBox(nil, nil)
	claims := 0
	for range 3 {
		for _, m := range []Minute{acme(), {tried, "beta", period}, {tried, "acme", period + 1}, {Entry{"shared", "77aa-3"}, "acme", period}} {
			if b.Enter(m, rollout.Canary, during) {
				claims++
			}
		}
	}
	if claims != 4 {
		t.Errorf("%d claims of 4 minutes", claims)
	}
}

// Of starts that found the lock busy each votes as often as the others.
//
// mutation: the vote of the first, or of the last, makes this fail.
func TestTheVoteIsDrawn(t *testing.T) {
	b := NewBox(nil, nil)
	const n = 1000
	for i := range n {
		m := Minute{Entry: tried, Tenant: fmt.Sprint("tenant-", i), Period: period}
		for j := range 4 {
			v := Vote{BusyTries: 1}
			if j == i%2*3 { // the first of four, or the last
				v.BusyTries = 2
			}
			b.start(m, rollout.Canary, fmt.Sprint("run-", i, "-", j), v)
		}
	}
	b.Close(after)
	if got := b.Of(tried).Canary; got.Ended != n || got.Contended != n || got.Busy < 200 || got.Busy > 300 {
		t.Errorf("%+v; want about a quarter of %d busy", got, n)
	}
}

// mutation: minutes without a bound make this fail.
func TestMinutesAreBounded(t *testing.T) {
	b := NewBox(nil, nil)
	for i := range maxMinutes + 10 {
		b.start(Minute{Entry: tried, Tenant: fmt.Sprint(i), Period: period}, rollout.Canary, "a", Vote{})
	}
	if len(b.minutes) != maxMinutes {
		t.Errorf("%d minutes are looked at; want %d", len(b.minutes), maxMinutes)
	}
	next := Minute{Entry: tried, Tenant: "late", Period: period + 1}
	if !b.Enter(next, rollout.Canary, after) || len(b.minutes) != 1 {
		t.Errorf("%d minutes are looked at; those that were over should be counted, to make room", len(b.minutes))
	}
	if got := b.Of(tried).Canary.Ended; got != maxMinutes {
		t.Errorf("%d votes; want %d", got, maxMinutes)
	}
}
