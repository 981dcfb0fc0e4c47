// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// oneJob is the spec of a child with one job.
const oneJob = `{"steps":[{"name":"x","job":{"topic":"t.x"}}],"outputs":{"y":"${steps.x.output}"}}`

func childRun(spec, inputs string) stepOption {
	return func(s *v1alpha1.Step) {
		s.Job, s.Run = nil, &v1alpha1.ChildRun{Spec: runtime.RawExtension{Raw: []byte(spec)}}
		if inputs != "" {
			s.Run.Inputs = raw(inputs)
		}
	}
}

// beginning is a run whose child has begun, confirmed or not.
func beginning(t *testing.T, uid string, options ...stepOption) *v1alpha1.WorkflowRun {
	t.Helper()
	run := newRun(newStep("sub", append([]stepOption{childRun(oneJob, "")}, options...)...))
	advance(t, run, epoch)
	run.Status.Steps[0].ChildRun.UID = uid
	return run
}

func decideWith(run *v1alpha1.WorkflowRun, lock Lock, c Child) Decision {
	in := letIn(Input{Run: run, Now: epoch.Add(time.Second), Lock: lock})
	if steps := Children(run); len(steps) > 0 {
		in.Children = map[string]Child{steps[0].ChildRun.Name: c}
	}
	return objects{}.decide(in)
}

// mutation: each case of applyChild and childEnded that is left out, or does not compare uids,
// makes this fail.
func TestWhatBecomesOfAStepThatIsAChildRun(t *testing.T) {
	over := func(phase v1alpha1.RunPhase) Child {
		return Child{State: ChildThere, UID: "u-c", Finished: true, Phase: phase, Reason: "Because", Message: "of that", Output: []byte(`{"y":1.0}`)}
	}
	for name, c := range map[string]struct {
		uid   string
		child Child
		want  string // phase of the step, uid of the child, and error or output
	}{
		"nothing is known of it":                   {"", Child{}, "Running /"},
		"nothing is known of it, confirmed":        {"u-c", Child{}, "Running u-c/"},
		"it is there":                              {"", Child{State: ChildThere, UID: "u-c"}, "Running u-c/"},
		"it is there, confirmed":                   {"u-c", Child{State: ChildThere, UID: "u-c"}, "Running u-c/"},
		"another has its name":                     {"u-c", Child{State: ChildThere, UID: "u-d"}, "Failed u-c/ChildDeleted: child run NAME: it was deleted before it ended"},
		"another has its name, and has ended":      {"u-d", over(v1alpha1.RunSucceeded), "Failed u-d/ChildDeleted: child run NAME: it was deleted before it ended"},
		"it is gone":                               {"u-c", Child{State: ChildGone}, "Failed u-c/ChildDeleted: child run NAME: it was deleted before it ended"},
		"it is gone, and was never there":          {"", Child{State: ChildGone}, "Running /"},
		"it succeeded":                             {"u-c", over(v1alpha1.RunSucceeded), `Succeeded u-c/{"y":1}`},
		"it ended before it was confirmed":         {"", over(v1alpha1.RunFailed), "Failed u-c/ChildFailed: child run NAME: Because: of that"},
		"it failed":                                {"u-c", over(v1alpha1.RunFailed), "Failed u-c/ChildFailed: child run NAME: Because: of that"},
		"it was cancelled":                         {"u-c", over(v1alpha1.RunCancelled), "Failed u-c/ChildCancelled: child run NAME: Because: of that"},
		"it timed out":                             {"u-c", over(v1alpha1.RunTimedOut), "Failed u-c/ChildTimedOut: child run NAME: Because: of that"},
		"its name is taken":                        {"", Child{State: ChildTaken, Cause: "by x"}, "Failed /NameTaken: child run NAME: by x"},
		"its name is taken, as an old view has it": {"u-c", Child{State: ChildTaken, Cause: "by x"}, "Running u-c/"},
		"it is refused":                            {"", Child{State: ChildRefused, Cause: "no"}, "Failed /InvalidSpec: child run NAME: no"},
		"it is refused, as an old view has it":     {"u-c", Child{State: ChildRefused, Cause: "no"}, "Running u-c/"},
		"it cannot be created now":                 {"", Child{State: ChildPostponed, Cause: "quota"}, "Running /"},
	} {
		t.Run(name, func(t *testing.T) {
			run := beginning(t, c.uid)
			s := decideWith(run, held(1), c.child).Status.Steps[0]
			got := fmt.Sprintf("%s %s/", s.Phase, s.ChildRun.UID)
			switch {
			case s.Error != nil:
				got += report.ErrorText(s.Error)
			case s.Output != nil:
				got += string(s.Output.Raw)
			}
			if want := strings.ReplaceAll(c.want, "NAME", s.ChildRun.Name); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			for _, lock := range []Lock{busy(), unavailable()} {
				if out := decideWith(run, lock, c.child); !cmp.Equal(out.Status.Steps, run.Status.Steps) || len(out.Create) > 0 {
					t.Errorf("a step changed without the lock: %+v", out.Status.Steps)
				}
			}
		})
	}
}

