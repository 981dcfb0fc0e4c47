// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// cleaned is a run of two steps with two that clean up.
func cleaned() *v1alpha1.WorkflowRun {
	run := newRun(newStep("a"), newStep("b", after("a")))
	run.Spec.Finally = []v1alpha1.Step{
		newStep("release", maxFailures(1), input(`{"phase": "${run.phase}", "a": "${steps.a.phase}", "b": "${steps.b.output}"}`)),
		newStep("notify", after("release"), input(`{"text": "${run.reason}: ${run.message}"}`)),
		newStep("log"),
	}
	run.Spec.FinallyTimeoutSeconds = 30
	return run
}

// ends plays a run to a moment, does something, and tells how it ended.
func TestARunWithCleanUpEnds(t *testing.T) {
	running := func(s *story) { s.decide(0, "") }
	cleaning := func(s *story) {
		s.decide(0, "")
		s.decide(time.Second, "", failed("a", 1, "E", "first"), result("a", 1, protocol.StatusStarted))
		s.run.Spec.Suspend = false
	}
	answered := func(s *story) {
		s.decide(time.Second, "", succeeded("release", 1, `{}`), succeeded("log", 1, `{}`))
		s.decide(time.Second, "", succeeded("notify", 1, `{}`))
	}
	for name, c := range map[string]struct {
		adjust func(*v1alpha1.WorkflowRun)
		plays  []func(*story)
		want   string
	}{
		"after a cancel, the clean-up runs": {
			nil,
			[]func(*story){running, func(s *story) {
				s.run.Spec.Shutdown = v1alpha1.ShutdownCancel
				s.decide(time.Second, "")
			}, answered},
			"Cancelled/Cancelled 3/5 a=Cancelled b=Cancelled release=Succeeded notify=Succeeded log=Succeeded",
		},
		"after a failure, the clean-up runs": {
			nil,
			[]func(*story){cleaning, answered},
			"Failed/StepFailed 4/5 a=Failed b=Cancelled release=Succeeded notify=Succeeded log=Succeeded",
		},
		"after the deadline, the clean-up runs": {
			func(r *v1alpha1.WorkflowRun) { r.Spec.ActiveDeadlineSeconds = new(int32(10)) },
			[]func(*story){running, func(s *story) { s.decide(10*time.Second, "") }, answered},
			"TimedOut/DeadlineExceeded 3/5 a=Cancelled b=Cancelled release=Succeeded notify=Succeeded log=Succeeded",
		},
		"a terminate ends at once": {nil, []func(*story){running, func(s *story) {
			s.run.Spec.Shutdown = v1alpha1.ShutdownTerminate
			s.decide(time.Second, "")
		}}, "Cancelled/Terminated 0/5 a=Cancelled b=Cancelled release=Cancelled notify=Cancelled log=Cancelled"},
		"a terminate ends the clean-up": {nil, []func(*story){cleaning, func(s *story) {
			s.run.Spec.Shutdown = v1alpha1.ShutdownTerminate
			s.decide(time.Second, "")
		}}, "Cancelled/Terminated 1/5 a=Failed b=Cancelled release=Cancelled notify=Cancelled log=Cancelled"},
		"a run that was not admitted has nothing to clean up": {nil, []func(*story){func(s *story) {
			s.run.Spec.Suspend = true
			s.decide(0, "")
			s.run.Spec.Shutdown = v1alpha1.ShutdownCancel
			s.decide(time.Second, "")
		}}, "Cancelled/Cancelled 0/5 a=Cancelled b=Cancelled release=Cancelled notify=Cancelled log=Cancelled"},
		"an invalid run has nothing to clean up": {
			func(r *v1alpha1.WorkflowRun) { r.Spec.Finally[1].DependsOn = []string{"a"} },
			[]func(*story){running},
			"Failed/InvalidSpec 0/5 a=Cancelled b=Cancelled release=Cancelled notify=Cancelled log=Cancelled",
		},
		"the clean-up has its own time": {
			nil,
			[]func(*story){cleaning, func(s *story) { s.decide(30*time.Second, "") }},
			"Failed/StepFailed 1/5 a=Failed b=Cancelled release=Cancelled notify=Cancelled log=Cancelled",
		},
		"a success whose clean-up took too long is none": {nil, []func(*story){running, func(s *story) {
			s.decide(0, "", succeeded("a", 1, `{}`))
			s.decide(0, "", succeeded("b", 1, `{}`))
			s.decide(30*time.Second, "")
		}}, "Failed/FinallyTimeout 2/5 a=Succeeded b=Succeeded release=Cancelled notify=Cancelled log=Cancelled"},
		"a clean-up step that may fail changes nothing": {
			func(r *v1alpha1.WorkflowRun) { r.Spec.Finally[0].OnFailure = v1alpha1.FailureContinue },
			[]func(*story){running, func(s *story) {
				s.decide(0, "", succeeded("a", 1, `{}`))
				s.decide(0, "", succeeded("b", 1, `{}`))
				s.decide(0, "", failed("release", 1, "E", ""), succeeded("log", 1, `{}`))
				s.decide(0, "", succeeded("notify", 1, `{}`))
			}},
			"Succeeded/Succeeded 5/5 a=Succeeded b=Succeeded release=Failed notify=Succeeded log=Succeeded",
		},
		"Redis is down all the time: a cancel begins the clean-up, and its time ends it": {nil, []func(*story){running, func(s *story) {
			s.run.Spec.Shutdown, s.lock = v1alpha1.ShutdownCancel, unavailable()
			s.decide(time.Second, "")
			s.decide(time.Second, "")
			s.decide(29*time.Second, "")
		}}, "Cancelled/Cancelled 0/5 a=Cancelled b=Cancelled release=Cancelled notify=Cancelled log=Cancelled"},
		"Redis comes back during the clean-up": {nil, []func(*story){running, func(s *story) {
			s.run.Spec.Shutdown, s.lock = v1alpha1.ShutdownCancel, busy()
			s.decide(time.Second, "")
			s.lock = held(7)
			s.decide(time.Second, "")
		}, answered}, "Cancelled/Cancelled 3/5 a=Cancelled b=Cancelled release=Succeeded notify=Succeeded log=Succeeded"},
		"the deadline of the run does not end the clean-up": {
			func(r *v1alpha1.WorkflowRun) { r.Spec.ActiveDeadlineSeconds = new(int32(10)) },
			[]func(*story){cleaning, func(s *story) { s.decide(20*time.Second, "") }, answered},
			"Failed/StepFailed 4/5 a=Failed b=Cancelled release=Succeeded notify=Succeeded log=Succeeded",
		},
		"all clean-up is skipped": {
			func(r *v1alpha1.WorkflowRun) {
				for i := range r.Spec.Finally {
					r.Spec.Finally[i].When = `run.phase == "Cancelled"`
				}
			},
			[]func(*story){cleaning},
			"Failed/StepFailed 4/5 a=Failed b=Cancelled release=Skipped notify=Skipped log=Skipped",
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := cleaned()
			run.Spec.Steps[0].Retry.MaxFailures = 1
			if c.adjust != nil {
				c.adjust(run)
			}
			s := newStory(t, run)
			for _, play := range c.plays {
				play(s)
			}
			if got := endText(s.run); got != c.want {
				t.Errorf("got  %s\nwant %s\n%s", got, c.want, s.out.String())
			}
		})
	}
}

