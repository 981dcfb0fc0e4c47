// SPDX-License-Identifier: Apache-2.0

package liveness

import (
	"testing"
	"time"
)

const patience = 30 * time.Second

// look is one answer: what the server says some seconds after the test began, and what it means.
// Sign and ack are seconds, too.
type look struct {
	at, sign, ack float64
	w             Workers
	want          Kind
	since         float64 // of NobodyPulls and Stuck
}

func (l look) workers(server time.Time) Workers {
	w := l.w
	w.Exists, w.AckWait, w.At = true, ackWait, seconds(server, l.at)
	if l.sign != 0 {
		w.LastSign = seconds(server, l.sign)
	}
	if l.ack != 0 {
		w.LastAck = seconds(server, l.ack)
	}
	return w
}

func seconds(t time.Time, s float64) time.Time { return t.Add(time.Duration(s * float64(time.Second))) }

func TestWhatAnswersMean(t *testing.T) {
	for name, looks := range map[string][]look{
		"an idle worker pulls": {
			{at: 10, w: Workers{Pulling: 1}, want: Pulling},
		},
		"no job, nobody": {
			{at: 10, want: NobodyPulls, since: 10},
		},
		"jobs are queued and nobody is there": {
			{at: 10, w: Workers{Queued: 2}, want: NobodyPulls, since: 10},
		},
		"a look between two requests just after a job was done": { // mutation: somebody without moved makes this fail
			{at: 10, w: Workers{Pulling: 1, Deliveries: 1, Reached: 1}, want: Pulling},
			{at: 13, w: Workers{Deliveries: 2, Reached: 2}, sign: 12.8, ack: 12.9, want: Pulling},
		},
		"the last worker left after its last job": { // mutation: somebody without moment makes this fail
			{at: 10, w: Workers{Pulling: 1, Deliveries: 1, Reached: 1}, want: Pulling},
			{at: 13, w: Workers{Deliveries: 2, Reached: 2}, sign: 11, ack: 11.9, want: NobodyPulls, since: 13},
		},
		"a busy worker that gives signs is there, also while nothing waits for long": {
			{at: 10, w: Workers{Busy: 1, Deliveries: 1, Reached: 1}, sign: 1, want: Pulling},
			{at: 13, w: Workers{Busy: 1, Deliveries: 1, Reached: 1}, sign: 11, want: Pulling},
			{at: 90, w: Workers{Busy: 1, Deliveries: 1, Reached: 1}, sign: 81, want: Pulling},
		},
		"a worker died with its job": { // mutation: silent that is never true makes this fail
			{at: 10, w: Workers{Busy: 1, Queued: 1, Deliveries: 1, Reached: 1}, sign: 5, want: Pulling},
			{at: 16, w: Workers{Busy: 1, Queued: 1, Deliveries: 1, Reached: 1}, sign: 5, want: Pulling},
			{at: 17.5, w: Workers{Busy: 1, Queued: 1, Deliveries: 1, Reached: 1}, sign: 5, want: NobodyPulls, since: 17.5},
		},
		"a worker died with its job before the first question": {
			{at: 60, w: Workers{Busy: 1, Deliveries: 1, Reached: 1}, sign: 5, want: NobodyPulls, since: 60},
		},
		"the server has just started, and the worker has not spoken yet": { // mutation: signAt from a zero LastSign makes this fail
			{at: 10, w: Workers{Busy: 1, Deliveries: 1, Reached: 1}, want: Pulling},
			{at: 20, w: Workers{Busy: 1, Deliveries: 1, Reached: 1}, want: Pulling},
			{at: 21, w: Workers{Busy: 1, Deliveries: 1, Reached: 1}, sign: 20.5, want: Pulling},
			{at: 30, w: Workers{Busy: 1, Deliveries: 1, Reached: 1}, sign: 20.5, want: Pulling},
		},
		"the server has just started, and the worker never comes back": {
			{at: 10, w: Workers{Busy: 1, Deliveries: 1, Reached: 1}, want: Pulling},
			{at: 23, w: Workers{Busy: 1, Deliveries: 1, Reached: 1}, want: NobodyPulls, since: 23},
		},
		"workers pull and get nothing though jobs are queued": { // mutation: without withheld this fails
			{at: 10, w: Workers{Pulling: 2, Queued: 5, Busy: 4, Deliveries: 4, Reached: 4}, sign: 9, want: Stuck, since: 10},
			{at: 13, w: Workers{Pulling: 2, Queued: 5, Busy: 4, Deliveries: 4, Reached: 4}, sign: 12, want: Stuck, since: 10},
		},
		"as many jobs as may be are with workers": { // mutation: full that is never true, or does not ask for signs, makes this fail
			{at: 10, w: Workers{Pulling: 2, Queued: 5, Busy: 4, MaxBusy: 4, Deliveries: 4, Reached: 4}, sign: 9, want: Full, since: 10},
			{at: 50, w: Workers{Pulling: 2, Queued: 5, Busy: 4, MaxBusy: 4, Deliveries: 4, Reached: 4}, sign: 48, want: Full, since: 10},
			{at: 58, w: Workers{Queued: 5, Busy: 4, MaxBusy: 4, Deliveries: 4, Reached: 4}, sign: 57, want: Full, since: 10},
			{at: 60, w: Workers{Pulling: 2, Queued: 4, Busy: 4, MaxBusy: 4, Deliveries: 5, Reached: 5}, sign: 59, ack: 58, want: Pulling},
			{at: 73, w: Workers{Pulling: 2, Queued: 4, Busy: 4, MaxBusy: 4, Deliveries: 5, Reached: 5}, sign: 59, ack: 58, want: Stuck, since: 60},
		},
		"as many jobs as may be are given to workers again and again": { // mutation: full without repeated makes this fail
			{at: 10, w: Workers{Pulling: 1, Queued: 1, Busy: 1, MaxBusy: 1, Deliveries: 1, Reached: 1}, sign: 9, want: Full, since: 10},
			{at: 40, w: Workers{Pulling: 1, Queued: 1, Busy: 1, MaxBusy: 1, Deliveries: 2, Reached: 1}, sign: 39, want: Full, since: 10},
			{at: 70, w: Workers{Pulling: 1, Queued: 1, Busy: 1, MaxBusy: 1, Deliveries: 3, Reached: 1}, sign: 69, want: Stuck, since: 10},
		},
		"fewer jobs than may be are with workers that pull and get nothing": {
			{at: 10, w: Workers{Pulling: 2, Queued: 5, Busy: 4, MaxBusy: 5, Deliveries: 4, Reached: 4}, sign: 9, want: Stuck, since: 10},
		},
		"workers pull, jobs are queued, and jobs move": { // mutation: Stuck without !moved makes this fail
			{at: 10, w: Workers{Pulling: 1, Deliveries: 4, Reached: 4}, sign: 9, want: Pulling},
			{at: 13, w: Workers{Pulling: 2, Queued: 5, Busy: 4, Deliveries: 8, Reached: 8}, sign: 11, want: Pulling},
			{at: 16, w: Workers{Pulling: 2, Queued: 5, Busy: 3, Deliveries: 8, Reached: 8}, sign: 11, ack: 14, want: Pulling},
		},
		"jobs queue behind a worker that does not get done": { // mutation: stalled that is never true makes this fail
			{at: 10, w: Workers{Busy: 1, Queued: 1, Deliveries: 1, Reached: 1}, sign: 9, want: Pulling},
			{at: 39, w: Workers{Busy: 1, Queued: 1, Deliveries: 1, Reached: 1}, sign: 38, want: Pulling},
			{at: 41, w: Workers{Busy: 1, Queued: 1, Deliveries: 1, Reached: 1}, sign: 40, want: Stuck, since: 10},
			{at: 44, w: Workers{Busy: 1, Deliveries: 2, Reached: 2}, sign: 43, ack: 43, want: Pulling},
		},
		"jobs queue behind workers that are slow, but get done": { // mutation: movedAt that stays makes this fail
			{at: 10, w: Workers{Busy: 1, Queued: 9, Deliveries: 1, Reached: 1}, sign: 9, want: Pulling},
			{at: 35, w: Workers{Busy: 1, Queued: 8, Deliveries: 2, Reached: 2}, sign: 34, ack: 34, want: Pulling},
			{at: 60, w: Workers{Busy: 1, Queued: 8, Deliveries: 2, Reached: 2}, sign: 59, ack: 34, want: Pulling},
		},
		"a job comes behind one that takes long": { // mutation: still without emptyAt makes this fail
			{at: 10, w: Workers{Busy: 1, Deliveries: 1, Reached: 1}, sign: 9, want: Pulling},
			{at: 90, w: Workers{Busy: 1, Deliveries: 1, Reached: 1}, sign: 89, want: Pulling},
			{at: 93, w: Workers{Busy: 1, Queued: 1, Deliveries: 1, Reached: 1}, sign: 89, want: Pulling},
			{at: 119, w: Workers{Busy: 1, Queued: 1, Deliveries: 1, Reached: 1}, sign: 118, want: Pulling},
			{at: 121, w: Workers{Busy: 1, Queued: 1, Deliveries: 1, Reached: 1}, sign: 120, want: Stuck, since: 90},
		},
		"a job is given to workers again and again": { // mutation: stalled without repeated makes this fail
			{at: 10, w: Workers{Pulling: 1, Busy: 1, Deliveries: 1, Reached: 1}, sign: 9, want: Pulling},
			{at: 40, w: Workers{Pulling: 1, Busy: 1, Deliveries: 2, Reached: 1}, sign: 39, want: Pulling},
			{at: 70, w: Workers{Pulling: 1, Busy: 1, Deliveries: 3, Reached: 1}, sign: 69, want: Stuck, since: 10},
			{at: 73, w: Workers{Pulling: 1, Deliveries: 3, Reached: 1}, sign: 69, ack: 72, want: Pulling},
			{at: 110, w: Workers{Pulling: 1, Deliveries: 3, Reached: 1}, sign: 69, ack: 72, want: Pulling},
		},
		// mutation: silence of those that pull which does not count makes this fail; so does a
		// second delivery that is no sign.
		"a worker takes jobs and hangs": {
			{at: 10, w: Workers{Pulling: 1, Busy: 1, Deliveries: 1, Reached: 1}, sign: 9, want: Pulling},
			{at: 20, w: Workers{Pulling: 1, Busy: 1, Deliveries: 1, Reached: 1}, sign: 9, want: Pulling},
			{at: 22, w: Workers{Pulling: 1, Busy: 1, Deliveries: 1, Reached: 1}, sign: 9, want: Stuck, since: 9},
			{at: 40, w: Workers{Pulling: 1, Busy: 1, Deliveries: 2, Reached: 1}, sign: 39, want: Pulling},
			{at: 52, w: Workers{Pulling: 1, Busy: 1, Deliveries: 2, Reached: 1}, sign: 39, want: Stuck, since: 39},
			{at: 70, w: Workers{Pulling: 1, Busy: 1, Deliveries: 3, Reached: 1}, sign: 69, want: Stuck, since: 10},
			{at: 73, w: Workers{Pulling: 1, Deliveries: 3, Reached: 1}, sign: 69, ack: 72, want: Pulling},
		},
		"a worker died, and another one does its job": { // mutation: again = 1 makes this fail
			{at: 10, w: Workers{Busy: 1, Pulling: 1, Deliveries: 1, Reached: 1}, sign: 9, want: Pulling},
			{at: 40, w: Workers{Busy: 1, Deliveries: 2, Reached: 1}, sign: 39, want: Pulling},
			{at: 99, w: Workers{Busy: 1, Deliveries: 2, Reached: 1}, sign: 90, want: Pulling},
		},
		"jobs given back twice in a moment": {
			{at: 10, w: Workers{Busy: 1, Deliveries: 1, Reached: 1}, sign: 9, want: Pulling},
			{at: 13, w: Workers{Busy: 1, Deliveries: 3, Reached: 1}, sign: 12, want: Pulling},
		},
		"the consumer was made again": { // mutation: anew without the count of deliveries makes this fail
			{at: 10, w: Workers{Busy: 1, Queued: 1, Deliveries: 8, Reached: 8}, sign: 9, ack: 5, want: Pulling},
			{at: 45, w: Workers{Queued: 1, Busy: 1, Deliveries: 1, Reached: 8}, sign: 44, want: Pulling},
			{at: 70, w: Workers{Queued: 1, Busy: 1, Deliveries: 1, Reached: 8}, sign: 69, want: Pulling},
			{at: 76, w: Workers{Queued: 1, Busy: 1, Deliveries: 1, Reached: 8}, sign: 75, want: Stuck, since: 45},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ours := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for clocks, server := range map[string]time.Time{"agree": ours, "the server's is ahead": ours.Add(time.Hour), "the server's is behind": ours.Add(-time.Hour)} {
				var m memory
				for _, l := range looks {
					now := seconds(ours, l.at)
					got := m.judge(l.workers(server), now, patience)
					want := verdict{l.want, now}
					if l.want != Pulling {
						want.since = seconds(ours, l.since)
					}
					if got != want {
						t.Errorf("clocks %s, at %gs: got %s since %s, want %s since %s", clocks, l.at, got.kind, got.since, want.kind, want.since)
					}
				}
			}
		})
	}
}

// Without a consumer nobody can pull, so it says nothing of workers; and what was seen before is of
// another consumer.
//
// mutations: judge that does not look whether it exists, or that remembers over it.
func TestATopicWithoutAConsumerSaysNothingOfItsWorkers(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	busy := look{w: Workers{Busy: 1, Queued: 1, Deliveries: 1, Reached: 1}, sign: 1}
	var m memory
	m.judge(busy.workers(now), now, patience)
	later := seconds(now, 40)
	if got := m.judge(Workers{}, later, patience); got != (verdict{NoConsumer, later}) {
		t.Errorf("got %s since %s", got.kind, got.since)
	}
	again := look{at: 41, w: Workers{Busy: 1, Queued: 1, Deliveries: 1, Reached: 1}, sign: 40.5}
	if got := m.judge(again.workers(now), seconds(now, 41), patience); got.kind != Pulling {
		t.Errorf("made again: %s since %s", got.kind, got.since)
	}
}