// mutation: status.WithWorker that does not look at ChildRun makes this fail.
func TestAChildRunIsNoJob(t *testing.T) {
	run := beginning(t, "u-c")
	if ids := InFlight(run); len(ids) > 0 {
		t.Errorf("jobs in flight: %v", ids)
	}
	if out := decideAt(run, epoch.Add(100*time.Hour), held(1)); out.Changed || !out.Wake.IsZero() || len(out.Withdraw) > 0 {
		t.Errorf("a child run times out like a job: %+v", out)
	}
	late := Result{ID: job("sub", 1), Result: protocol.Result{Status: protocol.StatusSucceeded}}
	if out := decideAt(run, epoch.Add(time.Second), held(1), late); out.Verdicts[0] != Ahead {
		t.Errorf("a result for a child run: %v", out.Verdicts)
	}
	run.Spec.Shutdown = v1alpha1.ShutdownCancel
	if out := decideAt(run, epoch.Add(time.Second), held(1)); len(out.Withdraw) > 0 || out.Status.Steps[0].Phase != v1alpha1.StepCancelled {
		t.Errorf("cancelled: %+v, withdrawn %v", out.Status.Steps, out.Withdraw)
	}
}

func TestAChildRunIsRenderedTheSameAgain(t *testing.T) {
	run := newRun(newStep("a"), newStep("sub", after("a"), childRun(oneJob, `{"n":"${steps.a.output}"}`)))
	store := objects{}
	store.advance(t, run, epoch)
	out := store.advance(t, run, epoch.Add(time.Second), store.put("a", 1, text(5000)))
	if len(out.Create) != 1 || !strings.Contains(string(out.Create[0].Spec.Inputs.Raw), "xxxx") {
		t.Fatalf("created %+v", out.Create)
	}
	payloads := Payloads{}
	for _, ref := range render.ChildInputs(run, "sub") {
		payloads[ref.Name] = Payload{Data: store[ref.Name]}
	}
	again, err := render.ChildOf(run, "sub", payloads, nil)
	if diff := cmp.Diff(out.Create[0], again); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, step := range []string{"a", "nowhere"} {
		if _, err := render.ChildOf(run, step, payloads, nil); !errors.Is(err, render.ErrNotInFlight) {
			t.Errorf("child of %s: %v", step, err)
		}
		if refs := render.ChildInputs(run, step); len(refs) > 0 {
			t.Errorf("inputs of the child of %s: %v", step, refs)
		}
	}
	if _, err := render.ChildOf(run, "sub", nil, nil); err == nil || errors.Is(err, render.ErrNotInFlight) || !strings.Contains(err.Error(), "run.inputs: 1 outputs are to be loaded") {
		t.Errorf("without what it reads: %v", err)
	}
	run.Spec.Steps[1].Run.Inputs = raw(`{"n":"${"}`)
	if _, err := render.ChildOf(run, "sub", payloads, nil); err == nil || render.ChildInputs(run, "sub") != nil {
		t.Errorf("inputs that nobody validated: %v", err)
	}
}

