// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/itemset"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// A success takes effect at the end of the batch; until then its item still looks as if it
// was in flight.
func TestAnItemHasOneEffectInABatch(t *testing.T) {
	final := func(item int) Result {
		r := ofItem(item, failed("all", 1, "E", "no"))
		r.Result.Final = true
		return r
	}
	bad := ofItem(0, result("all", 1, protocol.StatusSucceeded))
	bad.Rejected = "not JSON"
	tests := map[string]Result{
		"then failed for good":    final(0),
		"then failed":             ofItem(0, failed("all", 1, "E", "no")),
		"then a wish to retry":    ofItem(0, retryIn("all", 1, 500)),
		"then something unusable": bad,
	}
	for name, second := range tests {
		t.Run(name, func(t *testing.T) {
			run := fanOut(2, 2, v1alpha1.Collect)
			advance(t, run, epoch)
			out := advance(t, run, epoch, ofItem(0, succeeded("all", 1, `"x"`)), second)
			if diff := cmp.Diff([]Verdict{Applied, Duplicate}, out.Verdicts); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
			if f := run.Status.Steps[0].ForEach; f.Succeeded != 1 || f.Failed != 0 || run.Status.Steps[0].Error != nil {
				t.Errorf("%d succeeded, %d failed, error %s, in flight %v", f.Succeeded, f.Failed, report.ErrorText(run.Status.Steps[0].Error), InFlight(run))
			}
			advance(t, run, epoch, ofItem(1, succeeded("all", 1, `"y"`)))
			if got := textOf(run.Status.Steps[0].Output); got != `["x","y"]` {
				t.Errorf("output %s: %s", got, mustJSON(t, run.Status.Steps[0]))
			}
		})
	}
}

// padded is JSON text of about n bytes of which most are white space.
func padded(n int) string { return `{"a":` + strings.Repeat(" ", n) + `1}` }

// putItem stores an output as the worker of an item of a step does.
func (o objects) putItem(step string, item int, output string) Result {
	r := ofItem(item, result(step, 1, protocol.StatusSucceeded))
	ref := protocol.NewOutputRef(r.ID, []byte(output))
	o[ref.Name] = []byte(output)
	r.Result.OutputRef = &ref
	return r
}

// What one decision may load is shared by outputs of results and of earlier items: neither must
// wait for the other for ever, nor ask for more than the shell has room for.
//
// mutation: lackParts that counts only what earlier steps of the same decision asked for makes
// "three steps" panic: b's parts are in memory already when a's, which come first, are asked for.
func TestLargeOutputsOfItemsDoNotWaitForEver(t *testing.T) {
	one := func() *v1alpha1.WorkflowRun { return fanOut(2, 2, "") }
	two := func() *v1alpha1.WorkflowRun {
		run := newRun(newStep("a", forEach("${[0,1]}", 2, "")), newStep("b", forEach("${[0,1]}", 2, "")))
		return run
	}
	tests := map[string]struct {
		run           func() *v1alpha1.WorkflowRun
		first, second func(o objects) []Result
	}{
		"one step, the last one with white space": {
			one,
			func(o objects) []Result { return []Result{o.putItem("all", 0, text(4<<20))} },
			func(o objects) []Result { return []Result{o.putItem("all", 1, padded(5<<20))} },
		},
		"two steps end together": {
			two,
			func(o objects) []Result {
				return []Result{o.putItem("a", 0, text(4<<20)), o.putItem("b", 0, text(3<<20))}
			},
			func(o objects) []Result {
				return []Result{o.putItem("a", 1, text(3<<20)), o.putItem("b", 1, text(4<<20))}
			},
		},
	}
	tests["three steps, the first of which lacks an output at first, and another step"] = struct {
		run           func() *v1alpha1.WorkflowRun
		first, second func(o objects) []Result
	}{
		func() *v1alpha1.WorkflowRun {
			each := forEach("${[0,1]}", 2, "")
			return newRun(newStep("a", each), newStep("c", each), newStep("b", each), newStep("d"))
		},
		func(o objects) []Result {
			return []Result{o.putItem("a", 0, text(67<<20/10)), o.putItem("b", 0, text(76<<20/10)), ofItem(0, succeeded("c", 1, "1"))}
		},
		func(o objects) []Result {
			return []Result{o.put("d", 1, text(2<<20)), o.putItem("a", 1, text(1<<20)), o.putItem("c", 1, text(7<<20)), ofItem(1, succeeded("b", 1, "1"))}
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o, run := objects{}, tt.run()
			o.advance(t, run, epoch)
			give := func(results []Result) {
				for n := 0; len(results) > 0; n++ {
					out := o.advance(t, run, epoch, results...)
					var left []Result
					for k, v := range out.Verdicts {
						if v == Waiting {
							left = append(left, results[k])
						}
					}
					if results = left; n > 10 {
						t.Fatalf("after %d decisions with the object store at hand %d results still wait, wake %s", n, len(left), out.Wake)
					}
				}
			}
			give(tt.first(o))
			give(tt.second(o))
			if !Finished(run) {
				t.Errorf("not over")
			}
		})
	}
}

