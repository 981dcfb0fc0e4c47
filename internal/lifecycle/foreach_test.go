// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/itemset"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// forEach makes a step one job for each item, whose input has the item.
func forEach(items string, parallel int32, onFailure v1alpha1.ItemFailureAction) stepOption {
	return func(s *v1alpha1.Step) {
		s.ForEach = &v1alpha1.ForEach{Items: items, MaxParallel: parallel, OnItemFailure: onFailure}
		s.Job.Input = raw(`{"item":"${item}"}`)
	}
}

// numbers is the list 0, 1, ... n-1 as JSON.
func numbers(n int) string {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	text, _ := json.Marshal(list)
	return string(text)
}

// fanOut is a run with one step, all, over the list in its inputs.
func fanOut(n int, parallel int32, onFailure v1alpha1.ItemFailureAction) *v1alpha1.WorkflowRun {
	run := newRun(newStep("all", forEach("${inputs.list}", parallel, onFailure)))
	run.Spec.Inputs = raw(`{"list":` + numbers(n) + `}`)
	return run
}

func itemJob(step string, item int, attempt int32) protocol.JobID {
	id := job(step, attempt)
	id.Item = fmt.Sprint(item)
	return id
}

func itemOfID(t *testing.T, id protocol.JobID) int {
	t.Helper()
	item, err := strconv.Atoi(id.Item)
	if err != nil {
		t.Fatal(err)
	}
	return item
}

// ofItem makes a result one of an item.
func ofItem(item int, r Result) Result {
	r.ID.Item = fmt.Sprint(item)
	return r
}

func retryIn(step string, attempt int32, millis int64) Result {
	r := result(step, attempt, protocol.StatusRetry)
	r.Result.RetryAfterMillis = millis
	return r
}

// mutation: onItemFailure ignored, groups not withdrawn in dropItems, or the first error not kept,
// each make a case fail.
func TestAFailedItem(t *testing.T) {
	tests := map[string]struct {
		onFailure v1alpha1.ItemFailureAction
		outcome   string
		withdrawn int
		output    string
		errorText string
	}{
		"fails its step, and the jobs of others are taken back":    {v1alpha1.FailStep, "Failed/StepFailed", 2, "", "E: item 1: no"},
		"fails its step if nothing is said":                        {"", "Failed/StepFailed", 2, "", "E: item 1: no"},
		"leaves a hole in the output where failures are collected": {v1alpha1.Collect, "Succeeded/Succeeded", 0, `["x",null,"y","z"]`, "E: item 1: no"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run := fanOut(4, 4, tt.onFailure)
			advance(t, run, epoch)
			bad := ofItem(1, failed("all", 1, "E", "no"))
			bad.Result.Final = true
			out := advance(t, run, epoch, ofItem(0, succeeded("all", 1, `"x"`)), bad)
			if len(out.Withdraw) != tt.withdrawn {
				t.Errorf("withdrawn: %v", out.Withdraw)
			}
			if !Finished(run) {
				advance(t, run, epoch, ofItem(2, succeeded("all", 1, `"y"`)), ofItem(3, succeeded("all", 1, `"z"`)))
			}
			s := run.Status.Steps[0]
			if got := outcomeOf(run.Status); got != tt.outcome {
				t.Errorf("outcome %s, want %s", got, tt.outcome)
			}
			if got := textOf(s.Output); got != tt.output {
				t.Errorf("output %s, want %s", got, tt.output)
			}
			if got := report.ErrorText(s.Error); got != tt.errorText {
				t.Errorf("error %s, want %s", got, tt.errorText)
			}
			if f := s.ForEach; f.FailedItems != "1" || f.Failed != 1 || f.Groups != nil || f.Outputs != nil || f.OutputRefs != nil {
				t.Errorf("items: %+v", f)
			}
		})
	}
}

// mutation: without room for the whole run in launchesOf, or maxParallel not looked at, this fails.
func TestItemsUnderWayAreBounded(t *testing.T) {
	run := newRun(newStep("a", forEach("${inputs.list}", 1000, "")), newStep("b", forEach("${inputs.list}", 1000, "")), newStep("c", forEach("${inputs.list}", 7, "")),
		newStep("d", forEach("${inputs.list}", 500, "")))
	run.Spec.Inputs = raw(`{"list":` + numbers(3000) + `}`)
	out := advance(t, run, epoch)
	if len(out.Dispatch) != 2000 || len(InFlight(run)) != 2000 {
		t.Errorf("%d jobs, %d in flight", len(out.Dispatch), len(InFlight(run)))
	}
	out = advance(t, run, epoch, ofItem(0, succeeded("a", 1, `1`)), ofItem(999, succeeded("b", 1, `1`)), ofItem(5, succeeded("a", 1, `1`)))
	got := []string{}
	for _, j := range out.Dispatch {
		got = append(got, j.ID.String())
	}
	if diff := cmp.Diff([]string{"u-1/a/1000/1", "u-1/a/1001/1", "u-1/b/1000/1"}, got); diff != "" {
		t.Errorf("dispatched (-want +got):\n%s", diff)
	}
}