// mutation: a field of Child that SeenChild does not fill, or fills of a run that goes on,
// makes this fail.
func TestWhatAChildTellsItsParent(t *testing.T) {
	ref := &v1alpha1.OutputReference{Name: "u-c/outputs/-/1/x", Digest: "sha256:x", Size: 9000}
	at := metav1.Time{Time: epoch}
	why := []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Reason: "Because", Message: "of that"}}
	for name, c := range map[string]struct {
		status *v1alpha1.WorkflowRunStatus
		want   Child
	}{
		"nothing is written yet": {nil, Child{}},
		"it goes on":             {&v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Outputs: raw(`{}`), Conditions: why}, Child{}},
		"it returned something": {
			&v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunSucceeded, CompletedAt: &at, Outputs: raw(`{"y":1}`), Conditions: why},
			Child{Finished: true, Phase: v1alpha1.RunSucceeded, Reason: "Because", Message: "of that", Output: []byte(`{"y":1}`)},
		},
		"it returned something large": {
			&v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunSucceeded, CompletedAt: &at, OutputsRef: ref, Conditions: why},
			Child{Finished: true, Phase: v1alpha1.RunSucceeded, Reason: "Because", Message: "of that", OutputRef: ref},
		},
		"it ended, and does not say why": {
			&v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunFailed, CompletedAt: &at}, Child{Finished: true, Phase: v1alpha1.RunFailed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{UID: "u-c"}, Status: c.status}
			c.want.State, c.want.UID = ChildThere, "u-c"
			if diff := cmp.Diff(c.want, facts.SeenChild(run)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// mutation: childSucceeded without Payloads makes this fail.
func TestLargeOutputsOfAChildBelongToItsParent(t *testing.T) {
	run, data := beginning(t, "u-c"), []byte(text(100_000))
	ref := protocol.NewOutputRef(protocol.JobID{RunUID: "u-c", Step: "outputs", Item: protocol.NoItem, Attempt: 1}, data)
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Children: map[string]Child{
		run.Status.Steps[0].ChildRun.Name: {State: ChildThere, UID: "u-c", Finished: true, Phase: v1alpha1.RunSucceeded, OutputRef: reference(ref)},
	}})
	out := Decide(in)
	if diff := cmp.Diff(Needs{Load: []protocol.OutputRef{ref}}, out.Needs); diff != "" {
		t.Fatalf("needs: %s", diff)
	}
	in.Payloads = Payloads{ref.Name: {Data: data}}
	out = Decide(in)
	if len(out.Needs.Store) != 1 || out.Needs.Store[0].Ref.Check(job("sub", 1)) != nil || len(out.Needs.Load) > 0 {
		t.Fatalf("needs: %+v", out.Needs)
	}
	in.Payloads[out.Needs.Store[0].Ref.Name] = Payload{Data: data}
	if s := Decide(in).Status.Steps[0]; s.Phase != v1alpha1.StepSucceeded || s.OutputRef == nil || !strings.HasPrefix(s.OutputRef.Name, "u-1/sub/") {
		t.Errorf("%+v", s)
	}
	in.Payloads[out.Needs.Store[0].Ref.Name] = Payload{Problem: "no room"}
	if s := Decide(in).Status.Steps[0]; s.Phase != v1alpha1.StepFailed || s.Error.Code != facts.CodeResultRejected || !strings.Contains(s.Error.Message, "no room") {
		t.Errorf("not to be stored: %+v", s)
	}
	in.Payloads = Payloads{ref.Name: {Problem: "it is gone"}}
	if s := Decide(in).Status.Steps[0]; s.Phase != v1alpha1.StepFailed || !strings.Contains(s.Error.Message, "it is gone") {
		t.Errorf("%+v", s)
	}
}

