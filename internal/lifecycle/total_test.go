// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// Decide and what goes with it take any status beside any spec. What Decide never writes ends a
// step or is left alone; it is no panic.

// A spec is validated once, so a status that knows its steps may stand beside kinds that validation
// refuses. mutation: dag.FansOut that does not look at job makes this fail.
func TestNoMixtureOfKindsIsAPanic(t *testing.T) {
	const name = "x"
	kinds := []v1alpha1.Step{
		newStep(name),
		newStep(name, forEach("${[1,2,3]}", 2, v1alpha1.Collect)),
		newStep(name, approval(func(*v1alpha1.Approval) {})),
		newStep(name, delay(30)),
		newStep(name, childRun(oneJob, `{}`)),
	}
	mixed := func(bits int) v1alpha1.Step {
		s := newStep(name)
		s.Job = nil
		for i, part := range []func(){
			func() { s.Job = kinds[0].Job },
			func() { s.ForEach = kinds[1].ForEach },
			func() { s.Approval = kinds[2].Approval },
			func() { s.Delay = kinds[3].Delay },
			func() { s.Run = kinds[4].Run },
		} {
			if bits>>i&1 == 1 {
				part()
			}
		}
		return s
	}
	phases := []v1alpha1.StepPhase{v1alpha1.StepPending, v1alpha1.StepDispatched, v1alpha1.StepRunning, v1alpha1.StepBackingOff, v1alpha1.StepWaiting}
	for k := range kinds {
		was := newRun(newStep("a"), kinds[k])
		advance(t, was, epoch)
		for bits := range 1 << len(kinds) {
			for _, phase := range phases {
				run := was.DeepCopy()
				run.Spec.Steps[1], run.Status.Steps[1].Phase = mixed(bits), phase
				t.Run(fmt.Sprintf("kind %d, then %05b, %s", k, bits, phase), func(*testing.T) { askAll(run) })
			}
		}
	}
}

// askAll decides about a run for some hours and calls all that is asked about it in between.
func askAll(run *v1alpha1.WorkflowRun) {
	for hour := range 3 {
		out := decideAt(run, epoch.Add(time.Duration(hour)*time.Hour), held(int64(hour)+2))
		run.Status = &out.Status
		InFlightJobs(run)
		WaitedFor(run)
		facts.AsksForApproval(run)
		var lost []LostJob
		for _, id := range InFlight(run) {
			lost = append(lost, LostJob{ID: id, Cause: "no"})
			Over(run, id)
			InputOutputs(run, id)
			_, _ = JobOf(run, id, nil)
		}
		Decide(letIn(Input{Run: run, Now: epoch.Add(time.Duration(hour) * time.Hour), Lock: held(int64(hour) + 2), Lost: lost}))
		for _, s := range Children(run) {
			render.ChildInputs(run, s.Name)
			_, _ = render.ChildOf(run, s.Name, nil, nil)
		}
	}
}

