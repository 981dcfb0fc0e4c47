// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// objects is an object store: bytes by name.
type objects map[string][]byte

// Of outputs that are only to be checked the shell keeps so many bytes, and so many of all: one
// that is to be loaded and finds no room would be asked for again and again.
const (
	mostChecked = 8 << 20
	mostKept    = 24 << 20
)

// decide decides as the shell does: what the decision lacks is stored and read until
// it lacks nothing.
func (o objects) decide(in Input) Decision {
	in.Payloads = Payloads{}
	kept := 0
	for {
		out := Decide(in)
		if !out.Needs.Any() {
			return out
		}
		for _, s := range out.Needs.Store {
			o[s.Ref.Name] = s.Data
			in.Payloads[s.Ref.Name] = Payload{}
			if s.Of != "" {
				in.Payloads[s.Of] = Payload{Stored: &s.Ref}
			}
		}
		for _, ref := range out.Needs.Check {
			p := o.payload(ref)
			if kept+len(p.Data) > mostChecked {
				p = Payload{}
			}
			kept += len(p.Data)
			in.Payloads[ref.Name] = p
		}
		for _, ref := range out.Needs.Load {
			if kept += len(o[ref.Name]); kept > mostKept {
				panic(fmt.Sprintf("the shell has no room for output %s: it would have %d bytes in memory", ref.Name, kept))
			}
			in.Payloads[ref.Name] = o.payload(ref)
		}
	}
}

func (o objects) problem(ref protocol.OutputRef) string { return o.payload(ref).Problem }

func (o objects) payload(ref protocol.OutputRef) Payload {
	data, ok := o[ref.Name]
	if !ok {
		return Payload{Problem: "there is no object " + ref.Name}
	}
	return render.PayloadOf(ref, data, nil)
}

func (o objects) advance(t *testing.T, run *v1alpha1.WorkflowRun, now time.Time, results ...Result) Decision {
	t.Helper()
	out := o.decide(letIn(Input{Run: run, Now: now, Lock: held(1), Results: results}))
	if out.Changed {
		run.Status = persisted(t, &out.Status)
	}
	return out
}

// put stores an output as the worker of an attempt does, and gives its result.
func (o objects) put(step string, attempt int32, output string) Result {
	r := result(step, attempt, protocol.StatusSucceeded)
	ref := protocol.NewOutputRef(r.ID, []byte(output))
	o[ref.Name] = []byte(output)
	r.Result.OutputRef = &ref
	return r
}

// referring is a result that refers to an output of a size which nobody stored.
func referring(step string, attempt int32, size int64) Result {
	r := result(step, attempt, protocol.StatusSucceeded)
	ref := protocol.NewOutputRef(r.ID, nil)
	ref.Size = size
	r.Result.OutputRef = &ref
	return r
}

func text(n int) string { return fmt.Sprintf("%q", strings.Repeat("x", n-2)) }

// mutation: `<=` as `<` in keep makes "one that just fits" fail; no store.room makes "the last
// of many" fail.
func TestWhereOutputsAreKept(t *testing.T) {
	many := func(n int) []v1alpha1.Step {
		steps := make([]v1alpha1.Step, n)
		for i := range steps {
			steps[i] = newStep(fmt.Sprint("s", i))
		}
		return steps
	}
	tests := map[string]struct {
		steps   int
		output  string
		inline  int // of so many steps the output is in status
		objects int
	}{
		"one that just fits":               {1, text(bounds.MaxOutputBytes), 1, 0},
		"one that is too large for status": {1, text(bounds.MaxOutputBytes + 1), 0, 1},
		"none":                             {1, "null", 0, 0},
		"the last of many goes to the object store":  {40, text(bounds.MaxOutputBytes), 28, 12},
		"with most steps there is room for few only": {200, text(bounds.MaxOutputBytes), 15, 185},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o, run := objects{}, newRun(many(tt.steps)...)
			run.Spec.MaxParallelSteps = bounds.MaxSteps
			advance(t, run, epoch)
			var results []Result
			for i := range tt.steps {
				results = append(results, succeeded(fmt.Sprint("s", i), 1, tt.output))
			}
			out := o.advance(t, run, epoch, results...)
			if got := outcomeOf(&out.Status); got != "Succeeded/Succeeded" {
				t.Fatalf("outcome %s", got)
			}
			inline := 0
			for _, s := range run.Status.Steps {
				if s.Output != nil {
					inline++
				}
				if s.OutputRef != nil && s.Output != nil {
					t.Errorf("step %s has its output twice", s.Name)
				}
			}
			if inline != tt.inline || len(o) != tt.objects {
				t.Errorf("%d outputs in status, %d objects; want %d and %d", inline, len(o), tt.inline, tt.objects)
			}
		})
	}
}