// mutation: render.MaxRendered that is that of jobs makes this fail.
func TestInputsOfAChildAreBounded(t *testing.T) {
	run := newRun(newStep("a"), newStep("sub", after("a"), childRun(oneJob, `{"n":"${steps.a.output}"}`)))
	store := objects{}
	store.advance(t, run, epoch)
	out := store.advance(t, run, epoch.Add(time.Second), store.put("a", 1, text(70_000)))
	if e := out.Status.Steps[1].Error; e == nil || e.Code != facts.CodeInputTooLarge || len(out.Create) > 0 {
		t.Errorf("error %+v, created %d", e, len(out.Create))
	}
}

// mutation: render.ChildName that does not cut, or cuts the hash, makes this fail.
func TestNamesOfChildren(t *testing.T) {
	label := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	seen := map[string]bool{}
	for _, parent := range []string{"a", "nightly.report", strings.Repeat("n", 63), strings.Repeat("n.", 120) + "n"} {
		for _, uid := range []types.UID{"u-1", "u-2"} {
			for _, step := range []string{"s", "-", strings.Repeat("s", 40), strings.Repeat("-", 40)} {
				run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: parent, UID: uid}}
				name := render.ChildName(run, step)
				if !label.MatchString(name) || seen[name] || name != render.ChildName(run, step) || !strings.Contains(name, step) {
					t.Errorf("%s, step %s: %s", parent, step, name)
				}
				seen[name] = true
			}
		}
	}
}

// nest is a spec with runs down to a level.
func nest(level int) string {
	if level == 1 {
		return oneJob
	}
	return `{"steps":[{"name":"s","run":{"spec":` + nest(level-1) + `}}]}`
}

// mutation: each check of dag.ChildSpec and validator.child that is left out makes this fail.
func TestSpecsOfChildrenAreChecked(t *testing.T) {
	steps := `"steps":[{"name":"x","job":{"topic":"t.x"}}]`
	for name, c := range map[string]struct{ spec, inputs, want string }{
		"good":                          {oneJob, `{"n":1}`, ""},
		"good on five levels":           {nest(4), "", ""},
		"six levels":                    {nest(5), "", "spec.steps[0].run.spec.steps[0].run.spec.steps[0].run.spec.steps[0].run.spec.steps[0].run: nested too deep"},
		"no object":                     {`[]`, "", "spec.steps[0].run.spec: "},
		"no spec at all":                {``, "", "spec.steps[0].run.spec.steps: at least one step is needed"},
		"no steps":                      {`{}`, "", "spec.steps[0].run.spec.steps: at least one step is needed"},
		"an unknown field":              {`{` + steps + `,"step":[]}`, "", `spec.steps[0].run.spec: unknown field "step"`},
		"an unknown field of a step":    {`{"steps":[{"name":"x","jobs":{}}]}`, "", `spec.steps[0].run.spec: unknown field "steps[0].jobs"`},
		"a field twice":                 {`{` + steps + `,` + steps + `}`, "", `spec.steps[0].run.spec: duplicate field "steps"`},
		"a bad topic":                   {`{"steps":[{"name":"x","job":{"topic":"T"}}]}`, "", `spec.steps[0].run.spec.steps[0].job.topic: "T"`},
		"a bad topic two levels down":   {`{"steps":[{"name":"s","run":{"spec":{"steps":[{"name":"x","job":{"topic":"T"}}]}}}]}`, "", `spec.steps[0].run.spec.steps[0].run.spec.steps[0].job.topic: "T"`},
		"an expression of the parent's": {`{"steps":[{"name":"x","when":"steps.sub.phase == ''","job":{"topic":"t"}}]}`, "", `spec.steps[0].run.spec.steps[0].when: there is no step "sub"`},
		"inputs in spec":                {`{` + steps + `,"inputs":{}}`, "", "spec.steps[0].run.spec: inputs are given beside spec"},
		"a tenant":                      {`{` + steps + `,"tenant":"x"}`, "", "spec.steps[0].run.spec: tenant is"},
		"a priority":                    {`{` + steps + `,"priority":1}`, "", "spec.steps[0].run.spec: priority is"},
		"an idempotency key":            {`{` + steps + `,"idempotencyKey":"k"}`, "", "spec.steps[0].run.spec: idempotencyKey is"},
		"what it goes on from":          {`{` + steps + `,"startFrom":{"run":"r","uid":"u"}}`, "", "spec.steps[0].run.spec: startFrom is"},
		"a time of no year":             {`{"steps":[{"name":"x","delay":{"until":"9999-12-31T23:59:59-12:00"}}]}`, "", "spec.steps[0].run.spec.steps[0].delay.until: it is not in the years"},
		"a time that is none":           {`{"steps":[{"name":"x","delay":{"until":"2027-12-01t00:00:00z"}}]}`, "", "spec.steps[0].run.spec: parsing time"},
		"a queue time-out":              {`{` + steps + `,"queueTimeoutSeconds":1}`, "", "spec.steps[0].run.spec: queueTimeoutSeconds is"},
		"a time to live":                {`{` + steps + `,"ttlSecondsAfterFinished":1}`, "", "spec.steps[0].run.spec: ttlSecondsAfterFinished is"},
		"suspended":                     {`{` + steps + `,"suspend":true}`, "", "spec.steps[0].run.spec: suspend is"},
		"shut down":                     {`{` + steps + `,"shutdown":"Cancel"}`, "", "spec.steps[0].run.spec: shutdown is"},
		"inputs that are no object":     {oneJob, `[]`, "spec.steps[0].run.inputs: "},
		"inputs that read what is not":  {oneJob, `{"a":"${steps.z.output}"}`, `spec.steps[0].run.inputs: step "z" is read but not depended on`},
		"inputs that are too large":     {oneJob, `{"a":` + text(70_000) + `}`, "spec.steps[0].run.inputs: 70"},
		"a spec that is too large":      {`{` + steps + `,"outputs":{"a":` + text(600_000) + `}}`, "", "spec: 600"},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("sub", childRun(c.spec, c.inputs)), newStep("z"))
			out := decideAt(run, epoch, held(1))
			got := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
			if c.want == "" {
				if got.Reason != v1alpha1.ReasonRunning || len(out.Create) != 1 {
					t.Errorf("%s: %s, created %d", got.Reason, got.Message, len(out.Create))
				}
				return
			}
			if got.Reason != v1alpha1.ReasonInvalidSpec || !strings.HasPrefix(got.Message, c.want) || len(out.Create)+len(out.Dispatch) > 0 {
				t.Errorf("%s: %s; want %s", got.Reason, bounds.Cut(got.Message, 600), c.want)
			}
		})
	}
}