func endText(run *v1alpha1.WorkflowRun) string {
	text := string(run.Status.Phase) + "/" + status.ReasonOf(run.Status, v1alpha1.ConditionSucceeded) + " " + run.Status.Progress
	for _, s := range run.Status.Steps {
		text += " " + s.Name + "=" + string(s.Phase)
	}
	return text
}

func TestOutputsOfARun(t *testing.T) {
	for name, c := range map[string]struct {
		outputs string
		want    string // of the condition Succeeded
		has     string
	}{
		"keep their types":                   {`{"n": "${steps.a.output.n}", "s": "is ${steps.a.output.n}"}`, "1 of 1 steps succeeded", `{"n":7,"s":"is 7"}`},
		"a missing value fails the run":      {`{"n": "${steps.a.output.m}"}`, "outputs: ", ""},
		"a step that does not exist":         {`{"n": "${steps.z.output}"}`, `spec.outputs: there is no step "z" in spec.steps`, ""},
		"a finally step is not over by then": {`{"n": "${steps.f.output}"}`, `spec.outputs: there is no step "f" in spec.steps`, ""},
		"not an object":                      {`[1]`, `spec.outputs: "[1]" is not a JSON object`, ""},
		"no expression":                      {`{"n": "${steps.}"}`, "spec.outputs: ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a"))
			run.Spec.Finally = []v1alpha1.Step{newStep("f", when("false"))}
			run.Spec.Outputs = raw(c.outputs)
			s := newStory(t, run)
			s.decide(0, "")
			s.decide(time.Second, "", succeeded("a", 1, `{"n":7}`))
			if got := status.Condition(s.run.Status, v1alpha1.ConditionSucceeded).Message; !strings.HasPrefix(got, c.want) {
				t.Errorf("message %q, want %q", got, c.want)
			}
			if s.run.Status.CompletedAt == nil {
				t.Error("the run goes on")
			}
			has := ""
			if s.run.Status.Outputs != nil {
				has = string(s.run.Status.Outputs.Raw)
			}
			if has != c.has {
				t.Errorf("outputs %q, want %q", has, c.has)
			}
		})
	}
}