// mutation: a check of an object that is left out, or one that ignores size, digest, JSON or the
// job, makes a line fail.
func TestWhatAResultRefersToIsChecked(t *testing.T) {
	good := text(100 << 10)
	tests := map[string]struct {
		change func(o objects, r *Result)
		want   string // code and the end of the message of the step's error; "": it succeeded
	}{
		"all is as promised":         {func(objects, *Result) {}, ""},
		"the object is missing":      {func(o objects, r *Result) { delete(o, r.Result.OutputRef.Name) }, "ResultRejected: outputRef: there is no object"},
		"other bytes have its name":  {func(o objects, r *Result) { o[r.Result.OutputRef.Name] = []byte(text(100<<10-1) + " ") }, "ResultRejected: outputRef: the object has digest"},
		"fewer bytes have its name":  {func(o objects, r *Result) { o[r.Result.OutputRef.Name] = []byte("1") }, "ResultRejected: outputRef: the object has 1 bytes"},
		"it is not JSON":             {func(o objects, r *Result) { *r = o.put("a", 1, strings.Repeat("x", 100)) }, "ResultRejected: outputRef: the object is not JSON"},
		"it belongs to another job":  {func(o objects, r *Result) { *r.Result.OutputRef = *o.put("b", 1, good).Result.OutputRef }, "ResultRejected: outputRef: not a reference"},
		"the digest is no digest":    {func(_ objects, r *Result) { r.Result.OutputRef.Digest = "sha1:abc" }, "ResultRejected: outputRef: not a reference"},
		"the size is negative":       {func(_ objects, r *Result) { r.Result.OutputRef.Size = -1 }, "ResultRejected: outputRef: not a reference"},
		"it is larger than any":      {func(_ objects, r *Result) { r.Result.OutputRef.Size = protocol.MaxPayloadBytes + 1 }, "OutputTooLarge: the output has 8388609 bytes"},
		"bytes that are not UTF-8":   {func(o objects, r *Result) { *r = o.put("a", 1, "\"\xff\"") }, "ResultRejected: outputRef: the object is not JSON"},
		"a null, which is an output": {func(o objects, r *Result) { *r = o.put("a", 1, "null") }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o, run := objects{}, newRun(newStep("a", maxFailures(2)), newStep("b"))
			advance(t, run, epoch)
			r := o.put("a", 1, good)
			tt.change(o, &r)
			out := o.advance(t, run, epoch, r)
			got := ""
			if e := run.Status.Steps[0].Error; e != nil {
				got = e.Code + ": " + e.Message
			}
			if !strings.HasPrefix(got, tt.want) || (tt.want == "") != (got == "") {
				t.Errorf("error %q, want %q", got, tt.want)
			}
			if tt.want == "" && run.Status.Steps[0].OutputRef == nil {
				t.Error("the step has no reference")
			}
			if out.Verdicts[0] != Applied {
				t.Errorf("verdict %s", out.Verdicts[0])
			}
		})
	}
}

