package lifecycle

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func TestGoldenStories(t *testing.T) {
	stories := map[string]func(*testing.T) *story{
		"linear":      linearStory,
		"diamond":     diamondStory,
		"retry":       retryStory,
		"cancel":      cancelStory,
		"deadline":    deadlineStory,
		"queue":       queueStory,
		"suspend":     suspendStory,
		"invalid":     invalidStory,
		"unavailable": unavailableStory,
		"renewal":     renewalStory,
		"unlocked":    unlockedStory,
		"timeouts":    timeoutsStory,
		"rejected":    rejectedStory,
		"exhausted":   exhaustedStory,
		"approval":    approvalStory,
		"delay":       delayStory,
		"finally":     finallyStory,
		"continue":    continueStory,
		"child":       childStory,
		"family":      familyStory,
	}
	for name, play := range stories {
		t.Run(name, func(t *testing.T) { play(t).golden(name) })
	}
}

func linearStory(t *testing.T) *story {
	run := newRun(
		newStep("fetch", input(`{"url": "${inputs.url}", "tenant": "${run.tenant}"}`)),
		newStep("store", after("fetch"), input(`{"n": "${steps.fetch.output.n}", "text": "n is ${steps.fetch.output.n}"}`)),
	)
	run.Spec.Inputs = &runtime.RawExtension{Raw: []byte(`{"url":"https://example.org"}`)}
	run.Spec.TTLSecondsAfterFinished = new(int32(60))
	s := newStory(t, run)
	s.decide(0, "applied")
	s.decide(2*time.Second, "a worker takes fetch", result("fetch", 1, protocol.StatusStarted))
	s.decide(3*time.Second, "nothing new")
	s.decide(0, "fetch is answered", succeeded("fetch", 1, `{"n": 7.0, "also": [1, 2.5]}`))
	s.decide(0, "the answer is delivered again", succeeded("fetch", 1, `{"n": 8}`))
	s.decide(time.Second, "store is answered, the worker's Started comes late", succeeded("store", 1, ``), result("store", 1, protocol.StatusStarted))
	s.decide(time.Second, "late result", succeeded("fetch", 1, `{}`), succeeded("store", 2, `{}`))
	s.decide(59*time.Second, "the time to live is over")
	return s
}

func diamondStory(t *testing.T) *story {
	s := newStory(t, newRun(
		newStep("join", after("left", "right")), // before its dependencies in the spec
		newStep("top"),
		newStep("left", after("top"), when("steps.top.output.left")),
		newStep("right", after("top"), when("steps.top.output.right")),
		newStep("tail", after("right"), when(`steps.right.phase == "Succeeded"`)),
	))
	s.decide(0, "applied")
	s.decide(time.Second, "only left is wanted: right is skipped, and tail with it", succeeded("top", 1, `{"left":true,"right":false}`))
	s.decide(time.Second, "left is answered", succeeded("left", 1, `"done"`))
	s.decide(time.Second, "join is answered", succeeded("join", 1, `null`))
	return s
}

func retryStory(t *testing.T) *story {
	s := newStory(t, newRun(newStep("flaky")))
	s.decide(0, "applied")
	s.decide(time.Second, "attempt 1 fails", failed("flaky", 1, "E42", "connection reset"))
	s.decide(500*time.Millisecond, "too early")
	s.decide(time.Second, "the wait is over")
	s.decide(0, "late result of attempt 1", succeeded("flaky", 1, `{}`))
	retry := result("flaky", 2, protocol.StatusRetry)
	retry.Result.RetryAfterMillis = 5000
	s.decide(0, "the worker of attempt 2 asks for 5 s", retry)
	s.decide(5*time.Second, "the wait is over")
	s.decide(time.Second, "attempt 3 succeeds", succeeded("flaky", 3, `{"ok":true}`))
	return s
}

func cancelStory(t *testing.T) *story {
	s := newStory(t, newRun(newStep("a"), newStep("b"), newStep("c", after("a"))))
	s.decide(0, "applied")
	s.decide(time.Second, "a is taken", result("a", 1, protocol.StatusStarted))
	s.run.Spec.Shutdown = v1alpha1.ShutdownCancel
	s.run.Generation++
	s.lock = unavailable()
	s.decide(time.Second, "cancelled with Redis down; b's answer counts", succeeded("b", 1, `{}`))
	s.lock = held(9)
	s.decide(time.Second, "Redis is back; b's answer is delivered again", succeeded("b", 1, `{}`))
	return s
}