// mutation: a check for nil, or that the steps are those of the spec, left out of one of these
// makes this fail.
func TestNothingIsKnownOfARunWithoutASuitableStatus(t *testing.T) {
	unseen := newRun(newStep("x"), newStep("sub", childRun(oneJob, "")))
	renamed := unseen.DeepCopy()
	advance(t, renamed, epoch)
	for i := range renamed.Status.Steps {
		renamed.Status.Steps[i].Name, renamed.Status.Steps[i].JobID = fmt.Sprint("other", i), ""
	}
	shorter := unseen.DeepCopy()
	advance(t, shorter, epoch)
	shorter.Status.Steps = nil
	for name, run := range map[string]*v1alpha1.WorkflowRun{
		"there is no run": nil, "it was never seen": unseen, "its steps have other names": renamed, "its steps are not known": shorter,
	} {
		t.Run(name, func(t *testing.T) {
			if jobs := InFlightJobs(run); len(jobs) > 0 {
				t.Errorf("jobs of it: %v", jobs)
			}
			if topics := WaitedFor(run); len(topics) > 0 {
				t.Errorf("topics %v", topics)
			}
			if known := run != nil && run.Status != nil; !known && len(Children(run)) > 0 || Admitted(run) != known {
				t.Errorf("children %v, admitted %v", Children(run), Admitted(run))
			}
			if Over(run, job("x", 1)) || Finished(run) || Abandoned(run) || RenewalFailing(run) {
				t.Error("something is over, finished or wrong with the lock")
			}
			if _, err := JobOf(run, job("x", 1), nil); !errors.Is(err, render.ErrNotInFlight) {
				t.Errorf("a job: %v", err)
			}
			if _, err := render.ChildOf(run, "sub", nil, nil); !errors.Is(err, render.ErrNotInFlight) {
				t.Errorf("a child: %v", err)
			}
			if refs := append(InputOutputs(run, job("x", 1)), render.ChildInputs(run, "sub")...); len(refs) > 0 {
				t.Errorf("inputs %v", refs)
			}
		})
	}
	if diff := cmp.Diff([]Verdict{Ahead, Ahead}, Decide(Input{Results: make([]Result, 2)}).Verdicts); diff != "" {
		t.Errorf("results of a run that is not there: %s", diff)
	}
}

// mutation: jobs of steps that backed off or ended among those in flight make this fail.
func TestJobsThatAreTakenBackWhenTheirRunIsGone(t *testing.T) {
	run := newRun(newStep("a"), newStep("b"), newStep("c"), newStep("sub", childRun(oneJob, "")), newStep("all", forEach("${[1,2,3]}", 2, "")))
	advance(t, run, epoch)
	advance(t, run, epoch, succeeded("b", 1, `1`), failed("c", 1, "E", ""), ofItem(0, succeeded("all", 1, `1`)))
	want := []Withdrawal{{ID: job("a", 1), Topic: "t.a"}, {ID: itemJob("all", 1, 1), Topic: "t.all"}, {ID: itemJob("all", 2, 1), Topic: "t.all"}}
	if diff := cmp.Diff(want, InFlightJobs(run)); diff != "" {
		t.Error(diff)
	}
}

// told is a status in one line: run, steps, errors.
func told(st *v1alpha1.WorkflowRunStatus) string {
	text := outcomeOf(st)
	for _, s := range st.Steps {
		text += fmt.Sprintf("; %s %s", s.Name, s.Phase)
		if s.Error != nil {
			text += " (" + report.ErrorText(s.Error) + ")"
		}
	}
	return text
}

// mutation: attempts or failures that are counted beyond what their type holds, endIfAllOver that
// does not look for failed steps, or decideFinished that applies results, makes a case fail.
func TestStepsThatNobodyWroteLikeThat(t *testing.T) {
	const most = math.MaxInt32
	for name, c := range map[string]struct {
		odd     func(st *v1alpha1.WorkflowRunStatus, a *v1alpha1.StepStatus)
		result  *Result
		want    string
		verdict Verdict
	}{
		"a step failed, and its run goes on": {
			func(_ *v1alpha1.WorkflowRunStatus, a *v1alpha1.StepStatus) {
				a.Phase, a.Error = v1alpha1.StepFailed, &v1alpha1.StepError{Code: "E", Message: "no"}
			}, nil, "Failed/StepFailed; a Failed (E: no); b Cancelled", "",
		},
		"a step is missing": {
			func(st *v1alpha1.WorkflowRunStatus, _ *v1alpha1.StepStatus) { st.Steps[1].Name = "z" },
			nil, "Running/Running; a Dispatched; b Pending", "",
		},
		"the last attempt that has a number waits for the next": {
			func(_ *v1alpha1.WorkflowRunStatus, a *v1alpha1.StepStatus) {
				a.Phase, a.Attempt = v1alpha1.StepBackingOff, most
			},
			nil, "Failed/StepFailed; a Failed (AttemptsExceeded: no attempt number is left); b Cancelled", "",
		},
		"a step failed more often than can be counted": {
			func(_ *v1alpha1.WorkflowRunStatus, a *v1alpha1.StepStatus) { a.Failures = most },
			new(failed("a", 1, "E", "no")), "Failed/StepFailed; a Failed (E: no); b Cancelled", Applied,
		},
		"an attempt is in flight of a run that ended": {
			func(st *v1alpha1.WorkflowRunStatus, _ *v1alpha1.StepStatus) { st.CompletedAt = bounds.Second(epoch) },
			new(succeeded("a", 1, `1`)), "Running/Running; a Dispatched; b Pending", Duplicate,
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"), newStep("b", after("a")))
			advance(t, run, epoch)
			c.odd(run.Status, &run.Status.Steps[0])
			var results []Result
			if c.result != nil {
				results = []Result{*c.result}
			}
			out := decideAt(run, epoch, held(2), results...)
			if got := told(&out.Status); got != c.want || out.Status.Steps[0].Failures < 0 {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if c.result != nil && out.Verdicts[0] != c.verdict {
				t.Errorf("verdict %s, want %s", out.Verdicts[0], c.verdict)
			}
		})
	}
}