// A rendering is used for many jobs, of steps that read different outputs.
func TestARenderingSeesOutputsThatAreLoadedLater(t *testing.T) {
	run := newRun(newStep("big"), newStep("x", after("big")), newStep("y", after("big"), input(`{"v":"${steps.big.output}"}`)))
	o := objects{}
	o.advance(t, run, epoch)
	out := o.advance(t, run, epoch, succeeded("big", 1, text(6<<10)))
	payloads := Payloads{}
	r := render.New(run, payloads, nil)
	for k, id := range InFlight(run) {
		for _, ref := range r.Needs(id) {
			payloads[ref.Name] = Payload{Data: o[ref.Name]}
		}
		got, err := r.Job(id)
		if err != nil {
			t.Fatal(err)
		}
		if string(got.Input) != string(out.Dispatch[k].Input) {
			t.Errorf("job %s has input %.40s, was dispatched with %.40s", id, got.Input, out.Dispatch[k].Input)
		}
	}
}

// A late good result of another item is no dead letter.
func TestLateResultsOfItemsOfAFinishedRun(t *testing.T) {
	run := fanOut(3, 3, "")
	maxFailures(1)(&run.Spec.Steps[0])
	advance(t, run, epoch)
	bad := ofItem(0, result("all", 1, protocol.StatusSucceeded))
	bad.Rejected = "not JSON"
	advance(t, run, epoch, bad)
	if !Finished(run) {
		t.Fatal("not finished")
	}
	out := decideAt(run, epoch, held(1), ofItem(1, succeeded("all", 1, `1`)))
	if len(out.Rejected) > 0 || out.Verdicts[0] != Duplicate {
		t.Errorf("verdicts %v, rejected %v", out.Verdicts, out.Rejected)
	}
	if out = decideAt(run, epoch, held(1), bad); out.Rejected[0] != "not JSON" || out.Verdicts[0] != Duplicate {
		t.Errorf("the bad one again: verdicts %v, rejected %v", out.Verdicts, out.Rejected)
	}
}

// Where status has no room for outputs, items without any need no object; and objects are
// not named twice.
func TestItemsWithoutOutputNeedNoObject(t *testing.T) {
	steps := []v1alpha1.Step{newStep("all", forEach("${inputs.list}", 100, ""))}
	for i := range 100 {
		steps = append(steps, newStep(fmt.Sprint("s", i), after("all")))
	}
	run := newRun(steps...)
	run.Spec.Inputs = raw(`{"list":` + numbers(100) + `}`)
	o := objects{}
	o.advance(t, run, epoch)
	for item := range 10 {
		o.advance(t, run, epoch, ofItem(item, succeeded("all", 1, ``)))
	}
	f := run.Status.Steps[0].ForEach
	if len(f.OutputRefs) > 0 {
		t.Errorf("%d references, %d objects: %s", len(f.OutputRefs), len(o), f.OutputRefs[0].Name)
	}
}