// mutation: no bounds of what one decision renders, or no wake after them, makes this fail.
func TestOneDecisionRendersSoMuchOnly(t *testing.T) {
	run := fanOut(300, 300, "")
	run.Spec.Steps[0].Job.Input = raw(`{"pad":"` + strings.Repeat("x", 60<<10) + `","item":"${item}"}`)
	out := advance(t, run, epoch)
	if n := len(out.Dispatch); n < 20 || n > 200 || !out.Wake.Equal(epoch.Add(bounds.MinWake)) {
		t.Fatalf("%d jobs, wake %s", n, out.Wake)
	}
	for n := 0; n < 20 && len(InFlight(run)) < 300; n++ {
		out = advance(t, run, epoch)
	}
	out = advance(t, run, epoch)
	if n := len(InFlight(run)); n != 300 || out.Changed {
		t.Errorf("%d in flight, changed %v", n, out.Changed)
	}
	late := out.Wake // all of them time out together, and are tried again together
	advance(t, run, late)
	late = late.Add(time.Minute)
	if out = advance(t, run, late); len(out.Dispatch) < 20 || len(out.Dispatch) > 200 || !out.Wake.Equal(late.Add(bounds.MinWake)) {
		t.Fatalf("%d jobs again, wake %s", len(out.Dispatch), out.Wake)
	}
	if out = advance(t, run, out.Wake); len(out.Dispatch) < 20 {
		t.Errorf("%d jobs with the next decision", len(out.Dispatch))
	}
}

// mutation: ErrTooLarge not looked at in ItemRenderer.Render makes this fail.
func TestAnItemWhoseInputIsTooLargeFails(t *testing.T) {
	run := newRun(newStep("all", forEach("${inputs.list}", 2, v1alpha1.Collect), input(`{"x":["${item}","${item}","${item}","${item}","${item}"]}`)))
	run.Spec.Inputs = raw(`{"list":[` + text(60<<10) + `,"small"]}`)
	out := advance(t, run, epoch)
	s := run.Status.Steps[0]
	if s.ForEach.FailedItems != "0" || s.Error.Code != facts.CodeInputTooLarge || len(out.Dispatch) != 1 || out.Dispatch[0].ID != itemJob("all", 1, 1) {
		t.Errorf("%s: %s, dispatched %v", s.ForEach.FailedItems, report.ErrorText(s.Error), names(out.Dispatch))
	}
}

// mutation: launchesOf that does not look at the problem makes this fail: the first item is with a
// worker when its step has failed.
func TestAnItemThatCannotBeginTakesOthersAlong(t *testing.T) {
	run := newRun(newStep("all", forEach("${[1, 'two', 3]}", 3, v1alpha1.FailStep), input(`{"x":"${item + 1}"}`)))
	out := advance(t, run, epoch)
	if got := outcomeOf(run.Status); got != "Failed/StepFailed" || len(out.Dispatch) > 0 {
		t.Errorf("%s, dispatched %v", got, names(out.Dispatch))
	}
}

