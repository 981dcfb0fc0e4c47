// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// deadlineOfAhead is the deadline of the runs below.
const deadlineOfAhead = time.Minute

// leftAhead is a run with a deadline whose operator wrote that step a began, had more begin ahead
// of that, and died.
func leftAhead(t *testing.T, adjust func(*v1alpha1.WorkflowRun), steps ...v1alpha1.Step) *v1alpha1.WorkflowRun {
	t.Helper()
	run := newRun(slices.Clone(steps)...)
	run.Spec.ActiveDeadlineSeconds = new(int32(deadlineOfAhead / time.Second))
	if adjust != nil {
		adjust(run)
	}
	out := objects{}.decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Checkpoint: Checkpoint{Coalesced: true}}))
	run.Status = persisted(t, &out.Status)
	return run
}

// at is a result that was stored so long after epoch.
func at(after time.Duration, r Result) Result {
	r.PublishedAt = epoch.Add(after)
	return r
}

// takenOver decides on a run as whoever has it next, after its deadline.
func takenOver(run *v1alpha1.WorkflowRun, input func(*Input), results ...Result) Decision {
	in := letIn(Input{Run: run, Now: epoch.Add(deadlineOfAhead + time.Second), Lock: held(2), Checkpoint: Checkpoint{Coalesced: true}, Results: results})
	if input != nil {
		input(&in)
	}
	return objects{}.decide(in)
}

// phases tells the phases of steps, and the attempts of those that began.
func phases(st *v1alpha1.WorkflowRunStatus) string {
	var all []string
	for i := range st.Steps {
		s := &st.Steps[i]
		all = append(all, fmt.Sprintf("%s %s %d", s.Name, s.Phase, s.Attempt))
	}
	return strings.Join(all, ", ")
}