// Locks in the spec of a child run, or in the Workflow that it follows, are told with the place
// where they do what was meant; the parent's step, whose failure people see first, has all of that.
//
// mutation: ChildLocks that does not name the Workflow, or the place, makes this fail.
func TestAChildRunWithLocksIsToldWhereTheyBelong(t *testing.T) {
	const place = "give them to the step that is the run, as steps[].locks"
	message := func(out *Decision) string {
		if got := outcomeOf(&out.Status); got != "Failed/InvalidSpec" {
			t.Error(got)
		}
		return status.Condition(&out.Status, v1alpha1.ConditionSucceeded).Message
	}
	out := decideAt(newRun(newStep("sub", childRun(`{"locks":[{"mutex":"m"}],"steps":[{"name":"x","job":{"topic":"t"}}]}`, ""))), epoch, held(1))
	if got := message(&out); !strings.HasPrefix(got, "spec.steps[0].run.spec: locks are not for a child run") || !strings.Contains(got, place) {
		t.Error(got)
	}

	child := lockedRun()
	child.Spec.WorkflowRef = &v1alpha1.WorkflowReference{Name: "deploy"}
	in := letIn(Input{Run: child, Now: epoch, Lock: held(1), Template: Template{Revision: &v1alpha1.WorkflowRevision{Name: "deploy"}}})
	in.Parent = &Parent{Claim: v1alpha1.ParentStatus{Name: "p", UID: "u"}, Named: true, Tenant: "acme"}
	out = Decide(in)
	why := message(&out)
	if !strings.HasPrefix(why, `spec.locks: those of Workflow "deploy" are not for a child run`) || !strings.Contains(why, place) {
		t.Error(why)
	}

	parent := newRun(newStep("sub", withStepLocks(mutexOf("m")), childRun(oneJob, "")))
	in = letIn(Input{Run: parent, Now: epoch, Lock: held(1), Locks: map[string]LocksAnswer{"sub": heldWith(1)}})
	out = objects{}.decide(in)
	if len(out.Create) != 1 {
		t.Fatalf("a step with locks that is a run does not begin: %s", outcomeOf(&out.Status))
	}
	parent.Status = &out.Status
	out = decideWith(parent, held(1), Child{State: ChildThere, UID: "u-c", Finished: true, Phase: v1alpha1.RunFailed, Reason: v1alpha1.ReasonInvalidSpec, Message: why})
	if e := out.Status.Steps[0].Error; e == nil || !strings.Contains(e.Message, `Workflow "deploy"`) || !strings.Contains(e.Message, place) {
		t.Errorf("the parent's step: %+v", out.Status.Steps[0])
	}
}

