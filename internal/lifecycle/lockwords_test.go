// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// heldBy is the answer to a question for a lock that others have.
func heldBy(lock string, holders ...string) LocksAnswer {
	return LocksAnswer{State: LocksWaiting, Lock: lock, Holders: holders}
}

// saidOf is the message of Succeeded.
func saidOf(out *Decision) string {
	return status.Condition(&out.Status, v1alpha1.ConditionSucceeded).Message
}

// saidAt is a moment as messages have it.
func saidAt(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// A message tells of one item that waits. The next one is told of when that has its lock, hours
// after it began to wait: who has the lock then did not have it at the beginning.
//
// mutations: holdersText that names the holders of a later moment beside the old one, asks nobody
// where none was told at first, or follows each answer, and holders that names the run itself,
// make this fail.
func TestAnItemThatIsToldOfLaterSaysWhoHasTheLockThen(t *testing.T) {
	run := fanOut(3, 3, v1alpha1.Collect)
	run.Spec.Steps[0].ForEach.Locks = []v1alpha1.LockRequest{mutexOf("m")}
	lock, own := "mutex:"+run.Namespace+"/m", run.Namespace+"/"+run.Name
	waits := func(holders ...string) map[string]LocksAnswer {
		a := heldBy(lock, holders...)
		return map[string]LocksAnswer{part(0): a, part(1): a, part(2): a}
	}
	decide := func(now time.Time, answers map[string]LocksAnswer, want string, results ...Result) {
		t.Helper()
		out := decideLocked(t, run, now, answers, results...)
		if got := saidOf(&out); !strings.HasSuffix(got, want) {
			t.Fatalf("it says %q\nwant at its end %q", got, want)
		}
	}
	of := func(item int) string {
		return fmt.Sprintf(", item %d waits for lock %s since %s", item, lock, saidAt(epoch))
	}
	decide(epoch, waits("n/m"), of(0)+", held then by n/m")

	later := epoch.Add(2 * time.Hour)
	next := waits(own)
	next[part(0)] = heldWith(7)
	want := of(1) + ", held at " + saidAt(later) + " by another part of this run"
	decide(later, next, want)
	for name, answers := range map[string]map[string]LocksAnswer{"others have it": waits("x/y"), "nobody was asked": nil} {
		if out := decideLocked(t, run, later.Add(time.Second), answers); out.Changed || !strings.HasSuffix(saidOf(&out), want) {
			t.Errorf("%s: changed %t, %q", name, out.Changed, saidOf(&out))
		}
	}

	first := ofItem(0, succeeded("all", 1, "1"))
	decide(later.Add(2*time.Second), map[string]LocksAnswer{part(1): heldWith(8)}, of(2), first) // nobody asked for item 2
	told := later.Add(3 * time.Second)
	decide(told, map[string]LocksAnswer{part(2): heldBy(lock, "x/y", "n/m")}, of(2)+", held at "+saidAt(told)+" by x/y, n/m")
	if out := decideLocked(t, run, told.Add(time.Second), waits("n/m")); out.Changed {
		t.Errorf("another holder is written: %s", saidOf(&out))
	}
}

// A name of this run that is not that of a part of it is one of another run that had the name.
//
// mutation: holders that does not look whether the run has the lock makes this fail.
func TestAnEarlierRunOfTheNameIsNoPartOfThisOne(t *testing.T) {
	run := newRun(newStep("a", withStepLocks(mutexOf("m"))))
	own := run.Namespace + "/" + run.Name
	out := decideLocked(t, run, epoch, map[string]LocksAnswer{"a": heldBy("mutex:"+run.Namespace+"/m", own)})
	if got := saidOf(&out); !strings.HasSuffix(got, ", held then by "+own) {
		t.Errorf("it says %q", got)
	}
}

// What is said of a step that was behind "and N more" is of when it is first said.
//
// mutation: holdersText that takes each answer for one of the beginning makes this fail.
func TestAStepThatWasOneOfMoreSaysWhoHasTheLockThen(t *testing.T) {
	run := newRun()
	first, then := map[string]LocksAnswer{}, map[string]LocksAnswer{}
	for i := range 9 {
		name := fmt.Sprintf("s%d", i)
		run.Spec.Steps = append(run.Spec.Steps, newStep(name, withStepLocks(mutexOf("m"))))
		first[name], then[name] = heldBy("gpus/eu", "n/"+strings.Repeat("m", 40)), heldWith(int64(7+i))
	}
	out := decideLocked(t, run, epoch, first)
	if got := saidOf(&out); strings.Contains(got, "s8") || !strings.Contains(got, " more") {
		t.Fatalf("it says %q", got)
	}
	later := epoch.Add(2 * time.Hour)
	then["s8"] = heldBy("gpus/eu", "x/y")
	delete(then, "s0")
	for i := range 8 {
		s := &run.Status.Steps[i]
		s.LockWait, s.Phase = nil, v1alpha1.StepSkipped
	}
	out = decideLocked(t, run, later, then)
	if want := "; s8 waits for lock gpus/eu since " + saidAt(epoch) + ", held at " + saidAt(later) + " by x/y"; !strings.HasSuffix(saidOf(&out), want) {
		t.Errorf("it says %q\nwant at its end %q", saidOf(&out), want)
	}
}

// What was said of one step is not said of another, whose name it ends with, or whose item has the
// same number.
//
// mutations: holdersText that looks for the words of an item in all the message, or for those of a
// step at any place, make this fail.
func TestWhoHadALockIsSaidOfTheStepThatWaitsForIt(t *testing.T) {
	items := func(name string) v1alpha1.Step {
		s := newStep(name, forEach("${inputs.list}", 1, v1alpha1.Collect))
		s.ForEach.Locks = []v1alpha1.LockRequest{mutexOf("m")}
		return s
	}
	of := func(step string) string { return v1alpha1.ItemLocks{}.Part(step) }
	for name, c := range map[string]struct {
		steps  []v1alpha1.Step
		first  map[string]LocksAnswer
		second map[string]LocksAnswer
	}{
		"items": {
			[]v1alpha1.Step{items("x"), items("y")},
			map[string]LocksAnswer{of("x"): heldBy("gpus/eu", "n/m"), of("y"): heldBy("gpus/eu", "n/o")},
			map[string]LocksAnswer{of("x"): heldBy("gpus/eu", "n/p"), of("y"): heldBy("gpus/eu", "n/p")},
		},
		"steps": {
			[]v1alpha1.Step{newStep("ba", withStepLocks(mutexOf("m"))), newStep("a", withStepLocks(mutexOf("m")))},
			map[string]LocksAnswer{"ba": heldBy("gpus/eu", "n/m"), "a": heldBy("gpus/eu", "n/o")},
			map[string]LocksAnswer{"ba": heldBy("gpus/eu", "n/p"), "a": heldBy("gpus/eu", "n/p")},
		},
	} {
		run := newRun(c.steps...)
		run.Spec.Inputs = raw(`{"list":[1]}`)
		out := decideLocked(t, run, epoch, c.first)
		want := saidOf(&out)
		if !strings.Contains(want, "held then by n/m;") || !strings.HasSuffix(want, "held then by n/o") {
			t.Fatalf("%s: it says %q", name, want)
		}
		if out = decideLocked(t, run, epoch.Add(time.Second), c.second); out.Changed || saidOf(&out) != want {
			t.Errorf("%s: changed %t, it says %q\nwant %q", name, out.Changed, saidOf(&out), want)
		}
	}
}