// The list and the inputs have one value each, so they may be made again whenever a process has
// forgotten them; not so if an output that they read is gone. mutations: errors of the list or of
// the input that are dropped, a LostError for what is to be loaded, or none for what is gone, make
// a case fail.
func TestItemsWhoseListOrInputIsGone(t *testing.T) {
	o := objects{}
	begun := func() *v1alpha1.WorkflowRun {
		run := newRun(newStep("a"), newStep("b"), newStep("all", after("a", "b"), forEach("${steps.a.output}", 1, ""), input(`{"i":"${item}","b":"${steps.b.output}"}`)))
		o.advance(t, run, epoch)
		o.advance(t, run, epoch, o.put("a", 1, `["x","y"]`), o.put("b", 1, `1`))
		return run
	}
	list, other := protocol.NewOutputRef(job("a", 1), []byte(`["x","y"]`)), protocol.NewOutputRef(job("b", 1), []byte(`1`))
	as := listName(begun(), 2)
	known := map[string][]any{as: {"x", "y"}}
	tests := map[string]struct {
		payloads Payloads
		lists    map[string][]any
		want     string // the input, or the end of the error
	}{
		"all is there":                     {Payloads{list.Name: {Data: []byte(`["x","y"]`)}, other.Name: {Data: []byte(`1`)}}, nil, `{"b":1,"i":"x"}`},
		"the list is remembered":           {Payloads{other.Name: {Data: []byte(`1`)}}, known, `{"b":1,"i":"x"}`},
		"what the input reads is not here": {Payloads{list.Name: {Data: []byte(`["x","y"]`)}}, known, "job.input: 1 outputs are to be loaded"},
		"the list is gone":                 {Payloads{list.Name: {Problem: "gone"}}, nil, "forEach.items: output " + list.Name + ": gone"},
		"what the input reads is gone":     {Payloads{other.Name: {Problem: "gone"}}, known, "job.input: output " + other.Name + ": gone"},
		"the item is not in the list":      {Payloads{other.Name: {Data: []byte(`1`)}}, map[string][]any{as: {}}, "there are 0 items only"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := render.New(begun(), tt.payloads, tt.lists).Job(itemJob("all", 0, 1))
			if text := string(got.Input) + fmt.Sprint(err); !strings.Contains(text, tt.want) {
				t.Errorf("got %s, want %s", text, tt.want)
			}
			_, lost := errors.AsType[*render.LostError](err)
			if waits := strings.HasSuffix(tt.want, "to be loaded"); lost != (err != nil && !waits) {
				t.Errorf("lost for good: %t", lost)
			}
		})
	}
	r := render.New(begun(), tests["all is there"].payloads, nil)
	if refs := r.Needs(itemJob("all", 0, 1)); len(refs) != 2 {
		t.Errorf("at first it needs %v", refs)
	}
	if _, err := r.Job(itemJob("all", 0, 1)); err != nil || len(r.Needs(itemJob("all", 0, 1))) > 0 {
		t.Errorf("then it needs %v: %v", r.Needs(itemJob("all", 0, 1)), err)
	}
	run := begun()
	delete(o, list.Name)
	o.advance(t, run, epoch, ofItem(0, succeeded("all", 1, `1`)))
	if got := report.ErrorText(run.Status.Steps[2].Error); outcomeOf(run.Status) != "Failed/StepFailed" || !strings.HasPrefix(got, "ExpressionError: forEach.items: ") {
		t.Errorf("the second item: %s: %s", outcomeOf(run.Status), got)
	}
}

// mutation: fresh outputs kept although they could not be stored, or counted twice, make this fail.
func TestOutputsOfItemsGoToTheObjectStore(t *testing.T) {
	const items = 700
	o, run := objects{}, fanOut(items, 100, v1alpha1.Collect)
	o.advance(t, run, epoch)
	big := func(item int) string { return fmt.Sprintf(`{"n":%d,"pad":%q}`, item, strings.Repeat("y", 900)) }
	rounds := 0
	for ; !Finished(run); rounds++ {
		ids := InFlight(run)
		if len(ids) == 0 || rounds > items {
			t.Fatalf("round %d: nothing in flight: %s", rounds, mustJSON(t, run.Status))
		}
		var results []Result
		for _, id := range ids[:min(5, len(ids))] {
			item := itemOfID(t, id)
			results = append(results, ofItem(item, succeeded("all", 1, big(item))))
		}
		without := Decide(Input{Run: run, Now: epoch, Lock: held(1), Results: results})
		if needs := without.Needs; needs.Outputs() && slices.Contains(without.Verdicts, Applied) {
			t.Fatalf("applied, though the object store has to take it first: %v", without.Verdicts)
		}
		if now, then := run.Status.Steps[0].ForEach, without.Status.Steps[0].ForEach; without.Needs.Outputs() && now.OutputBytes != then.OutputBytes {
			t.Fatalf("%d bytes of outputs, %d though none was kept", now.OutputBytes, then.OutputBytes)
		}
		out := o.advance(t, run, epoch, results...)
		if slices.ContainsFunc(out.Verdicts, func(v Verdict) bool { return v != Applied }) {
			t.Fatalf("verdicts %v", out.Verdicts)
		}
		if n := len(run.Status.Steps[0].ForEach.OutputRefs); n > bounds.MaxBatches {
			t.Fatalf("%d references", n)
		}
	}
	ref := run.Status.Steps[0].OutputRef
	if ref == nil {
		t.Fatalf("no reference: %s", mustJSON(t, run.Status))
	}
	var list []struct{ N int }
	if err := json.Unmarshal(o[ref.Name], &list); err != nil || len(list) != items || list[items-1].N != items-1 || list[7].N != 7 {
		t.Errorf("the list has %d items: %v", len(list), err)
	}
}