func TestAChildRunMayNotCleanUp(t *testing.T) {
	run := newRun(newStep("a"))
	run.Spec.Finally = []v1alpha1.Step{newStep("f", childRun(oneJob, ""))}
	out := decideAt(run, epoch, held(1))
	if got := status.Condition(&out.Status, v1alpha1.ConditionSucceeded); !strings.Contains(got.Message, "spec.finally[0]: a finally step needs exactly one of job and delay") {
		t.Errorf("%s: %s", got.Reason, got.Message)
	}
}

// What a delay waits for may come between the creation of the root and that of the child. mutation:
// unborn returns d.run.
func TestADelayOfAChildMayBeOver(t *testing.T) {
	run := newRun(newStep("d", delayUntil(epoch.Add(-time.Second))))
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Parent: &Parent{Claim: v1alpha1.ParentStatus{Name: "p", UID: "u-p", Root: "p"}, Tenant: "acme", Named: true}})
	out := objects{}.decide(in)
	if got := outcomeOf(&out.Status); got != "Succeeded/Succeeded" {
		t.Error(got)
	}
}

// So may what a run waits for that goes on from another one: its steps have to be those
// of that one.
//
// mutation: asCreated without startFrom makes this fail.
func TestADelayOfARunThatStartsFromAnotherMayBeOver(t *testing.T) {
	past := epoch.Add(-time.Second)
	nested := fmt.Sprintf(`{"steps":[{"name":"w","delay":{"until":"%s"}}]}`, past.Format(time.RFC3339))
	run := newRun(newStep("d", delayUntil(past)), newStep("b", after("d")), newStep("c", after("d"), childRun(nested, "")))
	if refused := decideAt(run, epoch, held(1)); outcomeOf(&refused.Status) != "Failed/InvalidSpec" {
		t.Errorf("without startFrom: %s", outcomeOf(&refused.Status))
	}
	run.Spec.StartFrom = &v1alpha1.StartFrom{Run: "first", UID: "u-0"}
	done := v1alpha1.StepStatus{Name: "d", Phase: v1alpha1.StepSucceeded, DelayedUntil: bounds.Micro(past), DoneBy: "first"}
	out := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Origin: Origin{Steps: []v1alpha1.StepStatus{done}}}))
	if len(out.Dispatch) != 1 || len(out.Create) != 1 {
		t.Errorf("%s, dispatches %v, creates %v", outcomeOf(&out.Status), names(out.Dispatch), out.Create)
	}
}

