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

func (q *oneSlot) GiveUp(context.Context, *v1alpha1.WorkflowRun, string, string) error {
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
				Admission: &v1alpha1.AdmissionStatus{LockWait: tc.was, SlotExpiresAt: tc.kept},
			}}
			if _, err := s.Ask(t.Context(), st, run, "acme", policy.Effective{Name: "batch"}); !errors.Is(err, tc.failing) {
				if _, asked := errors.AsType[*AskedError](tc.failing); !asked {
					t.Fatal(err)
				}
			}
			next := run.DeepCopy()
			next.Status.Admission.LockWait, next.Status.Admission.SlotExpiresAt, next.Spec.Suspend = tc.now, nil, tc.suspended
			wrote(s, st, run, next, time.Unix(1_000_000_000, 0))
			if lost, _ := st.Idle(next, time.Unix(1_000_000_000, 0)); lost != tc.lost {
				t.Errorf("lost its turn: %v", lost)
			}
			q.taken, q.failing, q.released, next.Spec.Suspend = false, nil, 0, false
			if _, err := s.Ask(t.Context(), st, next, "acme", policy.Effective{Name: "batch"}); err != nil {
				t.Fatal(err)
			}
			kept := next.DeepCopy()
			kept.Status.Admission.SlotExpiresAt = soon
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
// mutations: State.sees that counts no time, or takes no rest, and Idle that gives the same time
// each time.
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
	st, run := &State{turnLost: true}, keepsUntil(time.Time{})
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
		kept := keepsUntil(now.Add(longest))
		wrote(&Slots{}, st, run, kept, now)
		idle, now = idle+longest, now.Add(longest)
		wrote(&Slots{}, st, kept, run, now)
		if may, _ := st.Idle(run, now); may {
			t.Fatal("it may keep the slot for longer than it may")
		}
	}
	t.Fatalf("others take %s and %s, %s apart: it never begins", c.held, c.taken, c.apart)
	return 0
}

// mutations: Idle that doubles beyond its range, Idle or Wrote that counts nothing, and a time that
// is counted from where it was read.
func TestASlotIsKeptForAMinuteAtFirst(t *testing.T) {
	for inVain, want := range map[int]time.Duration{0: time.Minute, 1: 2 * time.Minute, 9: 512 * time.Minute, 100: time.Minute << mostDoubled} {
		if _, got := (&State{inVain: inVain}).Idle(nil, time.Now()); got != want {
			t.Errorf("after %d times in vain: %s", inVain, got)
		}
	}
	began := time.Unix(1_000_000_000, 0)
	end := began.Add(time.Minute)
	none, kept := keepsUntil(time.Time{}), keepsUntil(end)
	for name, sees := range map[string]func(st *State){
		"it was written when the minute was over": func(st *State) {
			wrote(&Slots{}, st, none, kept, began)
			if may, got := st.Idle(kept, end.Add(-time.Microsecond)); !may || got != time.Minute {
				t.Errorf("before its end: %t, %s", may, got)
			}
			wrote(&Slots{}, st, kept, none, end)
		},
		"the answer to the last write was lost":  func(st *State) { wrote(&Slots{}, st, none, kept, began) },
		"the answer to the first write was lost": func(st *State) { wrote(&Slots{}, st, kept, none, end) },
	} {
		st := &State{turnLost: true}
		sees(st)
		for _, at := range []struct {
			now time.Duration // after the end
			may bool
		}{{0, false}, {time.Second, false}, {4*time.Minute - 1, false}, {4 * time.Minute, true}} {
			if may, got := st.Idle(none, end.Add(at.now)); may != at.may || got != 2*time.Minute {
				t.Errorf("%s: %s after its end: %t, %s", name, at.now, may, got)
			}
		}
	}
}

