// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// largeBatch is a run with step b over three items, and what is at hand: all of these succeeded,
// and so did c, on which d waits. Their outputs have together twice what a decision may load.
func largeBatch(t *testing.T, o objects) (*v1alpha1.WorkflowRun, []Result) {
	t.Helper()
	run := newRun(newStep("b", forEach("${[0,1,2]}", 3, "")), newStep("a"), newStep("c"), newStep("d", after("c")))
	run.Spec.ActiveDeadlineSeconds = new(int32(60))
	run.Spec.Finally = []v1alpha1.Step{newStep("tidy", input(`{"n":"${size(steps.b.output)}"}`))}
	o.advance(t, run, epoch)
	batch := []Result{succeeded("c", 1, "1")}
	for item := range 3 {
		batch = append(batch, o.putItem("b", item, padded(5<<20)))
	}
	return run, batch
}

// All results of a batch count before one of them ends the run, or a cancel does, also where their
// outputs are more than a decision may load. Nothing begins meanwhile. What ends a run at once, or
// without its lock, does not wait for them.
//
// mutations: endSoon that does not ask resultsFirst; startSteps without endsNext; endIfAllOver
// without failedBefore; that without its look at shutdown.
func TestResultsThatAreLeftToTheNextDecisionCountBeforeTheEnd(t *testing.T) {
	shutdown := func(wish v1alpha1.ShutdownMode) func(*v1alpha1.WorkflowRun) {
		return func(run *v1alpha1.WorkflowRun) { run.Spec.Shutdown = wish }
	}
	tests := map[string]struct {
		adjust func(*v1alpha1.WorkflowRun)
		result []Result
		after  time.Duration
		lock   Lock
		ends   v1alpha1.RunPhase
		atOnce bool
	}{
		"a step failed":   {result: []Result{finalFailure("a", 1)}, lock: held(1), ends: v1alpha1.RunFailed},
		"it is cancelled": {adjust: shutdown(v1alpha1.ShutdownCancel), lock: held(1), ends: v1alpha1.RunCancelled},
		"cancelled, and one is late": {adjust: func(run *v1alpha1.WorkflowRun) {
			run.Spec.Shutdown = v1alpha1.ShutdownCancel
			run.Spec.Steps[1].StartTimeoutSeconds, run.Spec.Steps[1].Retry.MaxFailures = 1, 1
		}, after: 2 * time.Second, lock: held(1), ends: v1alpha1.RunCancelled},
		"its parent is over":        {lock: held(1), ends: v1alpha1.RunCancelled},
		"a failure, after its time": {result: []Result{finalFailure("a", 1)}, after: time.Hour, lock: held(1), ends: v1alpha1.RunFailed},
		"it is terminated":          {adjust: shutdown(v1alpha1.ShutdownTerminate), lock: held(1), ends: v1alpha1.RunCancelled, atOnce: true},
		"cancelled without a lock":  {adjust: shutdown(v1alpha1.ShutdownCancel), lock: Lock{State: LockBusy}, ends: v1alpha1.RunCancelled, atOnce: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := objects{}
			run, batch := largeBatch(t, o)
			batch = append(tt.result, batch...)
			if tt.adjust != nil {
				tt.adjust(run)
			}
			for n := 0; run.Status.Ending == nil && !Finished(run); n++ {
				in := letIn(Input{Run: run, Now: epoch.Add(time.Second + tt.after), Lock: tt.lock, Results: batch})
				in.Answers.AsOf = in.Now
				if name == "its parent is over" {
					in.Parent = &Parent{Over: "is over", Named: true}
				}
				out := o.decide(in)
				if n > 10 {
					t.Fatalf("after %d decisions %d results wait", n, len(batch))
				}
				batch = waiting(batch, out.Verdicts)
				if ends := out.Status.Ending != nil || out.Status.Phase == tt.ends; !ends && (len(out.Dispatch) > 0 || out.MayLag || out.Wake.After(in.Now.Add(time.Second))) {
					t.Errorf("dispatched %d, may lag %t, wakes after %s", len(out.Dispatch), out.MayLag, out.Wake.Sub(in.Now))
				}
				run.Status = persisted(t, &out.Status)
			}
			end := run.Status.Phase
			if e := run.Status.Ending; e != nil {
				end = e.Phase
			}
			if b := run.Status.Steps[0].Phase; end != tt.ends || b != v1alpha1.StepSucceeded != tt.atOnce {
				t.Errorf("the run ends as %s, b is %s", end, b)
			}
			if d := run.Status.Steps[3]; d.Phase != v1alpha1.StepCancelled || d.Attempt != 0 {
				t.Errorf("d is %s, attempt %d", d.Phase, d.Attempt)
			}
		})
	}
}

// waiting are the results that wait for the next decision.
func waiting(results []Result, verdicts []Verdict) (left []Result) {
	for k, v := range verdicts {
		if v == Waiting {
			left = append(left, results[k])
		}
	}
	return left
}

// A run ends though what is left to its next decisions can never be loaded.
//
// mutation: leavesSome that does not ask whether something was applied makes this fail.
func TestARunEndsWhoseResultsCanNeverBeLoaded(t *testing.T) {
	run, batch := largeBatch(t, objects{})
	batch = append(batch, finalFailure("a", 1))
	decisions := 0
	for ; run.Status.Ending == nil && decisions < 10; decisions++ {
		out := Decide(letIn(Input{Run: run, Now: epoch.Add(time.Second), Lock: held(1), Results: batch}))
		batch, run.Status = waiting(batch, out.Verdicts), persisted(t, &out.Status)
	}
	if e := run.Status.Ending; e == nil || e.Phase != v1alpha1.RunFailed || decisions > 2 {
		t.Errorf("after %d decisions the end is %+v", decisions, e)
	}
}
