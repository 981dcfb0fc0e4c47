// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// A step was told to wait while its operator's clock was an hour ahead. When a right clock looks at
// it, it waits as long as it can have been told to, no longer, and then it goes on.
//
// mutation: boundWaits left out of Decide, one of its cases left out, no items in it, the wait of a
// failure without its jitter, or a policy's limit that is not asked for makes a case fail.
func TestAWaitThatAWrongClockMadeTooLongIsShortened(t *testing.T) {
	ahead := epoch.Add(time.Hour)
	second := int64(1000)
	slow := func(s *v1alpha1.Step) {
		minutes, jitter := int64(60_000), int32(50)
		s.Retry.Backoff = v1alpha1.Backoff{InitialMillis: &minutes, MaxMillis: &minutes, JitterPercent: &jitter}
	}
	asks := result("a", 1, protocol.StatusRetry)
	asks.Result.RetryAfterMillis = second
	ofItem0 := asks
	ofItem0.ID.Item = "0"
	failedItem := failed("a", 1, "Flaky", "")
	failedItem.ID.Item = "0"
	for name, c := range map[string]struct {
		step    v1alpha1.Step
		result  []Result
		limit   time.Duration
		longest time.Duration
	}{
		"a failure":                                {newStep("a"), []Result{failed("a", 1, "Flaky", "")}, 5 * time.Second, 5 * time.Second},
		"a failure with a long backoff":            {newStep("a", slow), []Result{failed("a", 1, "Flaky", "")}, 5 * time.Second, 90 * time.Second},
		"a worker's wish":                          {newStep("a"), []Result{asks}, 5 * time.Second, 5 * time.Second},
		"a worker's wish, and a long backoff":      {newStep("a", slow), []Result{asks}, 5 * time.Second, 5 * time.Second},
		"a worker's wish, with the schema's limit": {newStep("a"), []Result{asks}, 0, bounds.DefaultMaxRetryAfter},
		"an item's failure":                        {newStep("a", slow, forEach("${[1]}", 1, "")), []Result{failedItem}, 5 * time.Second, 90 * time.Second},
		"an item's wish":                           {newStep("a", forEach("${[1]}", 1, "")), []Result{ofItem0}, 5 * time.Second, 5 * time.Second},
		"a delay":                                  {newStep("a", delay(7)), nil, 5 * time.Second, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(c.step)
			decide := func(now time.Time, results ...Result) Decision {
				in := letIn(Input{Run: run, Now: now, Lock: held(1), Results: results, MaxRetryAfter: c.limit})
				out := objects{}.decide(in)
				if out.Changed {
					run.Status = persisted(t, &out.Status)
				}
				return out
			}
			decide(ahead)
			if c.result != nil {
				decide(ahead, c.result...)
			}
			told := waitOf(run).Sub(ahead)
			if told <= 0 || told > c.longest {
				t.Fatalf("told to wait for %s", told)
			}

			out := decide(epoch)
			if got := waitOf(run); !out.Changed || !got.Equal(epoch.Add(c.longest)) || !out.Wake.Equal(got) {
				t.Errorf("waits until %s, looked at again at %s; want %s", got, out.Wake, epoch.Add(c.longest))
			}
			if out := decide(epoch.Add(time.Second)); out.Changed {
				t.Error("it is counted anew once more")
			}
			if out := decide(epoch.Add(c.longest)); len(out.Dispatch) == 0 && out.Status.Phase != v1alpha1.RunSucceeded {
				t.Errorf("it does not go on: %+v", out.Status.Steps[0])
			}
		})
	}
}

// A wait that began by a clock that was an hour ahead began now at the latest, so its time is not
// over an hour too late. One that began by a clock that is a little ahead stays as it is.
//
// mutation: boundWaits without one of its beginnings, or without the tolerance, makes a case fail.
func TestAWaitThatAWrongClockBeganBeginsNow(t *testing.T) {
	approve := newStep("a", approval(func(a *v1alpha1.Approval) { a.TimeoutSeconds = new(int32(60)) }))
	locked := newStep("a", withStepLocks(mutexOf("db")))
	runLocked, queued, ending := newRun(newStep("a")), newRun(newStep("a")), newRun(newStep("a"))
	runLocked.Spec.Locks = []v1alpha1.LockRequest{mutexOf("db")}
	queued.Spec.QueueTimeoutSeconds = new(int32(60))
	ending.Spec.Steps[0].Retry.MaxFailures = 1
	ending.Spec.Finally, ending.Spec.FinallyTimeoutSeconds = []v1alpha1.Step{newStep("tidy")}, 60
	waits := LocksAnswer{State: LocksWaiting, Lock: "mutex:x/db", TTL: time.Minute}
	for name, c := range map[string]struct {
		run    *v1alpha1.WorkflowRun
		part   string // that waits for a lock
		gate   GateState
		result []Result
	}{
		"an approval":              {newRun(approve), "-", GateOpen, nil},
		"a run's lock":             {runLocked, "", GateOpen, nil},
		"a step's lock":            {newRun(locked), "a", GateOpen, nil},
		"an item's lock":           {lockedItems(1, 1, v1alpha1.Collect), part(0), GateOpen, nil},
		"a place for the tenant":   {queued, "-", GateFull, nil},
		"clean-up after a failure": {ending, "-", GateOpen, []Result{failed("a", 1, "E", "")}},
	} {
		for clock, begins := range map[time.Duration]time.Duration{time.Hour: 0, time.Second: time.Second} {
			t.Run(name+" by a clock ahead by "+clock.String(), func(t *testing.T) {
				run := c.run.DeepCopy()
				decide := func(now time.Time, results ...Result) Decision {
					in := letIn(Input{Run: run, Now: now, Lock: held(1), Results: results, Locks: map[string]LocksAnswer{c.part: waits}})
					in.Gate.State = c.gate
					out := Decide(in)
					if out.Changed {
						run.Status = persisted(t, &out.Status)
					}
					return out
				}
				decide(epoch.Add(clock))
				decide(epoch.Add(clock), c.result...)
				end := epoch.Add(begins).Add(time.Minute)
				if out := decide(epoch); out.Changed != (begins == 0) || !out.Wake.Equal(end) {
					t.Fatalf("changed: %t, looked at again at %s, want %s", out.Changed, out.Wake, end)
				}
				if out := decide(epoch.Add(500 * time.Millisecond)); out.Changed {
					t.Error("it begins once more")
				}
				if decide(end); run.Status.CompletedAt == nil {
					t.Errorf("its time is not over: %s", outcomeOf(run.Status))
				}
			})
		}
	}
}

