// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// oneSlot is a quota with one slot.
type oneSlot struct {
	taken    bool  // by another run
	failing  error // why there is no answer
	released int
}

func (q *oneSlot) Admit(context.Context, *v1alpha1.WorkflowRun, string, policy.Effective) (store.Answer, error) {
	return store.Answer{Admitted: !q.taken, Limit: 1}, q.failing
}

func (q *oneSlot) Release(context.Context, types.UID, string, string) error {
	q.released++
	return nil
}

func (q *oneSlot) Forget(types.UID) {}

// A run that waits for its locks gives its slot back, but for one of which status says that it
// keeps it: one that lost its turn in their line before, as there was no slot, or no word of one.
//
// mutations: Wrote that notes who was in no line, who gets a slot, who keeps its place,
// or who was suspended, or that looks at answers, and AwaitLocks that keeps nothing, or all.
func TestARunThatLostItsTurnForWantOfASlotKeepsTheNext(t *testing.T) {
	waits, soon := &v1alpha1.LocksWait{Lock: "mutex:ns/x"}, &metav1.MicroTime{Time: time.Unix(2_000_000_000, 0)}
	busy := &store.BusyError{}
	for name, tc := range map[string]struct {
		was, now  *v1alpha1.LocksWait // in status, before the first answer and after it
		kept      *metav1.MicroTime   // the slot, before it
		taken     bool                // whether there was a slot
		failing   error
		suspended bool
		lost      bool // its turn
	}{
		"lost its turn":                                  {was: waits, taken: true, lost: true},
		"lost its turn at a gate that was busy":          {was: waits, failing: busy, lost: true},
		"lost its turn at a gate that was being rebuilt": {was: waits, failing: &store.RebuildingError{}, lost: true},
		"kept its place, without an answer for a moment": {was: waits, now: waits, failing: &AskedError{}},
		"had its slot":                                   {was: waits, now: waits},
		"kept a slot, and had no more word":              {was: waits, kept: soon, failing: busy, lost: true},
		"was in no line":                                 {taken: true},
		"was suspended":                                  {was: waits, taken: true, suspended: true},
	} {
		t.Run(name, func(t *testing.T) {
			q, st := &oneSlot{taken: tc.taken, failing: tc.failing}, &State{}
			s := &Slots{Quota: q}
			run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: &v1alpha1.WorkflowRunStatus{
				Admission: &v1alpha1.AdmissionStatus{LockWait: tc.was, SlotKeptUntil: tc.kept},
			}}
			if _, err := s.Ask(t.Context(), st, run, "acme", policy.Effective{Name: "batch"}); !errors.Is(err, tc.failing) {
				if _, asked := errors.AsType[*AskedError](tc.failing); !asked {
					t.Fatal(err)
				}
			}
			next := run.DeepCopy()
			next.Status.Admission.LockWait, next.Status.Admission.SlotKeptUntil, next.Spec.Suspend = tc.now, nil, tc.suspended
			s.Wrote(st, run, next)
			if lost, _ := st.Idle(next, time.Unix(1_000_000_000, 0)); lost != tc.lost {
				t.Errorf("lost its turn: %v", lost)
			}
			q.taken, q.failing, q.released, next.Spec.Suspend = false, nil, 0, false
			if _, err := s.Ask(t.Context(), st, next, "acme", policy.Effective{Name: "batch"}); err != nil {
				t.Fatal(err)
			}
			kept := next.DeepCopy()
			kept.Status.Admission.SlotKeptUntil = soon
			for _, c := range []struct {
				run      *v1alpha1.WorkflowRun
				released int
			}{{kept, 0}, {next, 1}} {
				if err := s.AwaitLocks(t.Context(), st, c.run); err != nil || q.released != c.released || (st.Holding == nil) != (c.released > 0) {
					t.Errorf("given back %d times, %v", q.released, err)
				}
			}
		})
	}
}

// A run needs a slot which others take for a time, and a lock which yet others take for a time,
// without a pause between them. It is first in both lines, and is at the lock when it has the slot,
// for as long as it may keep that. However long the others take, and however they meet, it has both
// some day, and until then the slot is idle for a fifth of the time at the most.
//
// mutations: Idle that gives the same time each time, that counts a time twice, or before it is
// over, and that takes no rest.
func TestAKeptSlotIsEnoughSomeDay(t *testing.T) {
	began := time.Unix(1_000_000_000, 0)
	for _, held := range []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, 6 * time.Hour} {
		for _, taken := range []time.Duration{held, held / 16} { // the slot
			for phase := range time.Duration(8) {
				c := contest{held: held, taken: taken, apart: phase * taken / 8}
				if took := c.play(t, began); took > 20*max(held, leastIdle) {
					t.Errorf("others take %s and %s, %s apart: it begins after %s", held, taken, c.apart, took)
				}
			}
		}
	}
}

// contest is how long others have the lock and the slot.
type contest struct{ held, taken, apart time.Duration }

// play is how long it takes until the run has both.
func (c contest) play(t *testing.T, began time.Time) time.Duration {
	t.Helper()
	st, run := &State{turnLost: true}, &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Admission: &v1alpha1.AdmissionStatus{}}}
	var first time.Time
	var idle time.Duration // in vain
	now := began
	for range 5000 {
		now = now.Add(-c.apart).Truncate(c.taken).Add(c.taken + c.apart) // it gets the slot,
		free := now.Truncate(c.held).Add(c.held)                         // and the lock is taken until then
		may, longest := st.Idle(run, now)
		if !may {
			continue // others have the slot
		}
		if first.IsZero() {
			first = now
		}
		if now.Sub(first) < 5*idle {
			t.Fatalf("others take %s and %s: after %s the slot was idle for %s", c.held, c.taken, now.Sub(first), idle)
		}
		if !free.After(now.Add(longest)) {
			return free.Sub(began)
		}
		idle, now = idle+longest, now.Add(longest)
		run.Status.Admission.SlotKeptUntil = &metav1.MicroTime{Time: now}
		if may, _ := st.Idle(run, now); may {
			t.Fatal("it may keep the slot for longer than it may")
		}
	}
	t.Fatalf("others take %s and %s, %s apart: it never begins", c.held, c.taken, c.apart)
	return 0
}

// mutations: Idle that doubles beyond its range, or counts a time that is not over.
func TestASlotIsKeptForAMinuteAtFirst(t *testing.T) {
	for inVain, want := range map[int]time.Duration{0: time.Minute, 1: 2 * time.Minute, 9: 512 * time.Minute, 100: time.Minute << mostDoubled} {
		if _, got := (&State{inVain: inVain}).Idle(nil, time.Now()); got != want {
			t.Errorf("after %d times in vain: %s", inVain, got)
		}
	}
	end := time.Unix(1_000_000_000, 0)
	run := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Admission: &v1alpha1.AdmissionStatus{SlotKeptUntil: &metav1.MicroTime{Time: end}}}}
	st := &State{turnLost: true}
	for _, at := range []struct {
		now  time.Duration // after the end
		may  bool
		want time.Duration
	}{{-time.Second, true, time.Minute}, {0, false, 2 * time.Minute}, {time.Second, false, 2 * time.Minute}, {4 * time.Minute, true, 2 * time.Minute}} {
		if may, got := st.Idle(run, end.Add(at.now)); may != at.may || got != at.want {
			t.Errorf("%s after its end: %t, %s", at.now, may, got)
		}
	}
}