func deadlineStory(t *testing.T) *story {
	run := newRun(newStep("slow"), newStep("next", after("slow")))
	run.Spec.ActiveDeadlineSeconds = new(int32(30))
	s := newStory(t, run)
	s.decide(0, "applied")
	s.decide(29*time.Second, "not yet")
	s.lock = busy()
	s.decide(time.Second, "the deadline passes while another holds the lock")
	return s
}

func queueStory(t *testing.T) *story {
	run := newRun(newStep("a"))
	run.Spec.QueueTimeoutSeconds = new(int32(60))
	s := newStory(t, run)
	s.lock = unavailable()
	s.decide(time.Second, "applied while Redis is down")
	s.lock.Message = "i/o timeout"
	s.decide(5*time.Second, "still down, for another cause")
	s.decide(54*time.Second, "queueTimeoutSeconds passed since creation")
	return s
}

func suspendStory(t *testing.T) *story {
	run := newRun(newStep("a"), newStep("b", after("a")))
	run.Spec.Suspend = true
	run.Spec.QueueTimeoutSeconds = new(int32(60))
	s := newStory(t, run)
	s.decide(0, "applied with spec.suspend")
	s.decide(2*time.Hour, "the queue clock does not run")
	s.run.Spec.Suspend = false
	s.decide(0, "resumed")
	s.run.Spec.Suspend = true
	s.decide(time.Second, "suspended with a job in flight")
	s.decide(time.Second, "its result counts, nothing new starts", succeeded("a", 1, `{}`))
	s.run.Spec.Suspend = false
	s.decide(time.Second, "resumed again")
	s.decide(time.Second, "b is answered", succeeded("b", 1, `{}`))
	return s
}

func invalidStory(t *testing.T) *story {
	s := newStory(t, newRun(
		newStep("a", after("c")),
		newStep("b", after("a", "nowhere"), when("inputs.x ==")),
		newStep("c", after("b", "b")),
		newStep("a"),
		newStep("d", after("d"), input(`{"x": "${steps.}"}`)),
	))
	s.decide(0, "applied")
	return s
}

func unavailableStory(t *testing.T) *story {
	s := newStory(t, newRun(newStep("a"), newStep("b", after("a"))))
	s.lock = unavailable()
	s.decide(0, "applied while Redis is down")
	s.lock = held(1)
	s.decide(time.Second, "Redis is up")
	s.lock = unavailable()
	s.decide(time.Second, "Redis is down when the answer comes", succeeded("a", 1, `{}`))
	s.decide(time.Second, "still down", succeeded("a", 1, `{}`))
	s.lock = busy()
	s.decide(time.Second, "up, but another replica has the lock", succeeded("a", 1, `{}`))
	s.lock = held(3)
	s.lock.Lost = v1alpha1.ReasonLeaseDeadlineReached
	s.decide(time.Second, "a new lease; the last one was lost", succeeded("a", 1, `{}`))
	s.lock = held(4)
	s.lock.Renewed = true
	s.decide(time.Second, "another lease", succeeded("b", 1, `{}`))
	return s
}

func renewalStory(t *testing.T) *story {
	s := newStory(t, newRun(newStep("a"), newStep("b", after("a"))))
	s.lock.ForRun = true
	s.decide(0, "applied; the lock is kept for the run")
	s.lock.Renewed = true
	s.decide(10*time.Second, "renewed")
	s.decide(10*time.Second, "renewed again")
	s.lock.RenewalFailures, s.lock.RenewalCause = 1, "i/o timeout"
	s.decide(10*time.Second, "a renewal fails")
	s.lock.RenewalFailures, s.lock.RenewalCause = 2, "connection refused"
	s.decide(3*time.Second, "another one fails, for another cause")
	s.lock.RenewalFailures, s.lock.RenewalCause = 0, ""
	s.decide(3*time.Second, "renewed again")
	s.lock.RenewalFailures, s.lock.RenewalCause = 1, "i/o timeout"
	s.decide(10*time.Second, "a renewal fails")
	s.lock = unavailable()
	s.lock.Lost = v1alpha1.ReasonLeaseDeadlineReached
	s.decide(20*time.Second, "the lease ends, Redis is still down; a's answer waits", succeeded("a", 1, `{}`))
	s.lock.Lost = ""
	s.decide(time.Second, "still down", succeeded("a", 1, `{}`))
	s.lock = held(2)
	s.lock.ForRun = true
	s.decide(time.Second, "Redis is back", succeeded("a", 1, `{}`))
	s.lock = busy()
	s.lock.Lost = v1alpha1.ReasonOwnershipLost
	s.decide(time.Second, "Redis lost its data, and another replica has the lock; b's answer waits", succeeded("b", 1, `{}`))
	s.lock = held(4)
	s.lock.ForRun = true
	s.decide(time.Second, "the other replica is gone", succeeded("b", 1, `{}`))
	return s
}