// Another run comes before the one that keeps its slot, time after time, and sooner than its time
// is over, or the gate takes the slot away: each time begins anew.
//
// mutations: State.sees that takes a rest only where the time was used up, that counts a time that
// was cut short as one in vain, or that forgets a rest for a shorter one.
func TestASlotIsIdleForAFifthOfTheTimeThoughOthersComeBefore(t *testing.T) {
	began := time.Unix(1_000_000_000, 0)
	for _, cut := range []time.Duration{time.Second, 50 * time.Second, time.Minute, 7 * time.Minute} {
		st, none := &State{turnLost: true}, keepsUntil(time.Time{})
		var idle time.Duration
		for now := began; now.Before(began.Add(100 * time.Hour)); {
			may, longest := st.Idle(none, now)
			if !may {
				now = now.Add(time.Second)
				continue
			}
			if now.Sub(began) < 5*idle {
				t.Fatalf("cut short after %s: in %s the slot was idle for %s", cut, now.Sub(began), idle)
			}
			if cut < leastIdle && longest != leastIdle {
				t.Fatalf("cut short after %s: it may keep it for %s", cut, longest)
			}
			kept, took := keepsUntil(now.Add(longest)), min(cut, longest)
			wrote(&Slots{}, st, none, kept, now)
			idle, now = idle+took, now.Add(took)
			wrote(&Slots{}, st, kept, none, now)
		}
		if idle < 15*time.Hour {
			t.Errorf("cut short after %s: it kept its slot for %s of 100 h", cut, idle)
		}
	}
	st := &State{turnLost: true, restsTo: began.Add(time.Hour)}
	wrote(&Slots{}, st, keepsUntil(began.Add(time.Minute)), keepsUntil(time.Time{}), began.Add(time.Second))
	if may, _ := st.Idle(keepsUntil(time.Time{}), began.Add(time.Hour-1)); may {
		t.Error("its rest ends before its time, by what was read late")
	}
}

// The clock is set while a run keeps its slot, or the machine sleeps: it rests for four minutes at
// the most, since it kept the slot for one at the most.
//
// mutations: sees that takes all that the clock says for kept, and Idle that believes in a rest of
// before the clock was set back.
func TestAStepOfTheClockMakesNoRestLonger(t *testing.T) {
	began := time.Unix(1_000_000_000, 0)
	for name, c := range map[string]struct {
		ended, now time.Time
		may        bool
	}{
		"a day ahead, and still":          {began.Add(24 * time.Hour), began.Add(24*time.Hour + 4*time.Minute), true},
		"a day ahead, and set back":       {began.Add(24 * time.Hour), began.Add(8 * time.Minute), false},
		"an hour back":                    {began.Add(-time.Hour), began.Add(-time.Hour), true},
		"after half a minute":             {began.Add(30 * time.Second), began.Add(150 * time.Second), true},
		"after half a minute, and sooner": {began.Add(30 * time.Second), began.Add(150*time.Second - 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			st, none, kept := &State{turnLost: true}, keepsUntil(time.Time{}), keepsUntil(began.Add(leastIdle))
			wrote(&Slots{}, st, none, kept, began)
			wrote(&Slots{}, st, kept, none, c.ended)
			if may, _ := st.Idle(none, c.now); may != c.may {
				t.Errorf("it may keep a slot: %t, want %t; it rests to %s", may, c.may, st.restsTo)
			}
			end := c.now.Add(restFactor * st.longest())
			if may, _ := st.Idle(none, end); !may {
				t.Errorf("it rests for longer than it may have kept its slot: to %s", st.restsTo)
			}
		})
	}
}

// keepsUntil is a run that is not admitted, and keeps its slot; the zero time: it keeps none.
func keepsUntil(until time.Time) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Admission: &v1alpha1.AdmissionStatus{}}}
	if !until.IsZero() {
		run.Status.Admission.SlotExpiresAt = &metav1.MicroTime{Time: until}
	}
	return run
}

// wrote has this process write a run at a time.
func wrote(s *Slots, st *State, was, now *v1alpha1.WorkflowRun, at time.Time) {
	s.Wrote(st, was, now, at)
}

var errGone = errors.New("test: Redis is away")

// gone is a quota that cannot be reached.
type gone struct{ Quota }

func (gone) Release(context.Context, types.UID, string, string) error { return errGone }

func (gone) GiveUp(context.Context, *v1alpha1.WorkflowRun, string, string) error { return errGone }