func TestOutputsOfItems(t *testing.T) {
	o := objects{}
	promised := o.ofItem(0, `{"x":2}`)
	delete(o, promised.Result.OutputRef.Name)
	lost := func(run *v1alpha1.WorkflowRun) {
		for _, ref := range run.Status.Steps[0].ForEach.OutputRefs {
			delete(o, ref.Name)
		}
	}
	tests := map[string]struct {
		first, second Result
		between       func(*v1alpha1.WorkflowRun)
		outcome       string
		output        string
	}{
		"that are absent are null":                {succeeded("all", 1, ``), succeeded("all", 1, ` null `), nil, "Succeeded/Succeeded", `[null,null]`},
		"keep their types":                        {succeeded("all", 1, `1.0`), succeeded("all", 1, `"<a>"`), nil, "Succeeded/Succeeded", `[1,"\u003ca\u003e"]`},
		"may be in the object store":              {o.ofItem(0, `{"x": 1}`), succeeded("all", 1, `2`), nil, "Succeeded/Succeeded", `[{"x":1},2]`},
		"that are no JSON are a failure":          {succeeded("all", 1, `{"x":`), succeeded("all", 1, `2`), nil, "Failed/StepFailed", ``},
		"that belong to another job as well":      {ofItem(0, referring("all", 1, 9)), succeeded("all", 1, `2`), nil, "Failed/StepFailed", ``},
		"that are promised and not there as well": {promised, succeeded("all", 1, `2`), nil, "Failed/StepFailed", ``},
		"that nobody can take fail the item":      {ofItem(0, referring("all", 1, 9<<20)), succeeded("all", 1, `2`), nil, "Failed/OutputTooLarge", ``},
		"that are lost fail the step":             {succeeded("all", 1, text(6<<10)), succeeded("all", 1, `2`), lost, "Failed/StepFailed", ``},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run := fanOut(2, 2, "")
			maxFailures(1)(&run.Spec.Steps[0])
			o.advance(t, run, epoch)
			o.advance(t, run, epoch, ofItem(0, tt.first))
			if tt.between != nil {
				tt.between(run)
			}
			o.advance(t, run, epoch, ofItem(1, tt.second))
			if got := outcomeOf(run.Status); got != tt.outcome {
				t.Errorf("outcome %s, want %s: %s", got, tt.outcome, report.ErrorText(run.Status.Steps[0].Error))
			}
			if got := textOf(run.Status.Steps[0].Output); got != tt.output {
				t.Errorf("output %s, want %s", got, tt.output)
			}
		})
	}
}

// mutation: finishItems that does not look at the problem of putTogether makes this fail.
func TestOutputsThatAreLostFailAStepWhoseLastItemFails(t *testing.T) {
	o, run := objects{}, fanOut(2, 2, v1alpha1.Collect)
	maxFailures(1)(&run.Spec.Steps[0])
	o.advance(t, run, epoch)
	o.advance(t, run, epoch, ofItem(0, succeeded("all", 1, text(6<<10))))
	clear(o)
	o.advance(t, run, epoch, ofItem(1, failed("all", 1, "E", "no")))
	if got := report.ErrorText(run.Status.Steps[0].Error); outcomeOf(run.Status) != "Failed/StepFailed" || !strings.HasPrefix(got, "OutputLost: ") {
		t.Errorf("%s: %s", outcomeOf(run.Status), got)
	}
}

// ofItem stores an output as the worker of an item does.
func (o objects) ofItem(item int, output string) Result {
	r := ofItem(item, result("all", 1, protocol.StatusSucceeded))
	ref := protocol.NewOutputRef(r.ID, []byte(output))
	o[ref.Name] = []byte(output)
	r.Result.OutputRef = &ref
	return r
}

// mutation: the sum of all outputs not looked at makes this fail.
func TestOutputsOfAllItemsHaveABound(t *testing.T) {
	o, run := objects{}, fanOut(9, 9, v1alpha1.Collect)
	o.advance(t, run, epoch)
	for i := range 9 {
		o.advance(t, run, epoch, o.ofItem(i, text(1<<20)))
	}
	o.advance(t, run, epoch) // what one decision reads is bounded, too
	s := run.Status.Steps[0]
	if s.Phase != v1alpha1.StepSucceeded || s.ForEach.Failed != 2 || s.Error.Code != facts.CodeOutputTooLarge || s.OutputRef.Size > protocol.MaxPayloadBytes {
		t.Errorf("step: %s", mustJSON(t, s))
	}
}

// mutations: an older attempt's result taken for the last one's, or one of an item that is over for
// news, make a case fail.
func TestVerdictsOnItems(t *testing.T) {
	run := fanOut(4, 3, v1alpha1.Collect)
	advance(t, run, epoch)
	advance(t, run, epoch, ofItem(0, succeeded("all", 1, `1`)), ofItem(1, retryIn("all", 1, 0)))
	advance(t, run, epoch.Add(time.Second))
	tests := map[string]struct {
		result Result
		want   Verdict
	}{
		"of an item that is over":             {ofItem(0, succeeded("all", 1, `2`)), Duplicate},
		"of an older attempt":                 {ofItem(1, succeeded("all", 1, `2`)), Stale},
		"of the last attempt":                 {ofItem(1, succeeded("all", 2, `2`)), Applied},
		"of an attempt to come":               {ofItem(1, succeeded("all", 3, `2`)), Ahead},
		"of an item that begins later":        {ofItem(9, succeeded("all", 1, `2`)), Ahead},
		"of a strange item":                   {Result{ID: protocol.JobID{RunUID: "u-1", Step: "all", Item: "x", Attempt: 1}}, Ahead},
		"of the step as a whole":              {succeeded("all", 1, `2`), Ahead},
		"of another run":                      {Result{ID: protocol.JobID{RunUID: "u-2", Step: "all", Item: "1", Attempt: 2}}, Ahead},
		"that an item in flight was begun":    {ofItem(2, result("all", 1, protocol.StatusStarted)), Applied},
		"that an item that is over was begun": {ofItem(0, result("all", 1, protocol.StatusStarted)), Duplicate},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out := decideAt(run, epoch.Add(time.Second), held(1), tt.result)
			if out.Verdicts[0] != tt.want {
				t.Errorf("%s, want %s", out.Verdicts[0], tt.want)
			}
			twice := decideAt(run, epoch.Add(time.Second), held(1), tt.result, tt.result)
			if tt.want == Applied && twice.Verdicts[1] != Duplicate {
				t.Errorf("the second time %s", twice.Verdicts[1])
			}
		})
	}
}