// The worker of one item must not fail the step of all where failures are collected.
func TestADeepOutputOfAnItem(t *testing.T) {
	run, o := fanOut(2, 2, v1alpha1.Collect), objects{}
	maxFailures(1)(&run.Spec.Steps[0])
	o.advance(t, run, epoch)
	o.advance(t, run, epoch, ofItem(0, succeeded("all", 1, strings.Repeat("[", 10000)+strings.Repeat("]", 10000))))
	o.advance(t, run, epoch, ofItem(1, succeeded("all", 1, `1`)))
	if got := outcomeOf(run.Status); got != "Succeeded/Succeeded" {
		t.Errorf("outcome %s: %s", got, report.ErrorText(run.Status.Steps[0].Error))
	}
}

// mutation: listsAround of 1, or of 3.
func TestAnOutputOfAnItemIsAsDeepAsAListOfThemMayBe(t *testing.T) {
	for depth, want := range map[int]string{9998: "Succeeded/Succeeded", 9999: "Failed/StepFailed"} {
		run, o := fanOut(1, 1, v1alpha1.FailStep), objects{}
		maxFailures(1)(&run.Spec.Steps[0])
		o.advance(t, run, epoch)
		o.advance(t, run, epoch, ofItem(0, succeeded("all", 1, strings.Repeat("[", depth)+strings.Repeat("]", depth))))
		said := report.ErrorText(run.Status.Steps[0].Error)
		if got := outcomeOf(run.Status); got != want || want != "Succeeded/Succeeded" && !strings.Contains(said, "nested too deep") {
			t.Errorf("depth %d: outcome %s, want %s: %s", depth, got, want, said)
		}
	}
}

// Groups are made one to bound them: that must not take attempts away which retry allows, as long
// as they can be told apart.
func TestMergedItemsKeepTheirAttempts(t *testing.T) {
	var steps []v1alpha1.Step
	for i := range 20 {
		steps = append(steps, newStep(fmt.Sprint("s", i), forEach("${inputs.list}", 10, v1alpha1.Collect)))
	}
	run := newRun(steps...)
	run.Spec.Inputs = raw(`{"list":` + numbers(10) + `}`)
	o, now := objects{}, epoch
	o.advance(t, run, now)
	// s0: item 0 asks to be tried later, 1 fails once, 2 fails twice, 3.. are in flight
	// with some histories.
	give := func(rs ...Result) { now = now.Add(5 * time.Second); o.advance(t, run, now, rs...) }
	give(ofItem(2, failed("s0", 1, "E", "")), ofItem(3, retryIn("s0", 1, 1000)))
	now = now.Add(10 * time.Second)
	give()
	give(ofItem(3, retryIn("s0", 2, 1000)))
	give()
	give(ofItem(2, failed("s0", 2, "E", "")), ofItem(1, retryIn("s0", 1, 30000)), ofItem(0, result("s0", 1, protocol.StatusStarted)))
	now = now.Add(40 * time.Second)
	give()
	for _, id := range InFlight(run) {
		if id.Step == "s0" && id.Item == "1" {
			r := ofItem(1, failed("s0", id.Attempt, "E", ""))
			give(r)
		}
	}
	if f := run.Status.Steps[0].ForEach; f.FailedItems != "" {
		t.Errorf("items %s failed for good after one failure of 3 allowed", f.FailedItems)
	}
}

// mutation: a wait of its own for each item makes this fail: a thousand items that time out
// together would be a thousand groups.
func TestItemsThatFailTogetherAreTriedAgainTogether(t *testing.T) {
	run := fanOut(4, 4, v1alpha1.Collect)
	advance(t, run, epoch)
	advance(t, run, epoch, ofItem(0, failed("all", 1, "E", "")), ofItem(1, failed("all", 1, "E", "")), ofItem(3, failed("all", 1, "F", "")))
	advance(t, run, epoch, ofItem(2, failed("all", 1, "E", "")))
	groups := run.Status.Steps[0].ForEach.Groups
	if len(groups) != 2 || groups[0].Items+" "+groups[1].Items != "0-1,3 2" && groups[0].Items+" "+groups[1].Items != "2 0-1,3" {
		t.Errorf("groups %s", mustJSON(t, groups))
	}
}