// A value that a child run may not have ends a run at first sight. An operator that did not look
// for it let runs begin: these go on, as their steps with it may never begin.
//
// mutations: initialize that validates the spec of a run that began; child without OutOfBounds.
func TestARunThatBeganGoesOnThoughAChildRunMayNotHaveAValue(t *testing.T) {
	run := newRun(newStep("a"), newStep("c", after("a"), childRun(`{"steps":[{"name":"w","onFailure":"continue","job":{"topic":"t"}}]}`, "")))
	if first := decideAt(run, epoch, held(1)); outcomeOf(&first.Status) != "Failed/InvalidSpec" {
		t.Errorf("at first sight: %s", outcomeOf(&first.Status))
	}
	fine := newRun(newStep("a"), newStep("c", after("a"), childRun(oneJob, "")))
	began := decideAt(fine, epoch, held(1))
	run.Status = &began.Status
	out := decideAt(run, epoch.Add(time.Second), held(1))
	if out.Status.CompletedAt != nil || out.Status.Phase != v1alpha1.RunRunning {
		t.Errorf("it began: %s, %s", out.Status.Phase, outcomeOf(&out.Status))
	}
}

// A template has the same time for all of its runs: the one that comes after that time is no
// mistake of who makes it. A run whose steps are its own may be one.
//
// mutations: asCreated without workflowRef, without the Schedule, or with any owner,
// make this fail.
func TestADelayOfARunOfATemplateMayBeOver(t *testing.T) {
	past := epoch.Add(-time.Second)
	nested := fmt.Sprintf(`{"steps":[{"name":"w","delay":{"until":"%s"}}]}`, past.Format(time.RFC3339))
	owned := func(version, kind string) func(*v1alpha1.WorkflowRun) {
		return func(run *v1alpha1.WorkflowRun) {
			owner := metav1.OwnerReference{APIVersion: version, Kind: kind, Name: "o", UID: "u-o", Controller: new(true)}
			run.OwnerReferences = []metav1.OwnerReference{owner}
		}
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.WorkflowRun)
		taken  bool
	}{
		"steps of its own": {func(*v1alpha1.WorkflowRun) {}, false},
		"of a Workflow":    {func(run *v1alpha1.WorkflowRun) { run.Spec.WorkflowRef = &v1alpha1.WorkflowReference{Name: "w"} }, true},
		"of a Schedule":    {owned(v1alpha1.GroupVersion.String(), "Schedule"), true},
		"of another thing": {owned(v1alpha1.GroupVersion.String(), "LockPolicy"), false},
		"of another group": {owned("example.org/v1", "Schedule"), false},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("d", delayUntil(past)), newStep("c", childRun(nested, "")))
			c.change(run)
			out := decideAt(run, epoch, held(1))
			if invalid := outcomeOf(&out.Status) == "Failed/InvalidSpec"; invalid == c.taken {
				t.Errorf("%s: %s", outcomeOf(&out.Status), status.Condition(&out.Status, v1alpha1.ConditionSucceeded).Message)
			}
			if c.taken && len(out.Create) != 1 {
				t.Errorf("creates %v", out.Create)
			}
		})
	}
}

// Workflows that name each other would make as many runs as they have steps, on each level more.
// mutation: nestOf that is always that of the top, or commitChild that does not say how many runs
// may be below the child, makes this fail.
func TestAChildHasAShareOfTheRunsThatMayBeBelowTheOneAtTheTop(t *testing.T) {
	run := newRun(newStep("a", childRun(oneJob, "")), newStep("b", childRun(oneJob, "")))
	for name, c := range map[string]struct {
		below *int32 // what status has pinned
		want  string
	}{
		"a share of ten":                     {new(int32(10)), "4"},
		"one for each, and none below them":  {new(int32(2)), "0"},
		"not counted by an earlier operator": {nil, "2499"},
		"less than it has":                   {new(int32(1)), v1alpha1.ReasonInvalidSpec},
	} {
		t.Run(name, func(t *testing.T) {
			claim := v1alpha1.ParentStatus{Name: "p", UID: "u-p", Root: "p", Level: 2, Below: c.below}
			out := objects{}.decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Parent: &Parent{Claim: claim, Tenant: "acme", Named: true}}))
			got := status.ReasonOf(&out.Status, v1alpha1.ConditionSucceeded)
			if child := out.Status.Steps[0].ChildRun; child != nil {
				got = fmt.Sprint(*child.Below)
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