func TestBadLists(t *testing.T) {
	tests := map[string]struct{ items, code, message string }{
		"not a list":        {`${inputs.x}`, facts.CodeExpressionError, "list"},
		"a missing value":   {`${inputs.nothing}`, facts.CodeExpressionError, "nothing"},
		"too many":          {`${inputs.list + inputs.list}`, facts.CodeInputTooLarge, "10002 items, more than 10000"},
		"nested too deep":   {`${[[[inputs.deep]]]}`, facts.CodeInputTooLarge, "nested deeper than 100"},
		"too costly a list": {`${inputs.list.map(a, inputs.list.map(b, inputs.list.map(c, c)))}`, facts.CodeExpressionError, "cost"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("all", forEach(tt.items, 1, "")))
			run.Spec.Inputs = raw(fmt.Sprintf(`{"x":{"a":1},"list":%s,"deep":[%s%s]}`, numbers(5001), strings.Repeat("[", 98), strings.Repeat("]", 98)))
			out := advance(t, run, epoch)
			s := run.Status.Steps[0]
			if s.Phase != v1alpha1.StepFailed || s.Error.Code != tt.code || !strings.Contains(s.Error.Message, tt.message) || !strings.Contains(s.Error.Message, "forEach.items") {
				t.Errorf("step %s: %s", s.Phase, report.ErrorText(s.Error))
			}
			if len(out.Dispatch) > 0 {
				t.Errorf("dispatched %v", out.Dispatch)
			}
		})
	}
}

func TestRefusedForEach(t *testing.T) {
	many := make([]v1alpha1.Step, 21)
	for i := range many {
		many[i] = newStep(fmt.Sprint("s", i), forEach("${[1]}", 1, ""))
	}
	tests := map[string]struct {
		steps []v1alpha1.Step
		want  string
	}{
		"items that are text":               {[]v1alpha1.Step{newStep("a", forEach("x ${[1]}", 1, ""))}, "spec.steps[0].forEach.items: "},
		"items that are a number":           {[]v1alpha1.Step{newStep("a", forEach("${1}", 1, ""))}, "list"},
		"items of a step not depended on":   {[]v1alpha1.Step{newStep("a"), newStep("b", forEach("${steps.a.output}", 1, ""))}, "add it to dependsOn"},
		"item without forEach":              {[]v1alpha1.Step{newStep("a", input(`{"x":"${item}"}`))}, "spec.steps[0].job.input: "},
		"item in when":                      {[]v1alpha1.Step{newStep("a", forEach("${[1]}", 1, ""), when("item == 1"))}, "spec.steps[0].when: "},
		"a delay for each":                  {[]v1alpha1.Step{newStep("a", forEach("${[1]}", 1, ""), delay(3))}, "spec.steps[0].forEach: it needs a job"},
		"more parallel items than possible": {[]v1alpha1.Step{newStep("a", forEach("${[1]}", 1001, ""))}, "spec.steps[0].forEach.maxParallel: 1001 is not in 1..1000"},
		"more steps with it than possible":  {many, "spec.steps[20].forEach: a run may have 20 steps with forEach"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run := newRun(tt.steps...)
			out := advance(t, run, epoch)
			message := status.Condition(run.Status, v1alpha1.ConditionSucceeded).Message
			if got := outcomeOf(run.Status); got != "Failed/InvalidSpec" || !strings.Contains(message, tt.want) || len(out.Dispatch) > 0 {
				t.Errorf("%s: %s", got, message)
			}
		})
	}
}