// suspendedPasses makes passes over a run once it is suspended.
func suspendedPasses(t *testing.T, s *Slots, st *State, run *v1alpha1.WorkflowRun, n int) (failed error) {
	t.Helper()
	run = run.DeepCopy()
	run.Spec.Suspend = true
	for range n {
		failed = errors.Join(failed, s.ReleaseIfOver(t.Context(), st, run))
	}
	return failed
}

// Thousands of runs are suspended for long when a process takes over. The one before gave up what
// they had, and the resync finds what it left: their first passes ask Redis nothing, and fail at
// nothing while it is away.
//
// mutation: ReleaseIfOver that gives up what nobody saw.
func TestATakeOverAsksNothingOfSuspendedRuns(t *testing.T) {
	for name, q := range map[string]Quota{"with Redis": &oneSlot{}, "without": gone{}} {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: &v1alpha1.WorkflowRunStatus{
					Tenant: "acme", Policy: &v1alpha1.PolicyReference{Name: "batch"},
				}}
				if err := suspendedPasses(t, &Slots{Quota: q}, &State{}, run, 2); err != nil {
					t.Fatal(err)
				}
			}
			if q, ok := q.(*oneSlot); ok && q.released > 0 {
				t.Errorf("%d releases", q.released)
			}
		})
	}
}

// After a loss of Redis' data a run that may not be marked has a slot that its process did not ask
// for.
//
// mutations: GiveUp, or ReleaseIfOver of a run that is suspended, that looks only at what this
// process got; ReleaseIfOver that forgets what it saw, or what failed.
func TestASlotThatThisProcessDidNotGetIsGivenUp(t *testing.T) {
	run := func() *v1alpha1.WorkflowRun {
		return &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: &v1alpha1.WorkflowRunStatus{
			Tenant: "acme", Policy: &v1alpha1.PolicyReference{Name: "batch"},
		}}
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.WorkflowRun)
		give   func(s *Slots, run *v1alpha1.WorkflowRun) error
		want   int
	}{
		"its status is refused": {
			func(*v1alpha1.WorkflowRun) {},
			func(s *Slots, run *v1alpha1.WorkflowRun) error { return s.GiveUp(t.Context(), &State{}, run) }, 1,
		},
		"it is suspended": {
			func(*v1alpha1.WorkflowRun) {},
			func(s *Slots, run *v1alpha1.WorkflowRun) error {
				st := &State{}
				return errors.Join(s.ReleaseIfOver(t.Context(), st, run), suspendedPasses(t, s, st, run, 2))
			}, 1,
		},
		"its status was refused, and it is suspended": {
			func(*v1alpha1.WorkflowRun) {},
			func(s *Slots, run *v1alpha1.WorkflowRun) error {
				st := &State{}
				return errors.Join(s.GiveUp(t.Context(), st, run), suspendedPasses(t, s, st, run, 2))
			}, 2,
		},
		"it is suspended while Redis is away": {
			func(*v1alpha1.WorkflowRun) {},
			func(s *Slots, run *v1alpha1.WorkflowRun) error {
				st, q := &State{}, s.Quota
				s.Quota = gone{q}
				if err := errors.Join(s.ReleaseIfOver(t.Context(), st, run), suspendedPasses(t, s, st, run, 1)); !errors.Is(err, errGone) {
					t.Errorf("%v; want an error", err)
				}
				s.Quota = q
				return suspendedPasses(t, s, st, run, 2)
			}, 1,
		},
		"it ended, and was released as that was written": {
			func(run *v1alpha1.WorkflowRun) {
				run.Status.CompletedAt = &metav1.Time{Time: time.Unix(1_000_000_000, 0)}
			},
			func(s *Slots, run *v1alpha1.WorkflowRun) error { return s.ReleaseIfOver(t.Context(), &State{}, run) }, 0,
		},
		"nobody knows where": {
			func(run *v1alpha1.WorkflowRun) { run.Status.Tenant = "" },
			func(s *Slots, run *v1alpha1.WorkflowRun) error { return s.GiveUp(t.Context(), &State{}, run) }, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			q, r := &oneSlot{}, run()
			tc.change(r)
			if err := tc.give(&Slots{Quota: q}, r); err != nil || q.released != tc.want {
				t.Errorf("%d releases, %v; want %d", q.released, err, tc.want)
			}
		})
	}
}