// mutation: All never set, or `output` counted among the other fields, makes this fail.
func TestExpressionsReadOutputsInTheObjectStore(t *testing.T) {
	tests := map[string]struct {
		step  v1alpha1.Step
		input string // of the job of the step
		loads int    // objects read
	}{
		"a field of it":                 {newStep("c", after("a", "b"), input(`{"x": "${steps.a.output.n}"}`)), `{"x":17}`, 1},
		"a condition on it":             {newStep("c", after("a", "b"), when("steps.a.output.n == 17"), input(`{}`)), `{}`, 1},
		"both steps":                    {newStep("c", after("a", "b"), input(`{"x": "${steps.a.output.n + steps['b'].output.n}"}`)), `{"x":34}`, 2},
		"all steps, by a computed name": {newStep("c", after("a", "b"), input(`{"x": "${steps['a' + ''].output.n}"}`)), `{"x":17}`, 2},
		"a step as a whole":             {newStep("c", after("a", "b"), when("size(steps.a) == 6"), input(`{}`)), `{}`, 1},
		"an optional step":              {newStep("c", after("a", "b"), input(`{"x": "${steps.?a.output.n.orValue(1)}"}`)), `{"x":17}`, 1},
		"an optional step by an index":  {newStep("c", after("a", "b"), input(`{"x": "${steps[?'a'].?output.?n.orValue(1)}"}`)), `{"x":17}`, 1},
		"an optional computed name":     {newStep("c", after("a", "b"), input(`{"x": "${steps[?'a' + ''].output.n.orValue(1)}"}`)), `{"x":17}`, 2},
		"all steps, to go through them": {newStep("c", after("a", "b"), input(`{"x": "${steps.exists(s, steps.?a.phase.orValue('') == 'Failed')}"}`)), `{"x":false}`, 2},
		"another field of an optional step": {
			newStep("c", after("a", "b"), when("steps.?a.phase.orValue('') == 'Succeeded' && steps[?'b'].?error.orValue(null) == null"), input(`{}`)),
			`{}`, 0,
		},
		"nothing of it": {
			newStep("c", after("a", "b"), when("steps.a.phase == 'Succeeded' && steps.a.error == null"), input(`{"x": "${steps.a.outputRef.size > 0}"}`)),
			`{"x":true}`, 0,
		},
		"only the reference, to hand it on": {newStep("c", after("a", "b"), input(`{"x": "${steps.a.outputRef.name.startsWith('u-1/a/-/1/')}"}`)), `{"x":true}`, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o, run := objects{}, newRun(newStep("a"), newStep("b"), tt.step)
			advance(t, run, epoch)
			big := fmt.Sprintf(`{"n": 17, "pad": %s}`, text(100<<10))
			o.advance(t, run, epoch, o.put("a", 1, big))
			out := Decide(Input{Run: run, Now: epoch, Lock: held(1), Results: []Result{o.put("b", 1, big)}})
			if len(out.Needs.Check) != 1 || len(out.Dispatch) != 0 {
				t.Fatalf("needs %+v, dispatch %v", out.Needs, out.Dispatch)
			}
			checked := Payloads{out.Needs.Check[0].Name: {}}
			out = Decide(Input{Run: run, Now: epoch, Lock: held(1), Results: []Result{o.put("b", 1, big)}, Payloads: checked})
			if len(out.Needs.Load) != tt.loads {
				t.Errorf("loads %v, want %d", out.Needs.Load, tt.loads)
			}
			out = o.advance(t, run, epoch, o.put("b", 1, big))
			if len(out.Dispatch) != 1 {
				t.Fatalf("dispatch %v: %s", out.Dispatch, outcomeOf(&out.Status))
			}
			if diff := cmp.Diff(tt.input, string(out.Dispatch[0].Input)); diff != "" {
				t.Errorf("input (-want +got):\n%s", diff)
			}
			o.again(t, run, out.Dispatch[0])
		})
	}
}

// A step that asks for an output by `steps.?NAME` has to do with no other one, however large that
// is or lost.
//
// mutation: an optional read that counts as one of all steps makes both fail.
func TestAnOptionalReadIsOfNoOtherOutput(t *testing.T) {
	for name, c := range map[string]struct {
		others string
		lost   bool
	}{"others are large": {text(5 << 20), false}, "another one is lost": {text(100 << 10), true}} {
		t.Run(name, func(t *testing.T) {
			o, run := objects{}, newRun(newStep("fetch"), newStep("a"), newStep("b"))
			run.Spec.Finally = []v1alpha1.Step{newStep("tell", input(`{"x":"${steps.?fetch.output.?title.orValue('none')}"}`))}
			advance(t, run, epoch)
			b := o.put("b", 1, c.others)
			o.advance(t, run, epoch, o.put("a", 1, c.others), b)
			if c.lost {
				delete(o, b.Result.OutputRef.Name)
			}
			out := o.advance(t, run, epoch.Add(time.Second), succeeded("fetch", 1, `{"title":"news"}`))
			if len(out.Dispatch) != 1 || string(out.Dispatch[0].Input) != `{"x":"news"}` {
				t.Errorf("dispatched %v, error %+v", out.Dispatch, run.Status.Steps[3].Error)
			}
		})
	}
}

// again renders the job as recovery does.
func (o objects) again(t *testing.T, run *v1alpha1.WorkflowRun, want Job) {
	t.Helper()
	payloads := Payloads{}
	for _, ref := range InputOutputs(run, want.ID) {
		payloads[ref.Name] = Payload{Data: o[ref.Name]}
	}
	got, err := JobOf(run, want.ID, payloads)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("job rendered again (-want +got):\n%s", diff)
	}
}

func TestAnOutputThatVanishedFailsTheStepThatReadsIt(t *testing.T) {
	o, run := objects{}, newRun(newStep("a"), newStep("b", after("a"), input(`{"x": "${steps.a.output}"}`)))
	advance(t, run, epoch)
	r := o.put("a", 1, text(5000))
	out := Decide(Input{Run: run, Now: epoch, Lock: held(1), Results: []Result{r}, Payloads: Payloads{r.Result.OutputRef.Name: {}}})
	run.Status = persisted(t, &out.Status)
	clear(o)
	out = o.advance(t, run, epoch.Add(time.Second))
	if e := run.Status.Steps[1].Error; e == nil || e.Code != facts.CodeExpressionError || !strings.Contains(e.Message, "there is no object") {
		t.Errorf("error %+v", e)
	}
	if got := outcomeOf(&out.Status); got != "Failed/StepFailed" {
		t.Errorf("outcome %s", got)
	}
}

