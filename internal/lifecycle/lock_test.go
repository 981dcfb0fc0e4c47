// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// lockFacts changes how the lease of held(1) fares.
type lockFacts func(*Lock)

func forRun(l *Lock)    { l.ForRun = true }
func isRenewed(l *Lock) { l.Renewed = true }
func fails(n int32, cause string) lockFacts {
	return func(l *Lock) { l.RenewalFailures, l.RenewalCause = n, cause }
}
func goesOn(l *Lock) { l.UnlockedSince = epoch }

func lockOf(facts ...lockFacts) Lock {
	l := held(1)
	for _, f := range facts {
		f(&l)
	}
	return l
}

// What is worth a write of its own, and an event.
//
// mutation: lockChanged that compares reasons makes "a renewal of a short lease" fail;
// without ForRun, "the first renewal of a lease kept for the run"; with it always set, "a
// renewal of a short lease".
func TestWhichNewsOfTheLockAreWorthAWrite(t *testing.T) {
	failing, unlocked := lockOf(fails(1, "x")), lockOf(fails(3, "x"), goesOn)
	for name, c := range map[string]struct {
		from, to Lock
		changed  bool
		event    string
	}{
		"nothing":                                       {lockOf(), lockOf(), false, ""},
		"a later lease":                                 {lockOf(), held(7), false, ""},
		"a renewal of a short lease":                    {lockOf(), lockOf(isRenewed), false, ""},
		"a lease that was not renewed":                  {lockOf(isRenewed, forRun), lockOf(forRun), false, ""},
		"a renewal fails":                               {lockOf(), failing, true, "Warning RenewalFailing"},
		"more failures, another cause":                  {failing, lockOf(fails(2, "y")), false, ""},
		"the validity ends":                             {failing, unlocked, true, "Warning ContinuingUnlocked"},
		"a longer time without the lock":                {unlocked, lockOf(fails(9, "y"), goesOn), false, ""},
		"renewed after a failure":                       {failing, lockOf(isRenewed), true, "Normal Renewed"},
		"renewed after a time without":                  {unlocked, lockOf(isRenewed), true, "Normal Renewed"},
		"a new lease after a failure":                   {failing, held(7), true, ""},
		"Redis is gone after a failure":                 {failing, unavailable(), true, "Warning LockStoreUnavailable"},
		"Redis is back":                                 {unavailable(), lockOf(), true, ""},
		"the first renewal of a lease kept for the run": {lockOf(forRun), lockOf(isRenewed, forRun), true, ""},
		"the next one":                                  {lockOf(isRenewed, forRun), lockOf(isRenewed, forRun), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"))
			advance(t, run, epoch)
			for _, l := range []Lock{lockOf(), c.from} {
				if out := decideAt(run, epoch, l); out.Changed {
					run.Status = persisted(t, &out.Status)
				}
			}
			out := decideAt(run, epoch.Add(time.Second), c.to)
			var events []string
			for _, e := range out.Events {
				events = append(events, e.Type+" "+e.Reason)
			}
			if got := strings.Join(events, ", "); out.Changed != c.changed || got != c.event {
				t.Errorf("changed %t, events %q; want %t, %q", out.Changed, got, c.changed, c.event)
			}
			if out.Changed {
				run.Status = persisted(t, &out.Status)
			}
			if again := decideAt(run, epoch.Add(time.Minute), c.to); again.Changed || len(again.Events) > 0 {
				t.Errorf("told twice: %v %v", again.Status.Conditions, again.Events)
			}
		})
	}
}

// mutation: counting policy, fence or lock as a change makes this fail.
func TestFencesLeasesAndPoliciesCostNoWrite(t *testing.T) {
	run := newRun(newStep("a"))
	advance(t, run, epoch)
	lock := held(5)
	lock.Renewed = true
	out := Decide(Input{Run: run, Now: epoch, Lock: lock, Policy: &v1alpha1.PolicyReference{Name: "p", Generation: 2}})
	if out.Changed {
		t.Error("a write for nothing but the writer's description")
	}
	if *out.Status.Fence != 5 || out.Status.Policy == nil || status.ReasonOf(&out.Status, v1alpha1.ConditionRunLockRenewed) != v1alpha1.ReasonLockRenewed {
		t.Errorf("they do not ride along: %v", out.Status)
	}
}

// mutation: an event whatever the condition said before makes this fail.
func TestALostLeaseIsToldAtOnceAndOnce(t *testing.T) {
	lost := func(l Lock) Lock {
		l.Lost = v1alpha1.ReasonOwnershipLost
		return l
	}
	for name, lock := range map[string]Lock{"under a later lease": held(9), "without the lock": busy(), "without Redis": unavailable()} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"))
			advance(t, run, epoch)
			out := decideAt(run, epoch, lost(lock))
			if c := status.Condition(&out.Status, v1alpha1.ConditionRunLockAbandoned); !out.Changed || !report.Abandoned(&out.Status) || c.Reason != v1alpha1.ReasonOwnershipLost {
				t.Fatalf("changed %t: %v", out.Changed, c)
			}
			if !slices.ContainsFunc(out.Events, func(e Event) bool { return e.Reason == v1alpha1.ConditionRunLockAbandoned }) {
				t.Errorf("events %v", out.Events)
			}
			if c := status.Condition(&out.Status, v1alpha1.ConditionRunLockRenewed); lock.State != LockHeld && c.Status != metav1.ConditionFalse {
				t.Errorf("a lease that was lost is said to be held: %v", c)
			}
			run.Status = persisted(t, &out.Status)
			if again := decideAt(run, epoch, lost(lock)); again.Changed || len(again.Events) > 0 {
				t.Errorf("told twice: %v", again.Events)
			}
			out = decideAt(run, epoch, held(10))
			if c := status.Condition(&out.Status, v1alpha1.ConditionRunLockAbandoned); !out.Changed || c.Reason != v1alpha1.ReasonRecovered {
				t.Errorf("changed %t: %v", out.Changed, c)
			}
		})
	}
}