func unlockedStory(t *testing.T) *story {
	s := newStory(t, newRun(newStep("a"), newStep("b", after("a"))))
	s.lock.ForRun, s.lock.Renewed = true, true
	s.decide(0, "applied; the policy is Continue")
	s.lock.RenewalFailures, s.lock.RenewalCause = 1, "i/o timeout"
	s.decide(10*time.Second, "Redis hangs")
	s.lock.RenewalFailures, s.lock.UnlockedSince = 5, s.now.Add(17*time.Second)
	s.decide(17*time.Second, "the validity ends")
	s.lock.RenewalFailures = 6
	s.decide(3*time.Second, "a's answer is applied all the same, and b is dispatched", succeeded("a", 1, `{}`))
	s.lock.RenewalFailures, s.lock.RenewalCause, s.lock.UnlockedSince, s.lock.Fence = 0, "", time.Time{}, 2
	s.decide(3*time.Second, "the lock was gone and is taken again, with the next fence")
	s.lock.RenewalFailures, s.lock.RenewalCause, s.lock.UnlockedSince = 3, "i/o timeout", s.now
	s.decide(3*time.Second, "without the lock again when the run ends", succeeded("b", 1, `{}`))
	return s
}

func timeoutsStory(t *testing.T) *story {
	run := newRun(newStep("a", maxFailures(2), initialMillis(0)), newStep("b"))
	run.Spec.MaxParallelSteps = 1
	s := newStory(t, run)
	s.decide(0, "applied; one place")
	s.decide(600*time.Second, "no worker took a; it is retried at once")
	s.decide(time.Second, "a is taken", result("a", 2, protocol.StatusStarted))
	s.decide(60*time.Second, "the worker is silent; its answer arrives with the time-out and counts", succeeded("a", 2, `{}`))
	s.decide(600*time.Second, "no worker took b")
	return s
}

func rejectedStory(t *testing.T) *story {
	s := newStory(t, newRun(newStep("a", maxFailures(2)), newStep("b")))
	s.decide(0, "applied")
	bad := Result{ID: job("a", 1), Rejected: "not a result: unexpected end of JSON input"}
	s.decide(time.Second, "an unusable result, twice", bad, bad)
	s.decide(2*time.Second, "the wait is over")
	s.decide(time.Second, "an unusable result again ends the run", Result{ID: job("a", 2), Rejected: "not a result: status \"Done\""})
	return s
}

func exhaustedStory(t *testing.T) *story {
	s := newStory(t, newRun(newStep("a"), newStep("b")))
	s.decide(0, "applied")
	s.dead = []DeadLetter{{ID: job("a", 1), Failures: 5, Cause: "write status: admission webhook denied the request"}}
	s.lock = busy()
	s.decide(time.Second, "a's result was put aside; the lock is busy")
	s.lock = unavailable()
	s.decide(time.Second, "Redis is down: it is not told yet")
	s.lock = held(2)
	dead := s.dead
	s.decide(time.Second, "told, under the lock")
	s.dead = dead
	s.decide(time.Second, "given again, because the answer to the write was lost")
	s.dead = []DeadLetter{
		{ID: job("b", 1), Failures: 5, Cause: "no"}, {ID: job("a", 1), Failures: 5, Cause: "redriven, and refused again"},
	}
	s.decide(time.Second, "two more")
	s.decide(597*time.Second, "the attempts time out: the steps are retried")
	s.decide(5*time.Second, "the waits are over")
	s.decide(time.Second, "answered", succeeded("a", 2, `{}`))
	s.run.Spec.Shutdown = v1alpha1.ShutdownCancel
	s.dead = []DeadLetter{{ID: job("b", 2), Failures: 5, Cause: "no"}}
	s.lock = unavailable()
	s.decide(time.Second, "one more, and cancelled with Redis down: the forced end tells it")
	return s
}