// mutation: rejectAgain that does nothing, or takes each object for the rejected one,
// makes this fail.
func TestARejectedResultIsPutAsideHoweverOftenItComes(t *testing.T) {
	run := newRun(newStep("a", maxFailures(2)))
	advance(t, run, epoch)
	bad := referring("a", 1, 100)
	want := map[int]string{0: "outputRef: there is no object " + bad.Result.OutputRef.Name + objectOf(*bad.Result.OutputRef)}
	out := objects{}.advance(t, run, epoch, bad)
	if diff := cmp.Diff(want, out.Rejected); diff != "" {
		t.Errorf("at first (-want +got):\n%s", diff)
	}
	if out = decideWithoutStore(run, []Result{bad, result("a", 1, protocol.StatusStarted)}); !cmp.Equal(want, out.Rejected) {
		t.Errorf("as a duplicate: %v", out.Rejected)
	}
	other := protocol.NewOutputRef(bad.ID, []byte("other"))
	good := bad
	good.Result.OutputRef = &other
	if out = decideWithoutStore(run, []Result{good}); out.Verdicts[0] != Duplicate || len(out.Rejected) != 0 {
		t.Errorf("a result with another object: %s, %v", out.Verdicts[0], out.Rejected)
	}
	run.Spec.Shutdown = v1alpha1.ShutdownCancel
	advance(t, run, epoch)
	if out = decideWithoutStore(run, []Result{bad}); !cmp.Equal(want, out.Rejected) {
		t.Errorf("after the end of the run: %v", out.Rejected)
	}
}

// What could not be supplied is left undone, and the rest is done: a cancel does not wait for
// the object store.
//
// mutation: a decision that stops where something is lacking makes this fail.
func TestADecisionThatLacksSomethingIsGoodForTheRest(t *testing.T) {
	run := newRun(newStep("a"), newStep("b"), newStep("c", after("b")))
	advance(t, run, epoch)
	results := []Result{referring("a", 1, 100), succeeded("b", 1, "1")}
	out := decideWithoutStore(run, results)
	if diff := cmp.Diff([]Verdict{Waiting, Applied}, out.Verdicts); diff != "" || len(out.Dispatch) != 1 {
		t.Errorf("verdicts (-want +got):\n%s\ndispatch %v", diff, out.Dispatch)
	}
	run.Spec.Shutdown = v1alpha1.ShutdownCancel
	out = decideWithoutStore(run, results)
	if got := outcomeOf(&out.Status); got != "Cancelled/Cancelled" || !out.Changed {
		t.Errorf("outcome %s", got)
	}
}

func decideWithoutStore(run *v1alpha1.WorkflowRun, results []Result) Decision {
	return Decide(Input{Run: run, Now: epoch, Lock: held(1), Results: results})
}

// mutation: no bound on what a decision loads makes both fail.
func TestWhatADecisionReadsIsBounded(t *testing.T) {
	half := text(protocol.MaxPayloadBytes/2 + 1)
	t.Run("steps that together read too much start one after the other", func(t *testing.T) {
		o := objects{}
		run := newRun(newStep("a"), newStep("b"),
			newStep("c", after("a", "b"), input(`{"x": "${steps.a.output.size()}"}`)), newStep("d", after("a", "b"), input(`{"x": "${steps.b.output.size()}"}`)))
		advance(t, run, epoch)
		out := o.advance(t, run, epoch, o.put("a", 1, half), o.put("b", 1, half))
		if len(out.Dispatch) != 1 || !out.Wake.Equal(epoch.Add(bounds.MinWake)) {
			t.Fatalf("%d dispatched, wake %s", len(out.Dispatch), out.Wake)
		}
		if out = o.advance(t, run, epoch.Add(bounds.MinWake)); len(out.Dispatch) != 1 {
			t.Errorf("%d dispatched in the next decision", len(out.Dispatch))
		}
	})
	t.Run("an expression that reads too much fails its step", func(t *testing.T) {
		o := objects{}
		run := newRun(newStep("a"), newStep("b"), newStep("c", after("a", "b"), input(`{"x": "${steps.a.output.size() + steps.b.output.size()}"}`)))
		advance(t, run, epoch)
		o.advance(t, run, epoch, o.put("a", 1, half), o.put("b", 1, half))
		if e := run.Status.Steps[2].Error; e == nil || !strings.Contains(e.Message, "more than 8388608") {
			t.Errorf("error %+v", e)
		}
	})
}