// mutation: abandon left out of Written or of Waits in package report, or a reason that it does not
// look at, makes a case fail.
func TestALostLeaseIsToldWithOtherNews(t *testing.T) {
	cancelled := cleaned()
	advance(t, cancelled, epoch)
	cancelled.Spec.Shutdown = v1alpha1.ShutdownCancel
	for name, c := range map[string]struct {
		run  *v1alpha1.WorkflowRun
		lock Lock
		lost string
		news string // reason of an event that goes with it
	}{
		"an end is announced without the lock":     {cancelled, busy(), v1alpha1.ReasonLeaseDeadlineReached, v1alpha1.ReasonFinalizing},
		"Redis is down before the first write":     {newRun(newStep("a")), unavailable(), v1alpha1.ReasonLeaseDeadlineReached, v1alpha1.ReasonLockStoreUnavailable},
		"the cause cannot be a condition's reason": {newRun(newStep("a")), held(2), "not a reason", v1alpha1.ReasonAdmitted},
	} {
		t.Run(name, func(t *testing.T) {
			c.lock.Lost = c.lost
			out := decideAt(c.run, epoch, c.lock)
			want := c.lost
			if strings.Contains(want, " ") {
				want = v1alpha1.ReasonOwnershipLost
			}
			if got := status.Condition(&out.Status, v1alpha1.ConditionRunLockAbandoned); !report.Abandoned(&out.Status) || got.Reason != want {
				t.Errorf("condition %+v", got)
			}
			for _, reason := range []string{c.news, v1alpha1.ConditionRunLockAbandoned} {
				if !slices.ContainsFunc(out.Events, func(e Event) bool { return e.Reason == reason }) {
					t.Errorf("no event %s: %v", reason, out.Events)
				}
			}
		})
	}
}

// mutation: sayWaits that does not look at suspend makes this fail.
func TestARunThatIsSuspendedWhileRedisIsDownSaysSo(t *testing.T) {
	run := newRun(newStep("a"))
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1)})
	in.Gate = full(1)
	out := Decide(in)
	run.Status = persisted(t, &out.Status)
	run.Spec.Suspend, in.Lock = true, unavailable()
	if out = Decide(in); out.Status.Phase != v1alpha1.RunSuspended || out.Status.Admission != nil {
		t.Errorf("phase %s, queue clock %+v", out.Status.Phase, out.Status.Admission)
	}
}

// mutation: leaveAlone for runs without a status makes this fail: they would have one condition.
func TestALossBeforeTheFirstWriteWaitsForIt(t *testing.T) {
	lock := busy()
	lock.Lost = v1alpha1.ReasonOwnershipLost
	if out := decideAt(newRun(newStep("a")), epoch, lock); out.Changed {
		t.Errorf("written: %v", out.Status)
	}
}

func TestMessagesOfTheLock(t *testing.T) {
	for name, c := range map[string]struct {
		lock Lock
		want []string
	}{
		"failing": {lockOf(fails(2, "i/o timeout")), []string{"2", "i/o timeout", "still valid"}},
		"unlocked": {
			lockOf(fails(5, "i/o timeout"), goesOn), []string{"2026-11-20T10:00:00Z", "i/o timeout", "without the lock", "refuses a write", "taken again"},
		},
		"a cause without end": {lockOf(fails(1, strings.Repeat("x", 100_000))), []string{"still valid"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := decideAt(newRun(newStep("a")), epoch, c.lock)
			message := status.Condition(&out.Status, v1alpha1.ConditionRunLockRenewed).Message
			for _, want := range c.want {
				if !strings.Contains(message, want) {
					t.Errorf("%q does not say %q", message, want)
				}
			}
			if len(message) > bounds.MaxMessageChars {
				t.Errorf("%d characters", len(message))
			}
		})
	}
}

// mutation: a reason left out of failing, or abandoned that does not look at the condition's
// status, makes this fail.
func TestWhatStatusTellsOfALease(t *testing.T) {
	lost := held(2)
	lost.Lost = v1alpha1.ReasonOwnershipLost
	for name, c := range map[string]struct {
		locks              []Lock // each of one write
		failing, abandoned bool
	}{
		"nothing was written":    {nil, false, false},
		"it is held":             {[]Lock{lockOf()}, false, false},
		"a renewal failed":       {[]Lock{lockOf(fails(1, "x"))}, true, false},
		"it goes on unlocked":    {[]Lock{lockOf(fails(3, "x"), goesOn)}, true, false},
		"it is renewed again":    {[]Lock{lockOf(fails(1, "x")), lockOf(isRenewed)}, false, false},
		"one before it was lost": {[]Lock{lost}, false, true},
		"a later one took over":  {[]Lock{lost, held(3)}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"))
			for _, l := range c.locks {
				out := decideAt(run, epoch, l)
				run.Status = persisted(t, &out.Status)
			}
			if RenewalFailing(run) != c.failing || Abandoned(run) != c.abandoned {
				t.Errorf("failing %v, abandoned %v", RenewalFailing(run), Abandoned(run))
			}
		})
	}
}