// Clocks that differ by less than a second, and clocks that are behind, change no wait; nor does
// any clock the moment that a user chose.
//
// mutation: no tolerance, or a delay until a moment that is shortened, makes a case fail.
func TestOtherWaitsStayAsTheyAre(t *testing.T) {
	until := func(s *v1alpha1.Step) {
		at := *bounds.Second(epoch.Add(48 * time.Hour))
		s.Job, s.Delay = nil, &v1alpha1.Delay{Until: &at}
	}
	asks := result("a", 1, protocol.StatusRetry)
	asks.Result.RetryAfterMillis = 30_000
	for name, c := range map[string]struct {
		step   v1alpha1.Step
		result []Result
		clock  time.Duration
		want   time.Duration // from epoch
	}{
		"a clock that is a little ahead": {newStep("a"), []Result{asks}, 900 * time.Millisecond, 30_900 * time.Millisecond},
		"a clock that is behind":         {newStep("a"), []Result{asks}, -10 * time.Second, 20 * time.Second},
		"a moment that a user chose":     {newStep("a", until), nil, time.Hour, 48 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(c.step)
			for _, results := range [][]Result{nil, c.result} {
				if out := decideAt(run, epoch.Add(c.clock), held(1), results...); out.Changed {
					run.Status = persisted(t, &out.Status)
				}
			}
			if out := decideAt(run, epoch, held(1)); out.Changed || !waitOf(run).Equal(epoch.Add(c.want)) {
				t.Errorf("it waits until %s, and that changes: %t; want %s", waitOf(run), out.Changed, epoch.Add(c.want))
			}
		})
	}
}

// waitOf is until when the first step, or its first items, wait.
func waitOf(run *v1alpha1.WorkflowRun) time.Time {
	s := run.Status.Steps[0]
	switch {
	case s.DelayedUntil != nil:
		return s.DelayedUntil.Time
	case s.NextAttemptAt != nil:
		return s.NextAttemptAt.Time
	case s.ForEach != nil && len(s.ForEach.Groups) > 0 && s.ForEach.Groups[0].NextAttemptAt != nil:
		return s.ForEach.Groups[0].NextAttemptAt.Time
	default:
		return time.Time{}
	}
}

// The rules of the API refuse a time that is of the year 10000 in UTC, but a run from before them
// may have it, and may have begun.
//
// mutations: Begin of a delay without Writable, and delayProblem without YearProblem
// make this fail.
func TestADelayUntilATimeThatCannotBeWrittenStandsAndCanBeEnded(t *testing.T) {
	late := time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -12*60*60))
	begun := newRun(newStep("a"), newStep("b", after("a"), delayUntil(epoch.Add(time.Hour))))
	advance(t, begun, epoch)
	begun.Spec.Steps[1].Delay.Until.Time = late // so far its spec was fine
	advance(t, begun, epoch.Add(time.Second), succeeded("a", 1, "{}"))
	b := begun.Status.Steps[1]
	if b.Phase != v1alpha1.StepDelayed || b.DelayedUntil.UTC().Format(time.RFC3339) != "9999-12-31T23:59:59Z" {
		t.Fatalf("%s until %s", b.Phase, b.DelayedUntil)
	}
	if c := status.Condition(begun.Status, v1alpha1.ConditionSucceeded); c.Reason != v1alpha1.ReasonDelayed || !strings.Contains(c.Message, "9999-12-31T23:59:59Z") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	begun.Spec.Shutdown = v1alpha1.ShutdownCancel
	advance(t, begun, epoch.Add(2*time.Second))
	if begun.Status.Phase != v1alpha1.RunCancelled {
		t.Errorf("told to shut down: %s", begun.Status.Phase)
	}

	unseen := newRun(newStep("b", delayUntil(late)))
	advance(t, unseen, epoch)
	if c := status.Condition(unseen.Status, v1alpha1.ConditionSucceeded); c.Reason != v1alpha1.ReasonInvalidSpec ||
		c.Message != "spec.steps[0].delay.until: it is not in the years 2000 to 9999 of UTC" {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
}