func TestDecisionsAreAboutOneRun(t *testing.T) {
	run := newRun(newStep("a", approval(func(*v1alpha1.Approval) {})))
	at := func(d time.Duration) metav1.Time { return metav1.Time{Time: epoch.Add(d)} }
	for name, c := range map[string]struct {
		adjust func(*v1alpha1.StepApproval)
		want   bool
	}{
		"by name, made later":              {func(a *v1alpha1.StepApproval) { a.CreationTimestamp = at(time.Second) }, true},
		"by name, made in the same second": {func(a *v1alpha1.StepApproval) { a.CreationTimestamp = at(0) }, false},
		"by name, made before":             {func(a *v1alpha1.StepApproval) { a.CreationTimestamp = at(-time.Second) }, false},
		"by UID, made in the same second":  {func(a *v1alpha1.StepApproval) { a.Spec.RunUID, a.CreationTimestamp = "u-1", at(0) }, true},
		"by the UID of an earlier run":     {func(a *v1alpha1.StepApproval) { a.Spec.RunUID, a.CreationTimestamp = "u-0", at(time.Second) }, false},
		"of a run of another name":         {func(a *v1alpha1.StepApproval) { a.Spec.Run, a.CreationTimestamp = "other", at(time.Second) }, false},
		"of a run in another namespace":    {func(a *v1alpha1.StepApproval) { a.Namespace, a.CreationTimestamp = "team-b", at(time.Second) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := v1alpha1.StepApproval{
				ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "team-a"},
				Spec:       v1alpha1.StepApprovalSpec{Run: "report", Step: "a", Decision: v1alpha1.Approve, Approver: "ann"},
			}
			c.adjust(&a)
			if got := facts.Approvals(run, []v1alpha1.StepApproval{a}); (len(got) == 1) != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// mutation: each case of validator.kind, delay and dependencies that is left out makes this fail.
func TestBadStepsAreNamed(t *testing.T) {
	both := func(s *v1alpha1.Step) { s.Delay = &v1alpha1.Delay{Seconds: new(int32(1))} }
	neither := func(s *v1alpha1.Step) { s.Job = nil }
	for name, c := range map[string]struct {
		steps, finally []v1alpha1.Step
		want           string
	}{
		"a step of two kinds":                   {steps: []v1alpha1.Step{newStep("a", both)}, want: "spec.steps[0]: a step needs exactly one of job, approval, delay and run"},
		"a step of no kind":                     {steps: []v1alpha1.Step{newStep("a", neither)}, want: "spec.steps[0]: a step needs exactly one of job, approval, delay and run"},
		"a finally step of no kind":             {finally: []v1alpha1.Step{newStep("f", neither)}, want: "spec.finally[0]: a finally step needs exactly one of job and delay"},
		"an approval in finally":                {finally: []v1alpha1.Step{newStep("f", approval(func(*v1alpha1.Approval) {}))}, want: "spec.finally[0]: a finally step needs exactly one of job and delay"},
		"a delay until before the creation":     {steps: []v1alpha1.Step{newStep("d", delayUntil(epoch.Add(-time.Second)))}, want: "spec.steps[0].delay.until: 2026-11-20T09:59:59Z is before the creation of the run at 2026-11-20T10:00:00Z"},
		"a delay of nothing":                    {steps: []v1alpha1.Step{newStep("d", neither, func(s *v1alpha1.Step) { s.Delay = &v1alpha1.Delay{} })}, want: "spec.steps[0].delay: a delay needs exactly one of seconds and until"},
		"a delay of no time":                    {steps: []v1alpha1.Step{newStep("d", delay(0))}, want: "spec.steps[0].delay.seconds: 0 is not positive"},
		"a finally step that depends on a step": {finally: []v1alpha1.Step{newStep("f", after("z"))}, want: `spec.finally[0].dependsOn[0]: "z" is not a finally step`},
		"a step that depends on a finally step": {steps: []v1alpha1.Step{newStep("a", after("f"))}, finally: []v1alpha1.Step{newStep("f")}, want: `spec.steps[1].dependsOn[0]: "f" is a finally step`},
		"a name in both lists":                  {finally: []v1alpha1.Step{newStep("z")}, want: `spec.finally[0].name: "z" is already the name of spec.steps[0]`},
		"a cycle of finally steps":              {finally: []v1alpha1.Step{newStep("f", after("g")), newStep("g", after("f"))}, want: "spec.finally: cycle"},
		"a step that reads a finally step":      {steps: []v1alpha1.Step{newStep("a", when("steps.f.output == 1"))}, finally: []v1alpha1.Step{newStep("f")}, want: `spec.steps[1].when: step "f" is read but not depended on`},
		"a bad topic in finally":                {finally: []v1alpha1.Step{newStep("f", func(s *v1alpha1.Step) { s.Job.Topic = "a..b" })}, want: `spec.finally[0].job.topic: "a..b"`},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(append([]v1alpha1.Step{newStep("z")}, c.steps...)...)
			if len(c.steps) == 1 && !strings.Contains(c.want, "spec.steps[1]") {
				run.Spec.Steps = c.steps
			}
			run.Spec.Finally = c.finally
			out := decideAt(run, epoch, held(1))
			got := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
			if got.Reason != v1alpha1.ReasonInvalidSpec || !strings.Contains(got.Message, c.want) || len(out.Dispatch) > 0 {
				t.Errorf("%s: %s, dispatched %d; want %s", got.Reason, got.Message, len(out.Dispatch), c.want)
			}
		})
	}
}

// A spec is validated once, so an operator may meet a kind that it does not have.
//
// mutation: awaitStep that takes it for a delay makes this fail: the step succeeds at once.
func TestAStepOfNoKindFails(t *testing.T) {
	run := newRun(newStep("a"), newStep("b", delay(30), after("a")))
	advance(t, run, epoch)
	run.Spec.Steps[1].Delay = nil
	run.Status.Steps[0].Phase = v1alpha1.StepSucceeded
	out := decideAt(run, epoch.Add(time.Second), held(1))
	s := out.Status.Steps[1]
	if s.Phase != v1alpha1.StepFailed || s.Error == nil || s.Error.Code != facts.CodeInvalidSpec || out.Status.Phase != v1alpha1.RunFailed {
		t.Errorf("the step is %s (%v), the run %s", s.Phase, s.Error, out.Status.Phase)
	}
}
