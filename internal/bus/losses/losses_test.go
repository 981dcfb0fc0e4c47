// SPDX-License-Identifier: Apache-2.0

package losses

import (
	"testing"
	"time"
)

const jobs, results = "JOBS", "RESULTS"

func newWatch() *Watch { return New(func(string, string) {}, jobs, results) }

// Mutations that make this fail: each case of Look, Stored and delivered left out; Sighting.losses
// not looked at; a loss by Stored or delivered that keeps created, or what came before it.
func TestWhatIsEvidenceOfALoss(t *testing.T) {
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	for name, c := range map[string]struct {
		story func(w *Watch)
		want  uint64
	}{
		"the first look": {func(w *Watch) { w.Begin(jobs).Look(at(1), 5) }, 0},
		"a stream that grows": {func(w *Watch) {
			w.Begin(jobs).Look(at(1), 5)
			w.Begin(jobs).Stored(6)
			w.Begin(jobs).Look(at(1), 7)
		}, 0},
		"a stream made anew": {func(w *Watch) {
			w.Begin(jobs).Look(at(1), 5)
			w.Begin(jobs).Look(at(2), 9)
			w.Begin(jobs).Look(at(2), 9)
		}, 1},
		"a stream made anew, and its other": {func(w *Watch) {
			w.Begin(jobs).Look(at(1), 5)
			w.Begin(results).Look(at(1), 5)
			w.Begin(jobs).Look(at(2), 0)
			w.Begin(results).Look(at(2), 0)
		}, 2},
		"a stream that was longer when it was looked at": {func(w *Watch) {
			w.Begin(jobs).Look(at(1), 5)
			w.Begin(jobs).Look(at(1), 4)
			w.Begin(jobs).Look(at(1), 4)
		}, 1},
		"a stream that was longer when it took a job": {func(w *Watch) {
			w.Begin(jobs).Stored(5)
			w.Begin(jobs).Look(at(1), 4)
		}, 1},
		"a stream that was longer when a job was read": {func(w *Watch) {
			w.Begin(jobs).Read(5)
			w.Begin(jobs).Look(at(1), 4)
		}, 1},
		"a stream that was longer when a result came": {func(w *Watch) {
			w.Delivered(results, 5, at(1))
			w.Begin(results).Look(at(1), 4)
		}, 1},
		"a job that was stored while the server answered": {func(w *Watch) {
			asked := w.Begin(jobs)
			w.Begin(jobs).Stored(6)
			asked.Look(at(1), 5)
		}, 0},
		"jobs whose confirmations overtook each other": {func(w *Watch) {
			one, two := w.Begin(jobs), w.Begin(jobs)
			two.Stored(6)
			one.Stored(5)
		}, 0},
		"a sequence that was given to a job before": {func(w *Watch) {
			w.Begin(jobs).Look(at(1), 5)
			w.Begin(jobs).Stored(5)
			w.Begin(jobs).Stored(6)
			w.Begin(jobs).Look(at(2), 6)
		}, 1},
		"jobs on their way when it was noticed": {func(w *Watch) {
			w.Begin(jobs).Look(at(1), 5)
			to, read := w.Begin(jobs), w.Begin(jobs)
			asked := w.Begin(jobs)
			w.Begin(jobs).Look(at(2), 0)
			to.Stored(1)
			to.Stored(6)
			read.Read(6)
			asked.Look(at(1), 5)
			w.Begin(jobs).Look(at(2), 1)
		}, 1},
		"results that come again": {func(w *Watch) {
			w.Delivered(results, 5, at(5))
			w.Delivered(results, 3, at(3)) // to a consumer that was made anew, or of another one
			w.Delivered(results, 3, at(3))
			w.Delivered(results, 5, at(5))
		}, 0},
		"results in any order, and a clock that was set back": {func(w *Watch) {
			w.Delivered(results, 5, at(50))
			w.Delivered(results, 6, at(20))
			w.Delivered(results, 4, at(60))
			w.Delivered(results, 6+rememberedArrivals, at(21))
			w.Delivered(results, 6, at(20))
		}, 0},
		"a result with the sequence of one before": {func(w *Watch) {
			w.Delivered(results, 4, at(4))
			w.Delivered(results, 5, at(5))
			w.Delivered(results, 4, at(6))
			w.Delivered(results, 4, at(6))
			w.Delivered(results, 5, at(7))
			w.Begin(results).Look(at(1), 5)
		}, 1},
		"a result that was on its way when the stream was made anew": {func(w *Watch) {
			w.Begin(results).Look(at(1), 5)
			w.Begin(results).Look(at(9), 0)
			w.Delivered(results, 5, at(5))
			w.Begin(results).Look(at(9), 0)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatch()
			c.story(w)
			if got := w.Count(); got != c.want {
				t.Errorf("%d losses, want %d", got, c.want)
			}
			if told := len(w.noticed) == 1; told != (c.want > 0) {
				t.Errorf("told: %t", told)
			}
		})
	}
}

// mutation: a stream that is not watched and is taken for one, or Intact that does not compare the
// losses, makes this fail.
func TestASightingIsIntactUntilItsStreamLosesData(t *testing.T) {
	w := newWatch()
	of, other, unknown := w.Begin(jobs), w.Delivered(results, 1, time.Unix(1, 0)), w.Begin("ANOTHER")
	unknown.Stored(5)
	unknown.Look(time.Unix(1, 0), 4)
	of.Look(time.Unix(1, 0), 5)
	w.Begin(jobs).Look(time.Unix(2, 0), 5)
	if of.Intact() || !other.Intact() || !unknown.Intact() || !w.Begin(jobs).Intact() || w.Count() != 1 {
		t.Errorf("intact: %t, %t, %t; %d losses", of.Intact(), other.Intact(), unknown.Intact(), w.Count())
	}
}