// mutation: no room kept for items in store.room makes this fail.
func TestOutputsLeaveRoomForItemsInStatus(t *testing.T) {
	steps := []v1alpha1.Step{newStep("all", forEach("${inputs.list}", 10, ""))}
	for i := range 20 {
		steps = append(steps, newStep(fmt.Sprint("s", i)))
	}
	run, o := newRun(steps...), objects{}
	run.Spec.MaxParallelSteps = 30
	run.Spec.Inputs = raw(`{"list":` + numbers(3) + `}`)
	o.advance(t, run, epoch)
	inline := 0
	for i := range 20 {
		o.advance(t, run, epoch, succeeded(fmt.Sprint("s", i), 1, text(4000)))
		inline += len(textOf(run.Status.Steps[i+1].Output))
	}
	if limit := bounds.MaxOutputsBytes - bounds.ItemsBytes; inline == 0 || inline > limit {
		t.Errorf("%d bytes of outputs in status, at most %d leave room for items", inline, limit)
	}
}

// mutation: no bound of failedItems makes this fail.
func TestFailedItemsAreListedAsLongAsThereIsRoom(t *testing.T) {
	var steps []v1alpha1.Step
	for i := range 6 {
		steps = append(steps, newStep(fmt.Sprint("s", i), forEach("${inputs.list}", 1000, v1alpha1.Collect), maxFailures(1)))
	}
	run, o, now := newRun(steps...), objects{}, epoch
	run.Spec.Inputs = raw(`{"list":` + numbers(4000) + `}`)
	o.advance(t, run, now)
	for !Finished(run) {
		var results []Result
		for _, id := range InFlight(run) {
			r := Result{ID: id, Result: protocol.Result{Status: protocol.StatusSucceeded}}
			if itemOfID(t, id)%2 == 0 {
				r.Result = protocol.Result{Status: protocol.StatusFailed, Error: &protocol.ResultError{Code: "E"}}
			}
			results = append(results, r)
		}
		o.advance(t, run, now, results...)
	}
	all := 0
	for i := range run.Status.Steps {
		f := run.Status.Steps[i].ForEach
		set, err := itemset.Parse(f.FailedItems)
		if err != nil || len(f.FailedItems) > 4096 || f.Failed != 2000 || set.Len() > 2000 {
			t.Errorf("step %d: %d failed, listed in %d characters: %v", i, f.Failed, len(f.FailedItems), err)
		}
		all += len(f.FailedItems)
	}
	if all > bounds.MaxFailedBytes || all < bounds.MaxFailedBytes/2 {
		t.Errorf("%d characters in all", all)
	}
}

// mutation: Over that takes all attempts of a step with forEach for over makes this fail: the
// garbage collector would take their jobs.
func TestOverSaysWhichAttemptsOfItemsAreOver(t *testing.T) {
	run := fanOut(5, 3, v1alpha1.Collect)
	advance(t, run, epoch)
	advance(t, run, epoch, ofItem(0, succeeded("all", 1, `1`)), ofItem(1, retryIn("all", 1, 100)))
	for id, want := range map[protocol.JobID]bool{
		itemJob("all", 0, 1): true, itemJob("all", 1, 1): true, itemJob("all", 1, 2): false, itemJob("all", 2, 1): false,
		itemJob("all", 3, 1): false, itemJob("all", 4, 1): false, job("all", 1): false, job("other", 1): false,
	} {
		if got := Over(run, id); got != want {
			t.Errorf("%s: over %v", id, got)
		}
	}
	if Over(nil, itemJob("all", 0, 1)) || Over(newRun(newStep("a")), job("a", 1)) {
		t.Error("what was never seen is not over")
	}
}