// mutation: a step that ends as it begins does not start others (again not set) makes this fail.
func TestAnEmptyListLetsTheNextStepStartAtOnce(t *testing.T) {
	run := newRun(newStep("b", after("a"), input(`{"n":"${size(steps.a.output)}"}`)), newStep("a", forEach("${[]}", 1, "")))
	out := advance(t, run, epoch)
	if diff := cmp.Diff([]string{"b"}, names(out.Dispatch)); diff != "" || string(out.Dispatch[0].Input) != `{"n":0}` {
		t.Errorf("dispatched (-want +got):\n%s", diff)
	}
	bad := newRun(newStep("b", after("a")), newStep("a", forEach("${[1, 2]}", 1, v1alpha1.Collect), input(`{"x":"${item.y}"}`)))
	if out := advance(t, bad, epoch); len(out.Dispatch) != 1 || bad.Status.Steps[1].ForEach.FailedItems != "0-1" {
		t.Errorf("items whose input cannot be made: %v, %s", out.Dispatch, mustJSON(t, bad.Status.Steps))
	}
}

// mutation: time-outs of items not looked at, or not woken up for, make this fail.
func TestItemsTimeOut(t *testing.T) {
	run := fanOut(3, 3, v1alpha1.Collect)
	maxFailures(1)(&run.Spec.Steps[0])
	advance(t, run, epoch)
	out := advance(t, run, epoch.Add(time.Second), ofItem(1, result("all", 1, protocol.StatusStarted)))
	if want := epoch.Add(60 * time.Second); !out.Wake.Equal(want) { // epoch, as the worker said
		t.Errorf("wake at %s, want %s", out.Wake, want)
	}
	out = advance(t, run, out.Wake)
	if len(out.Withdraw) != 1 || out.Withdraw[0].ID != itemJob("all", 1, 1) || run.Status.Steps[0].Error.Code != facts.CodeTimeout {
		t.Errorf("withdrawn %v", out.Withdraw)
	}
	out = advance(t, run, out.Wake)
	if len(out.Withdraw) != 2 || run.Status.Steps[0].Error.Code != facts.CodeStartTimeout || string(run.Status.Steps[0].Output.Raw) != "[null,null,null]" {
		t.Errorf("withdrawn %v: %s", out.Withdraw, mustJSON(t, run.Status.Steps))
	}
}

// mutation: items dispatched while suspended, or woken up for, makes this fail.
func TestItemsOfASuspendedRun(t *testing.T) {
	run := fanOut(3, 2, "")
	advance(t, run, epoch)
	run.Spec.Suspend = true
	out := advance(t, run, epoch, ofItem(0, failed("all", 1, "E", "")), ofItem(1, succeeded("all", 1, `1`)))
	if len(out.Dispatch) > 0 || !out.Wake.IsZero() {
		t.Errorf("dispatched %v, wake %s", out.Dispatch, out.Wake)
	}
	run.Spec.Suspend = false
	if out = advance(t, run, epoch.Add(time.Minute)); len(out.Dispatch) != 2 {
		t.Errorf("dispatched %v", out.Dispatch)
	}
}

// mutation: items not looked at by waitsForWorker makes this fail.
func TestItemsThatNobodyTakesAreTold(t *testing.T) {
	run := fanOut(3, 2, "")
	advance(t, run, epoch)
	if diff := cmp.Diff([]string{"t.all"}, WaitedFor(run)); diff != "" {
		t.Errorf("waits for (-want +got):\n%s", diff)
	}
	nobody := map[string]Workers{"t.all": {State: WorkersAbsent, Since: epoch}}
	reason := func(results ...Result) string {
		out := Decide(Input{Run: run, Now: epoch, Lock: held(1), Workers: nobody, Results: results})
		run.Status = persisted(t, &out.Status)
		c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
		if c.Reason == v1alpha1.ReasonWaitingForWorkers && !strings.Contains(c.Message, "nobody pulls jobs of topic t.all") {
			t.Errorf("message %s", c.Message)
		}
		return c.Reason
	}
	if got := reason(); got != v1alpha1.ReasonWaitingForWorkers {
		t.Errorf("reason %s while all wait", got)
	}
	if got := reason(ofItem(0, result("all", 1, protocol.StatusStarted))); got != v1alpha1.ReasonRunning {
		t.Errorf("reason %s while one runs", got)
	}
	if got := reason(ofItem(0, retryIn("all", 1, 1000))); got != v1alpha1.ReasonWaitingForWorkers {
		t.Errorf("reason %s while one backs off and the other waits", got)
	}
	if got := reason(ofItem(1, retryIn("all", 1, 1000))); got != v1alpha1.ReasonBackingOff || len(WaitedFor(run)) > 0 {
		t.Errorf("reason %s while all back off, and keep their places", got)
	}
}

