// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// listOf is the output of the first step of a run, which is a list of texts.
func (o objects) listOf(t *testing.T, run *v1alpha1.WorkflowRun) (list []string) {
	t.Helper()
	s := &run.Status.Steps[0]
	text := bounds.Raw(s.Output)
	if s.OutputRef != nil {
		text = o[s.OutputRef.Name]
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatalf("%s: %v: %.200s", outcomeOf(run.Status), err, text)
	}
	return list
}

// Pages of HTML are no larger than they are: < has one byte where it does not stand in status.
//
// mutations: ofItem with the form of status fails the step; keep with it gives a list that nobody
// may read.
func TestPagesOfItemsCountAsTheyCame(t *testing.T) {
	const n, together = 40, 10
	page := strings.Repeat("<23456789", 150_000/9)
	o, run := objects{}, fanOut(n, n, "")
	o.advance(t, run, epoch)
	for first := 0; first < n; first += together {
		var results []Result
		for item := first; item < first+together; item++ {
			results = append(results, o.putItem("all", item, `"`+page+`"`))
		}
		o.advance(t, run, epoch, results...)
	}
	if got := outcomeOf(run.Status); got != "Succeeded/Succeeded" {
		t.Fatalf("%s: %+v", got, run.Status.Steps[0].Error)
	}
	if size := run.Status.Steps[0].OutputRef.Size; size > protocol.MaxPayloadBytes {
		t.Errorf("the list has %d bytes", size)
	}
	for item, is := range o.listOf(t, run) {
		if is != page {
			t.Errorf("item %d has an output of %d bytes, want %d", item, len(is), len(page))
		}
	}
}

// mutations: a text held in status that is measured as the object store has it; a part with the
// form of status, which grows each time.
func TestOutputsInStatusCountAsTheyStandThere(t *testing.T) {
	const n = 10
	text := strings.Repeat("<", 400)
	o, run := objects{}, fanOut(n, n, "")
	o.advance(t, run, epoch)
	for item := range n {
		o.advance(t, run, epoch, ofItem(item, succeeded("all", 1, `"`+text+`"`)))
		f := run.Status.Steps[0].ForEach
		if f.Outputs != nil && len(f.Outputs.Raw) > bounds.MaxHeldBytes {
			t.Errorf("after %d items %d bytes are held in status", item+1, len(f.Outputs.Raw))
		}
		if most := int64((item + 1) * len(`"`+text+`"`)); f.OutputBytes > most {
			t.Errorf("after %d items their outputs count %d bytes, more than %d", item+1, f.OutputBytes, most)
		}
	}
	for name, data := range o {
		if strings.Contains(string(data), `\u003c`) {
			t.Errorf("object %s has %.40s", name, data)
		}
	}
	if got := o.listOf(t, run); len(got) != n || got[0] != text || got[n-1] != text {
		t.Errorf("%d outputs", len(got))
	}
}

// While replicas are replaced, parts and texts in status have either form.
func TestOutputsOfItemsHaveEitherForm(t *testing.T) {
	o, run := objects{}, fanOut(3, 3, "")
	o.advance(t, run, epoch)
	o.advance(t, run, epoch, o.putItem("all", 0, text(5000)))
	o.advance(t, run, epoch, ofItem(1, succeeded("all", 1, `"b"`)))
	old := []byte(`[[0,"\u003ca\u003e"]]`) // what an older one made of it
	ref := protocol.NewOutputRef(job("all", 1), old)
	o[ref.Name] = old
	f := run.Status.Steps[0].ForEach
	f.OutputRefs, f.Outputs = []v1alpha1.OutputReference{*reference(ref)}, raw(`[[1,"\u003cb\u003e"]]`)
	o.advance(t, run, epoch, ofItem(2, succeeded("all", 1, `"<c>"`)))
	if got := fmt.Sprint(o.listOf(t, run)); got != "[<a> <b> <c>]" {
		t.Errorf("outputs %s", got)
	}
}

// Tools that list runs read status, and not one of them takes all that JSON allows.
//
// mutations: fitting without its look at the depth makes all fail.
func TestADeepOutputIsNotKeptInStatus(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + `"x"` + strings.Repeat("]", n) }
	reads := func(s string) *v1alpha1.WorkflowRun {
		return newRun(newStep("first"), newStep("then", after("first"), input(`{"x":"${`+s+`}"}`)))
	}
	for name, c := range map[string]struct {
		run   *v1alpha1.WorkflowRun
		facts func(o objects, in *Input)
		deep  bool
	}{
		"as deep as may be": {reads("size(steps.first.output)"), func(_ objects, in *Input) {
			in.Results = []Result{succeeded("first", 1, nested(bounds.MaxInputDepth))}
		}, false},
		"one more": {reads("size(steps.first.output)"), func(_ objects, in *Input) {
			in.Results = []Result{succeeded("first", 1, nested(bounds.MaxInputDepth+1))}
		}, true},
		"of an item": {func() *v1alpha1.WorkflowRun {
			run := reads("size(steps.first.output[0])")
			forEach("${[1]}", 1, "")(&run.Spec.Steps[0])
			return run
		}(), func(_ objects, in *Input) {
			in.Results = []Result{ofItem(0, succeeded("first", 1, nested(bounds.MaxInputDepth)))}
		}, true},
		"of an approver": {func() *v1alpha1.WorkflowRun {
			run := reads("size(steps.first.output.x)")
			run.Spec.Steps[0].Job, run.Spec.Steps[0].Approval = nil, &v1alpha1.Approval{}
			return run
		}(), func(_ objects, in *Input) {
			in.Signals = []Signal{{
				Step: "first", Name: "n", Approver: "u", Decision: v1alpha1.Approve, At: epoch,
				Output: []byte(`{"x":` + nested(bounds.MaxInputDepth) + `}`),
			}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := objects{}
			o.advance(t, c.run, epoch)
			in := letIn(Input{Run: c.run, Now: epoch.Add(time.Second), Lock: held(1)})
			c.facts(o, &in)
			out := o.decide(in)
			s := &out.Status.Steps[0]
			if s.Phase != v1alpha1.StepSucceeded || (s.OutputRef != nil) != c.deep || (s.Output == nil) != c.deep {
				t.Errorf("the step is %s, error %+v, reference %v", s.Phase, s.Error, s.OutputRef)
			}
			if len(out.Dispatch) != 1 || string(out.Dispatch[0].Input) != `{"x":1}` {
				t.Errorf("dispatched %v, error %+v", out.Dispatch, out.Status.Steps[1].Error)
			}
		})
	}
}

// Outputs of items wait in status for those of the others.
//
// mutation: the same as above.
func TestADeepOutputOfAnItemDoesNotWaitInStatus(t *testing.T) {
	o, run := objects{}, fanOut(2, 2, "")
	o.advance(t, run, epoch)
	o.advance(t, run, epoch, ofItem(0, succeeded("all", 1, strings.Repeat("[", 101)+strings.Repeat("]", 101))))
	if f := run.Status.Steps[0].ForEach; f.Outputs != nil || len(f.OutputRefs) != 1 || f.Succeeded != 1 {
		t.Errorf("%+v", f)
	}
	o.advance(t, run, epoch, ofItem(1, succeeded("all", 1, `1`)))
	if got := outcomeOf(run.Status); got != "Succeeded/Succeeded" || run.Status.Steps[0].OutputRef == nil {
		t.Errorf("%s", got)
	}
}