// All results at hand count before one thing ends the run, also those to attempts of which its
// status does not know, because whoever had them begin died before it wrote that.
//
// mutations: applyResults without catchUp; mayBeBehind without the policy, status, or locks;
// mayHaveBegun without items; answersAhead without the time of the deadline, or with it before the
// deadline; catchUp that skips nothing, or what leads to no answer; catchUpStep that begins what
// cannot begin, or leaves a step begun that only started. Each fails a case.
func TestAnswersToAttemptsAheadCountBeforeTheRunEnds(t *testing.T) {
	chain := []v1alpha1.Step{newStep("a", maxFailures(1)), newStep("b", after("a"), maxFailures(2), input(`{"n":"${steps.a.output.n}"}`))}
	a, b := at(time.Second, succeeded("a", 1, `{"n":1}`)), at(deadlineOfAhead, succeeded("b", 1, `2`))
	late := at(deadlineOfAhead+time.Millisecond, succeeded("b", 1, `2`))
	shutdown := func(how v1alpha1.ShutdownMode) func(*v1alpha1.WorkflowRun) {
		return func(r *v1alpha1.WorkflowRun) { r.Spec.Shutdown, r.Spec.ActiveDeadlineSeconds = how, nil }
	}
	with := func(steps ...v1alpha1.Step) []v1alpha1.Step { return append(chain[:2:2], steps...) }
	for name, c := range map[string]struct {
		steps    []v1alpha1.Step
		adjust   func(*v1alpha1.WorkflowRun) // before its first write
		edit     func(*v1alpha1.WorkflowRun) // after it
		input    func(*Input)
		results  []Result
		run      v1alpha1.RunPhase
		want     string
		verdicts string
	}{
		"at the deadline":                       {results: []Result{a, b}, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, b Succeeded 1", verdicts: "[Applied Applied]"},
		"in another order":                      {results: []Result{b, a}, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, b Succeeded 1", verdicts: "[Applied Applied]"},
		"without the lock":                      {results: []Result{a, b}, input: func(in *Input) { in.Lock = unavailable() }, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, b Succeeded 1", verdicts: "[Applied Applied]"},
		"cancelled":                             {edit: shutdown(v1alpha1.ShutdownCancel), results: []Result{a, b}, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, b Succeeded 1", verdicts: "[Applied Applied]"},
		"cancelled, and no deadline makes late": {edit: shutdown(v1alpha1.ShutdownCancel), results: []Result{a, late}, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, b Succeeded 1", verdicts: "[Applied Applied]"},
		"terminated":                            {edit: shutdown(v1alpha1.ShutdownTerminate), results: []Result{a, b}, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, b Succeeded 1", verdicts: "[Applied Applied]"},
		"deleted":                               {edit: func(r *v1alpha1.WorkflowRun) { r.DeletionTimestamp = &metav1.Time{Time: epoch} }, results: []Result{a, b}, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, b Succeeded 1", verdicts: "[Applied Applied]"},
		"the policy is another by now":          {input: func(in *Input) { in.Checkpoint = Checkpoint{} }, results: []Result{a, b}, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, b Succeeded 1", verdicts: "[Applied Applied]"},
		"the policy is another since":           {edit: func(r *v1alpha1.WorkflowRun) { r.Status.Checkpoint = nil }, results: []Result{a, b}, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, b Succeeded 1", verdicts: "[Applied Applied]"},
		"never ahead":                           {edit: func(r *v1alpha1.WorkflowRun) { r.Status.Checkpoint = nil }, input: func(in *Input) { in.Checkpoint = Checkpoint{} }, results: []Result{a, b}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, b Cancelled 0", verdicts: "[Applied Ahead]"},
		"suspended, with time left":             {edit: func(r *v1alpha1.WorkflowRun) { r.Spec.Suspend = true }, input: func(in *Input) { in.Now = epoch.Add(2 * time.Second) }, results: []Result{a, b}, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, b Succeeded 1", verdicts: "[Applied Applied]"},
		"with time left by this clock":          {steps: with(newStep("c", after("b"))), input: func(in *Input) { in.Now = epoch.Add(deadlineOfAhead - 1) }, results: []Result{a, late}, run: v1alpha1.RunRunning, want: "a Succeeded 1, b Succeeded 1, c Dispatched 1", verdicts: "[Applied Applied]"},
		"stored after the deadline":             {results: []Result{a, late}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, b Cancelled 0", verdicts: "[Applied Ahead]"},
		"to a and not to b":                     {results: []Result{a}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, b Cancelled 0", verdicts: "[Applied]"},
		"to b and not to a":                     {results: []Result{b}, run: v1alpha1.RunTimedOut, want: "a Cancelled 1, b Cancelled 0", verdicts: "[Ahead]"},
		"b has only started":                    {results: []Result{a, at(2, result("b", 1, protocol.StatusStarted))}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, b Cancelled 0", verdicts: "[Applied Ahead]"},
		"b started and succeeded":               {results: []Result{a, at(2, result("b", 1, protocol.StatusStarted)), b}, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, b Succeeded 1", verdicts: "[Applied Applied Applied]"},
		"b failed, and would be tried again":    {results: []Result{a, at(2, failed("b", 1, "E", "m"))}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, b Cancelled 1", verdicts: "[Applied Applied]"},
		"b's answer is unusable":                {results: []Result{a, at(2, Result{ID: job("b", 1), Rejected: "no JSON"})}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, b Cancelled 1", verdicts: "[Applied Applied]"},
		"an attempt that is never ahead":        {results: []Result{a, at(2, succeeded("b", 2, `2`))}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, b Cancelled 0", verdicts: "[Applied Ahead]"},
		"a step that does not exist":            {results: []Result{a, at(2, succeeded("x", 1, `2`)), b}, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, b Succeeded 1", verdicts: "[Applied Ahead Applied]"},
		"three in a row":                        {steps: with(newStep("c", after("b"))), results: []Result{at(2, succeeded("c", 1, `3`)), b, a}, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, b Succeeded 1, c Succeeded 1", verdicts: "[Applied Applied Applied]"},
		"the last is not answered":              {steps: with(newStep("c", after("b"))), results: []Result{a, b}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, b Succeeded 1, c Cancelled 0", verdicts: "[Applied Applied]"},
		"behind one that was skipped": {
			steps:   []v1alpha1.Step{newStep("a"), newStep("s", after("a"), when("steps.a.output.n > 1")), newStep("b", after("s"))},
			results: []Result{a, b}, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, s Skipped 0, b Succeeded 1", verdicts: "[Applied Applied]",
		},
		"behind one that is wanted, and not answered": {
			steps:   []v1alpha1.Step{newStep("a"), newStep("s", after("a"), when("steps.a.output.n == 1")), newStep("b", after("s"))},
			results: []Result{a, b}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, s Cancelled 0, b Cancelled 0", verdicts: "[Applied Ahead]",
		},
		"behind one whose expression fails": {
			steps:   []v1alpha1.Step{newStep("a"), newStep("s", after("a"), when("steps.a.output.no == 1")), newStep("b", after("s"))},
			results: []Result{a, b}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, s Cancelled 0, b Cancelled 0", verdicts: "[Applied Ahead]",
		},
		"beside one that leads to no answer": {
			steps:   with(newStep("s", after("a"), when("false"))),
			results: []Result{a, b}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, b Succeeded 1, s Cancelled 0", verdicts: "[Applied Applied]",
		},
		"b is not wanted after this answer to a": {
			steps:   []v1alpha1.Step{newStep("a"), newStep("b", after("a"), when("steps.a.output.n > 1"))},
			results: []Result{a, b}, run: v1alpha1.RunSucceeded, want: "a Succeeded 1, b Skipped 0", verdicts: "[Applied Ahead]",
		},
		"b cannot begin after this answer to a": {
			steps:   []v1alpha1.Step{newStep("a"), newStep("b", after("a"), input(`{"n":"${steps.a.output.no}"}`))},
			results: []Result{a, b}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, b Cancelled 0", verdicts: "[Applied Ahead]",
		},
		"beside a failure that ends the run": {
			steps:   with(newStep("x", maxFailures(1))),
			results: []Result{a, b, at(3, failed("x", 1, "E", "m"))}, run: v1alpha1.RunFailed, want: "a Succeeded 1, b Succeeded 1, x Failed 1", verdicts: "[Applied Applied Applied]",
		},
		"beside a step that backs off": {
			steps:   with(newStep("x", maxFailures(2))),
			results: []Result{a, b, at(3, failed("x", 1, "E", "m"))}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, b Succeeded 1, x Cancelled 1", verdicts: "[Applied Applied Applied]",
		},
		"items are never ahead": {
			steps:   []v1alpha1.Step{newStep("a"), newStep("b", after("a"), forEach("${[1]}", 1, v1alpha1.Collect))},
			results: []Result{a, ofItem(0, b), b}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, b Cancelled 0", verdicts: "[Applied Ahead Ahead]",
		},
		"nor are runs with locks": {
			adjust:  func(r *v1alpha1.WorkflowRun) { r.Spec.Steps[1].Locks = []v1alpha1.LockRequest{mutexOf("l")} },
			results: []Result{a, b}, run: v1alpha1.RunTimedOut, want: "a Succeeded 1, b Cancelled 0", verdicts: "[Applied Ahead]",
		},
		"nor are finally steps": {
			adjust:  func(r *v1alpha1.WorkflowRun) { r.Spec.Finally = []v1alpha1.Step{newStep("f")} },
			results: []Result{a, b, at(3, succeeded("f", 1, `1`))}, run: v1alpha1.RunRunning, want: "a Succeeded 1, b Succeeded 1, f Dispatched 1", verdicts: "[Applied Applied Ahead]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps := c.steps
			if steps == nil {
				steps = chain
			}
			run := leftAhead(t, c.adjust, steps...)
			if c.edit != nil {
				c.edit(run)
			}
			out := takenOver(run, c.input, c.results...)
			if got := phases(&out.Status); out.Status.Phase != c.run || got != c.want || fmt.Sprint(out.Verdicts) != c.verdicts {
				t.Errorf("the run is %s, %s, verdicts %v; want %s, %s, %s", out.Status.Phase, got, out.Verdicts, c.run, c.want, c.verdicts)
			}
			if out.MayLag || len(out.Dispatch) > 1 {
				t.Errorf("may lag %t, dispatches %v", out.MayLag, out.Dispatch)
			}
		})
	}
}

// Once an end is announced nothing of spec.steps begins, and finally steps are never ahead.
//
// mutation: mayHaveBegun that takes finally steps makes this fail.
func TestNothingIsAheadOfAnAnnouncedEnd(t *testing.T) {
	run := leftAhead(t, func(r *v1alpha1.WorkflowRun) {
		r.Spec.Finally, r.Spec.FinallyTimeoutSeconds = []v1alpha1.Step{newStep("f", maxFailures(1)), newStep("g", after("f"))}, 30
	}, newStep("a"))
	in := letIn(Input{Run: run, Now: epoch.Add(time.Second), Lock: held(1), Checkpoint: Checkpoint{Coalesced: true}, Results: []Result{succeeded("a", 1, "1")}})
	run.Status = persisted(t, new(Decide(in).Status))
	in = letIn(Input{Run: run, Now: epoch.Add(2 * time.Second), Lock: held(1), Checkpoint: Checkpoint{Coalesced: true}, Results: []Result{retryIn("f", 1, 300_000)}})
	run.Status = persisted(t, new(Decide(in).Status))
	in = letIn(Input{Run: run, Now: epoch.Add(time.Minute), Lock: held(1), Checkpoint: Checkpoint{Coalesced: true}, Results: []Result{succeeded("g", 1, "1")}})
	in.Answers = Answers{}
	if out := Decide(in); out.Status.Phase != v1alpha1.RunFailed || out.Needs.Answers || out.Verdicts[0] != Ahead {
		t.Errorf("the run is %s, asks %t, verdicts %v", out.Status.Phase, out.Needs.Answers, out.Verdicts)
	}
}

// A deadline asks the stream though nothing is in flight as far as status knows: what began ahead
// of that may have been answered.
//
// mutations: anyAnswerable that is anyInFlight, or true wherever the run may be behind, makes this
// fail.
func TestADeadlineAsksForAnswersToWhatMayHaveBegunAhead(t *testing.T) {
	a := at(time.Second, succeeded("a", 1, `{"n":1}`))
	for name, c := range map[string]struct {
		next v1alpha1.Step
		asks bool
	}{
		"a job may have begun":    {newStep("b", after("a")), true},
		"an approval has not":     {newStep("b", after("a"), approval(func(*v1alpha1.Approval) {})), false},
		"items have not":          {newStep("b", after("a"), forEach("${[1]}", 1, v1alpha1.Collect)), false},
		"without the lock either": {newStep("b", after("a")), true},
	} {
		t.Run(name, func(t *testing.T) {
			run := leftAhead(t, nil, newStep("a"), c.next)
			in := letIn(Input{Run: run, Now: epoch.Add(deadlineOfAhead), Lock: held(2), Results: []Result{a}})
			if strings.HasPrefix(name, "without") {
				in.Lock = busy()
			}
			in.Answers = Answers{}
			out := Decide(in)
			if ended := out.Status.Phase == v1alpha1.RunTimedOut; out.Needs.Answers != c.asks || out.Deferred != c.asks || ended == c.asks || len(out.Dispatch) > 0 {
				t.Errorf("asks %t, deferred %t, the run is %s, dispatches %v", out.Needs.Answers, out.Deferred, out.Status.Phase, out.Dispatch)
			}
			in.Answers.AsOf = in.Now
			if out = Decide(in); out.Status.Phase != v1alpha1.RunTimedOut {
				t.Errorf("with an empty stream the run is %s", out.Status.Phase)
			}
		})
	}
}

// The deadline waits while an answer to an attempt ahead cannot be applied for want of the object
// store: for a minute, as for any other answer. The step is left as it is meanwhile.
//
// mutations: catchUpStep, or skipAgain, that does not await what is lacking; a step that is left
// begun, or Started that is taken for applied, though the answer waits; an unlocked decision that
// forgets that an expression was left. Each fails a case.
func TestADeadlineWaitsForTheStoreForAnswersAhead(t *testing.T) {
	a, b := at(time.Second, succeeded("a", 1, `{"n":1}`)), at(2*time.Second, succeeded("b", 1, `2`))
	big := at(time.Second, succeeded("b", 1, `"`+strings.Repeat("x", 5000)+`"`))
	large := at(time.Second, objects{}.put("a", 1, `{"n":1,"pad":"`+strings.Repeat("x", 100_000)+`"}`))
	reads := input(`{"n":"${steps.a.output.n}"}`)
	started := at(time.Second, result("b", 1, protocol.StatusStarted))
	for name, c := range map[string]struct {
		steps    []v1alpha1.Step
		results  []Result
		verdicts string
		glance   bool
	}{
		"the answer is one for the store": {[]v1alpha1.Step{newStep("a"), newStep("b", after("a"))}, []Result{a, started, big}, "[Applied Ahead Waiting]", false},
		"its step reads one of the store": {[]v1alpha1.Step{newStep("a"), newStep("b", after("a"), reads)}, []Result{large, b}, "[Applied Ahead]", false},
		"one that was skipped reads it":   {[]v1alpha1.Step{newStep("a"), newStep("s", after("a"), when("steps.a.output.n > 1")), newStep("b", after("s"))}, []Result{large, b}, "[Applied Ahead]", false},
		"a glance does not evaluate":      {[]v1alpha1.Step{newStep("a"), newStep("b", after("a"), reads)}, []Result{a, b}, "[Applied Ahead]", true},
		"a glance does not skip either":   {[]v1alpha1.Step{newStep("a"), newStep("s", after("a"), when("steps.a.output.n > 1")), newStep("b", after("s"))}, []Result{a, b}, "[Applied Ahead]", true},
	} {
		t.Run(name, func(t *testing.T) {
			run := leftAhead(t, nil, c.steps...)
			in := letIn(Input{Run: run, Now: epoch.Add(deadlineOfAhead), Lock: held(2), Results: c.results, Glance: c.glance})
			for _, r := range c.results { // an output of the store is known to be there, and is not loaded
				if ref := r.Result.OutputRef; ref != nil {
					in.Payloads = Payloads{ref.Name: Payload{}}
				}
			}
			out := Decide(in)
			if !out.Deferred || out.Status.Phase != v1alpha1.RunRunning || out.Status.Steps[len(c.steps)-1].Phase != v1alpha1.StepPending || fmt.Sprint(out.Verdicts) != c.verdicts {
				t.Errorf("deferred %t, the run is %s, %s, verdicts %v", out.Deferred, out.Status.Phase, phases(&out.Status), out.Verdicts)
			}
			in.Lock = busy()
			if out = Decide(in); out.Status.Phase != v1alpha1.RunRunning || !c.glance && !out.Needs.Outputs() || out.Changed != c.glance {
				t.Errorf("without the lock: the run is %s, needs %+v, changed %t", out.Status.Phase, out.Needs, out.Changed)
			}
			in.Lock, in.Answers.MissingSince = held(2), in.Now.Add(-time.Minute)
			if out = Decide(in); out.Status.Phase != v1alpha1.RunTimedOut {
				t.Errorf("after a minute the run is %s", out.Status.Phase)
			}
		})
	}
}

// A step that fails by what its answer says ends the run as it would have without a crash.
//
// mutation: catchUpStep that applies successes only makes this fail.
func TestAFailureAheadOfStatusEndsTheRunAsSuch(t *testing.T) {
	run := leftAhead(t, nil, newStep("a"), newStep("b", after("a"), maxFailures(1)))
	out := takenOver(run, nil, at(1, succeeded("a", 1, `1`)), at(2, failed("b", 1, "E", "m")))
	if got := outcomeOf(&out.Status); got != "Failed/StepFailed" || out.Status.Steps[1].Error == nil || out.Status.Steps[1].Error.Code != "E" {
		t.Errorf("ended as %s, %s", got, phases(&out.Status))
	}
}

// catchingUp are the facts of whoever takes a run over at its deadline: a was answered, for which
// fifty steps wait, and these were, or one behind all of them.
func catchingUp(t *testing.T, said func(name string) Result, behind bool, options ...stepOption) Input {
	t.Helper()
	steps, results := []v1alpha1.Step{newStep("a")}, []Result{at(time.Second, succeeded("a", 1, `{"n":1}`))}
	var all []string
	for i := range 50 {
		name := fmt.Sprintf("b%02d", i)
		steps, all = append(steps, newStep(name, append(slices.Clone(options), after("a"))...)), append(all, name)
		if !behind {
			results = append(results, at(time.Second, said(name)))
		}
	}
	if behind {
		steps, results = append(steps, newStep("last", after(all...))), append(results, at(time.Second, said("last")))
	}
	run := leftAhead(t, func(r *v1alpha1.WorkflowRun) {
		r.Spec.MaxParallelSteps = 50
		r.Spec.Inputs = raw(`{"pad":"` + strings.Repeat("x", 50_000) + `","l":` + numbers(120) + `}`)
	}, steps...)
	return letIn(Input{Run: run, Now: epoch.Add(deadlineOfAhead), Lock: held(2), Results: results})
}

// What one pass evaluates is bounded also where it catches up: what is said of a step does not have
// its input rendered for nothing, and a step that is skipped counts as one that was got ahead with.
//
// mutations: answersAhead with steps that have only started, or whose answer is to another attempt;
// catchUpStep, or skipAgain, that skips a step and counts nothing. Each fails a case.
func TestCatchingUpTakesNoMoreThanAPassMay(t *testing.T) {
	padded := input(`{"pad":["${inputs.pad}","${inputs.pad}","${inputs.pad}","${inputs.pad}","${inputs.pad}"]}`)
	never := when("!(" + costly + ")")
	good := func(name string) Result { return succeeded(name, 1, `2`) }
	for name, c := range map[string]struct {
		in  Input
		cut bool
	}{
		"they have only started":         {catchingUp(t, func(name string) Result { return result(name, 1, protocol.StatusStarted) }, false, padded), false},
		"they are of another attempt":    {catchingUp(t, func(name string) Result { return succeeded(name, 2, `2`) }, false, padded), false},
		"they succeeded":                 {catchingUp(t, good, false, padded), true},
		"they are not wanted":            {catchingUp(t, good, false, never), true},
		"one is behind all that are not": {catchingUp(t, good, true, never), true},
	} {
		t.Run(name, func(t *testing.T) {
			out := Decide(c.in)
			if out.Cut != c.cut || out.Deferred != c.cut || (out.Status.Phase == v1alpha1.RunTimedOut) == c.cut {
				t.Errorf("cut %t, deferred %t, the run is %s", out.Cut, out.Deferred, out.Status.Phase)
			}
			if taken(out) > bounds.MaxDecisionCost+2*expr.MaxCost {
				t.Errorf("it took %d units", taken(out))
			}
			if e := out.Evaluated; e != nil && e.Bytes > bounds.MaxRenderedTogether+bounds.MaxRenderedBytes {
				t.Errorf("%d bytes were rendered", e.Bytes)
			}
		})
	}
}