// The API server takes only JSON, so what reads anything else was not written by it: that fails,
// and says where.
// mutation: an output whose error is dropped makes this fail.
func TestWhatIsNoJSONFailsWhatReadsIt(t *testing.T) {
	const notJSON = "ExpressionError: output of a: not JSON"
	reads := newStep("b", after("a"), input(`{"x":"${steps.a.output}"}`))
	list := newStep("b", after("a"), forEach("${steps.a.output}", 1, ""))
	items := newStep("b", after("a"), forEach("${[1]}", 1, ""))
	outputs := func(run *v1alpha1.WorkflowRun) { run.Spec.Outputs = raw(`{"x":"${steps.a.output}"}`) }
	inputs := func(run *v1alpha1.WorkflowRun) { run.Spec.Inputs = raw(`{"x":`) }
	for name, c := range map[string]struct {
		steps  []v1alpha1.Step
		change func(*v1alpha1.WorkflowRun)
		list   []any  // of step b, as it is remembered
		want   string // how the run ends, and the beginning of why
	}{
		"a condition":          {[]v1alpha1.Step{newStep("b", after("a"), when("steps.a.output == 1"))}, nil, nil, "Failed/StepFailed: step b failed: " + notJSON},
		"an input":             {[]v1alpha1.Step{reads}, nil, nil, "Failed/StepFailed: step b failed: " + notJSON},
		"a list":               {[]v1alpha1.Step{list}, nil, nil, "Failed/StepFailed: step b failed: " + notJSON},
		"the input of an item": {[]v1alpha1.Step{items}, nil, []any{1}, "Failed/StepFailed: step b failed: " + notJSON},
		"outputs of the run":   {nil, outputs, nil, "Failed/OutputsFailed: output of a: not JSON"},
		"inputs of the run":    {[]v1alpha1.Step{newStep("b", input(`{"x":"${inputs.x}"}`))}, inputs, nil, "Failed/StepFailed: step b failed: ExpressionError: spec.inputs: not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(append([]v1alpha1.Step{newStep("a")}, c.steps...)...)
			st := &v1alpha1.WorkflowRunStatus{Tenant: "team-a", Admission: &v1alpha1.AdmissionStatus{AdmittedAt: bounds.Second(epoch)}}
			for _, s := range run.Spec.Steps {
				st.Steps = append(st.Steps, v1alpha1.StepStatus{Name: s.Name, Phase: v1alpha1.StepPending})
			}
			st.Steps[0].Phase, st.Steps[0].Output = v1alpha1.StepSucceeded, raw(`{"x":`)
			run.Status = st
			if c.change != nil {
				c.change(run)
			}
			in := letIn(Input{Run: run, Now: epoch, Lock: held(1)})
			if c.list != nil {
				in.Lists = map[string][]any{listName(run, 1): c.list}
			}
			out := Decide(in)
			if got := outcomeOf(&out.Status) + ": " + status.Condition(&out.Status, v1alpha1.ConditionSucceeded).Message; !strings.HasPrefix(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// itemsOf is a run whose step all has four items, two of them in flight, with what something odd is
// made of it.
func itemsOf(t *testing.T, odd func(*v1alpha1.Step, *v1alpha1.ForEachStatus)) *v1alpha1.WorkflowRun {
	t.Helper()
	run := fanOut(4, 2, v1alpha1.Collect)
	advance(t, run, epoch)
	odd(&run.Spec.Steps[0], run.Status.Steps[0].ForEach)
	return run
}

// mutation: an item equal to the length of the list, or to total in fanout.ListOf, taken for
// one of them makes a case fail.
func TestItemsThatNobodyWroteLikeThat(t *testing.T) {
	second := epoch.Add(time.Second)
	for name, c := range map[string]struct {
		odd  func(s *v1alpha1.Step, f *v1alpha1.ForEachStatus)
		want string // the step, its items under way, the last error
	}{
		"a group that is no set of items is left out": {
			func(_ *v1alpha1.Step, f *v1alpha1.ForEachStatus) {
				f.Groups = append(f.Groups, v1alpha1.ItemGroup{Items: "1-0", Phase: v1alpha1.StepRunning, Attempt: 7})
			},
			"Running [0-1 Dispatched 1] not an error",
		},
		"groups without a moment never time out": {
			func(_ *v1alpha1.Step, f *v1alpha1.ForEachStatus) {
				f.Groups = []v1alpha1.ItemGroup{{Items: "1", Phase: v1alpha1.StepRunning, Attempt: 1}, {Items: "0", Phase: v1alpha1.StepRunning, Attempt: 1}}
			},
			"Running [0 Running 1 1 Running 1] not an error",
		},
		"items that the list does not have fail": {
			func(_ *v1alpha1.Step, f *v1alpha1.ForEachStatus) { f.Total, f.Begun, f.Groups = 6, 4, nil },
			"Succeeded [] ExpressionError: item 5: there are 4 items only",
		},
		"an input that is no template fails the step": {
			func(s *v1alpha1.Step, f *v1alpha1.ForEachStatus) { s.Job.Input, f.Groups = raw(`{"x":"${"}`), nil },
			"Failed [] ExpressionError: job.input: ",
		},
		"outputs that are no list are lost": {
			func(_ *v1alpha1.Step, f *v1alpha1.ForEachStatus) { f.Begun, f.Groups, f.Outputs = 4, nil, raw(`{}`) },
			"Failed [] OutputLost: outputs of items: not a list of outputs: ",
		},
		"outputs without items are lost": {
			func(_ *v1alpha1.Step, f *v1alpha1.ForEachStatus) { f.Begun, f.Groups, f.Outputs = 4, nil, raw(`[[]]`) },
			`Failed [] OutputLost: outputs of items: not a list of outputs: "[]" is no pair`,
		},
		"outputs of items that are not there are lost": {
			func(_ *v1alpha1.Step, f *v1alpha1.ForEachStatus) {
				f.Begun, f.Groups, f.Outputs = 4, nil, raw(`[[0,1],[4,1]]`)
			},
			`Failed [] OutputLost: outputs of items: there is no item "4"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := decideAt(itemsOf(t, c.odd), second, held(2)).Status.Steps[0]
			var groups []string
			for _, g := range s.ForEach.Groups {
				groups = append(groups, fmt.Sprintf("%s %s %d", g.Items, g.Phase, g.Attempt))
			}
			if got := fmt.Sprintf("%s %v %s", s.Phase, groups, report.ErrorText(s.Error)); !strings.HasPrefix(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// mutation: itemDispatched that does not look at the moment makes this fail.
func TestAnItemThatWasNeverDispatchedHasNoJob(t *testing.T) {
	run := itemsOf(t, func(_ *v1alpha1.Step, f *v1alpha1.ForEachStatus) { f.Groups[0].DispatchedAt = nil })
	if _, err := JobOf(run, itemJob("all", 0, 1), nil); !errors.Is(err, render.ErrNotInFlight) {
		t.Error(err)
	}
}