func TestCancelTakesItemsBack(t *testing.T) {
	run := fanOut(10, 4, "")
	advance(t, run, epoch)
	run.Spec.Shutdown = v1alpha1.ShutdownCancel
	out := advance(t, run, epoch, ofItem(0, succeeded("all", 1, `1`)))
	if len(out.Withdraw) != 3 || run.Status.Steps[0].Phase != v1alpha1.StepCancelled || len(InFlight(run)) != 0 {
		t.Errorf("withdrawn %v", out.Withdraw)
	}
	late := decideAt(run, epoch, held(1), ofItem(1, succeeded("all", 1, `1`)), ofItem(9, succeeded("all", 1, `1`)))
	if diff := cmp.Diff([]Verdict{Duplicate, Duplicate}, late.Verdicts); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

// mutation: Lists not handed on makes the second decision evaluate again, which this sees by a list
// that is another one.
func TestListsAreRemembered(t *testing.T) {
	run := fanOut(5, 1, "")
	first := advance(t, run, epoch)
	name := listName(run, 0)
	if len(first.Lists[name]) != 5 {
		t.Fatalf("lists %v", first.Lists)
	}
	in := Input{Run: run, Now: epoch, Lock: held(1), Lists: map[string][]any{name: {nil, "other", nil, nil, nil}, "gone": {}}}
	in.Results = []Result{ofItem(0, succeeded("all", 1, `1`))}
	out := Decide(in)
	if string(out.Dispatch[0].Input) != `{"item":"other"}` || len(out.Lists) != 1 {
		t.Errorf("input %s, lists %v", out.Dispatch[0].Input, out.Lists)
	}
}

// mutation: inputs that are read for items by another reader than for steps make this fail.
func TestAnItemSeesTheSameInputsAsAStep(t *testing.T) {
	same := input(`{"n":"${inputs.n + 1}","m":"${inputs.n}","double":"${type(inputs.n) == double}"}`)
	run := newRun(newStep("step", same), newStep("items", forEach("${[1]}", 1, ""), same))
	run.Spec.Inputs = raw(`{"n":9223372036854775808}`)
	out := advance(t, run, epoch)
	if len(out.Dispatch) != 2 || !bytes.Equal(out.Dispatch[0].Input, out.Dispatch[1].Input) {
		t.Errorf("dispatched %v: %s", names(out.Dispatch), report.ErrorText(run.Status.Steps[1].Error))
	}
}

// A decision that is not written may have evaluated another list: it did not know a result yet.
//
// mutation: lists that are named by their step alone make this fail.
func TestAListOfADecisionThatWasNotWrittenIsNotBelieved(t *testing.T) {
	a := newStep("a", continues, maxFailures(1))
	a.TimeoutSeconds, a.StartTimeoutSeconds = 60, 60
	hosts := forEach("${steps.a.error == null ? steps.a.output.hosts : inputs.fallback}", 1, "")
	run := newRun(a, newStep("b", after("a"), hosts, input(`{"item":"${item}"}`)))
	run.Spec.Inputs = raw(`{"fallback":["other"]}`)
	advance(t, run, epoch)
	refused := decideAt(run, epoch.Add(2*time.Minute), held(1))
	if len(refused.Dispatch) != 1 || len(refused.Lists) != 1 {
		t.Fatalf("dispatched %v, lists %v", refused.Dispatch, refused.Lists)
	}
	out := Decide(letIn(Input{
		Run: run, Now: epoch.Add(2 * time.Minute), Lock: held(1), Lists: refused.Lists, Results: []Result{succeeded("a", 1, `{"hosts":["one"]}`)},
	}))
	if len(out.Dispatch) != 1 || string(out.Dispatch[0].Input) != `{"item":"one"}` {
		t.Errorf("dispatched %v", out.Dispatch)
	}
	run.Status = persisted(t, &out.Status)
	j, err := render.New(run, nil, refused.Lists).Job(out.Dispatch[0].ID)
	if err != nil || string(j.Input) != `{"item":"one"}` {
		t.Errorf("again it is %s, %v", j.Input, err)
	}
}

// A run that was never written may have another Workflow, other inputs and another tenant
// in the next decision.
//
// mutations: a ListName without the expression, without inputs, or without the tenant, fails one.
func TestAListOfAnotherVersionOfTheRunIsNotBelieved(t *testing.T) {
	version := func(items, inputs, tenant string) Input {
		run := newRun(newStep("b", forEach(items, 1, ""), input(`{"item":"${item}"}`)))
		run.Spec.Inputs = raw(inputs)
		in := letIn(Input{Run: run, Now: epoch, Lock: held(1)})
		in.Tenant.Name = tenant
		return in
	}
	for name, c := range map[string]struct{ first, second Input }{
		"another expression": {version("${['old']}", `{}`, "acme"), version("${['new']}", `{}`, "acme")},
		"other inputs":       {version("${[inputs.x]}", `{"x":"old"}`, "acme"), version("${[inputs.x]}", `{"x":"new"}`, "acme")},
		"another tenant":     {version("${[run.tenant]}", `{}`, "old"), version("${[run.tenant]}", `{}`, "new")},
	} {
		t.Run(name, func(t *testing.T) {
			refused := Decide(c.first)
			if len(refused.Dispatch) != 1 || string(refused.Dispatch[0].Input) != `{"item":"old"}` || len(refused.Lists) != 1 {
				t.Fatalf("dispatched %v, lists %v", refused.Dispatch, refused.Lists)
			}
			c.second.Lists = refused.Lists
			out := Decide(c.second)
			if len(out.Dispatch) != 1 || string(out.Dispatch[0].Input) != `{"item":"new"}` {
				t.Fatalf("dispatched %v", out.Dispatch)
			}
			c.second.Run.Status = persisted(t, &out.Status)
			j, err := render.New(c.second.Run, nil, refused.Lists).Job(out.Dispatch[0].ID)
			if err != nil || string(j.Input) != `{"item":"new"}` {
				t.Errorf("again it is %s, %v", j.Input, err)
			}
		})
	}
}

// mutation: no merging of groups, or no limit by crowded, makes this fail.
func TestGroupsOfItemsAreBounded(t *testing.T) {
	run := fanOut(10_000, 1000, v1alpha1.Collect)
	run.Spec.Steps[0].Retry.MaxFailures = 1000
	now, o := epoch, objects{}
	o.advance(t, run, now)
	largest := 0
	for round := range 250 {
		now = now.Add(1700 * time.Millisecond)
		var results []Result
		for k, id := range InFlight(run) {
			r := Result{ID: id, PublishedAt: now.Add(-time.Duration(k) * time.Millisecond)}
			switch (k*7919 + round*104729) % 11 {
			case 0, 1:
				r.Result.Status = protocol.StatusStarted
			case 2, 3:
				r.Result = protocol.Result{Status: protocol.StatusRetry, RetryAfterMillis: int64(k % 997)}
			case 4, 5:
				r.Result = protocol.Result{Status: protocol.StatusFailed, Error: &protocol.ResultError{Code: "E"}}
			case 6:
				r.Result = protocol.Result{Status: protocol.StatusSucceeded, Output: json.RawMessage(`{"ok":true}`)}
			default:
				continue
			}
			results = append(results, r)
		}
		o.advance(t, run, now, results...)
		largest = max(largest, len(mustJSON(t, run.Status)))
	}
	if largest > 64<<10 {
		t.Errorf("status had %d bytes", largest)
	}
	f := run.Status.Steps[0].ForEach
	if f.Succeeded < 1000 {
		t.Errorf("%d succeeded only", f.Succeeded)
	}
	t.Logf("status at most %d bytes; %d succeeded, %d groups", largest, f.Succeeded, len(f.Groups))
	sets := itemset.Set{}
	for _, g := range f.Groups {
		set, err := itemset.Parse(g.Items)
		if err != nil {
			t.Fatal(err)
		}
		before := sets.Len()
		if sets = sets.Union(set); sets.Len() != before+set.Len() {
			t.Fatalf("an item is in two groups: %s", g.Items)
		}
	}
	if n := int(f.Begun) - sets.Len(); n != int(f.Succeeded+f.Failed) {
		t.Errorf("%d items are over, counted %d", n, f.Succeeded+f.Failed)
	}
}

// The hardest case for the size of a status: every other item in flight or failed, many steps,
// outputs and errors.
func TestStatusIsBoundedWithManyItems(t *testing.T) {
	var steps []v1alpha1.Step
	for i := range 20 {
		steps = append(steps, newStep(fmt.Sprint("s", i), forEach("${inputs.list}", 1000, v1alpha1.Collect), maxFailures(1), continues))
	}
	run := newRun(steps...)
	run.Spec.MaxParallelSteps = 20
	run.Spec.Inputs = raw(`{"list":` + numbers(9000) + `}`)
	o, now, largest := objects{}, epoch, 0
	o.advance(t, run, now)
	for range 30 {
		var results []Result
		for _, id := range InFlight(run) {
			item := itemOfID(t, id)
			switch r := (Result{ID: id, PublishedAt: now}); item % 4 {
			case 0:
				r.Result = protocol.Result{Status: protocol.StatusSucceeded, Output: json.RawMessage(text(400))}
				results = append(results, r)
			case 1:
				r.Result = protocol.Result{Status: protocol.StatusFailed, Error: &protocol.ResultError{Code: strings.Repeat("C", 64), Message: strings.Repeat("é", 1024)}}
				results = append(results, r)
			}
		}
		now = now.Add(time.Second)
		o.advance(t, run, now, results...)
		largest = max(largest, len(mustJSON(t, run.Status)))
	}
	t.Logf("status at most %d bytes", largest)
	if largest > 256<<10 {
		t.Errorf("status had %d bytes", largest)
	}
}

// listName is the name of the items of step i, whose status is there, among Lists.
func listName(run *v1alpha1.WorkflowRun, i int) string {
	return render.NewView(run, run.Status, new(dag.Of(run)), nil).ListName(i)
}

// textOf is an output in status; "" if there is none.
func textOf(e *runtime.RawExtension) string {
	if e == nil {
		return ""
	}
	return string(e.Raw)
}
