// SPDX-License-Identifier: Apache-2.0

package origin_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/origin"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

func raw(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

func nested(depth int) *runtime.RawExtension {
	return raw(strings.Repeat("[", depth) + strings.Repeat("]", depth))
}

// chain is build, deploy, announce; and notify, which cleans up.
func chain() *v1alpha1.WorkflowRun {
	step := func(name string, deps ...string) v1alpha1.Step {
		return v1alpha1.Step{Name: name, DependsOn: deps, Job: &v1alpha1.Job{Topic: "t"}}
	}
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "second", UID: "u2"}}
	run.Spec.Steps = []v1alpha1.Step{step("build"), step("deploy", "build"), step("announce", "deploy"), step("scan")}
	run.Spec.Finally, run.Spec.Inputs = []v1alpha1.Step{step("notify")}, raw(`{"a":1,"b":2}`)
	run.Spec.StartFrom = &v1alpha1.StartFrom{Run: "first", UID: "u1"}
	return run
}

// failed is a run of the chain of which deploy failed.
func failed() *v1alpha1.WorkflowRun {
	run := chain()
	run.Name, run.UID, run.Spec.StartFrom, run.Spec.Inputs = "first", "u1", nil, raw(`{"b":2, "a":1}`)
	now := metav1.Now()
	micro := metav1.NowMicro()
	conditions := []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionFalse, Message: "step deploy failed"}}
	run.Status = &v1alpha1.WorkflowRunStatus{Conditions: conditions, Phase: v1alpha1.RunFailed, CompletedAt: &now, Tenant: "ns", Steps: []v1alpha1.StepStatus{
		{Name: "build", Phase: v1alpha1.StepSucceeded, Attempt: 2, Failures: 1, JobID: "u1/build/-/2", CompletedAt: &micro, Output: raw(`"x"`)},
		{Name: "deploy", Phase: v1alpha1.StepFailed, Attempt: 1},
		{Name: "announce", Phase: v1alpha1.StepCancelled},
		{Name: "scan", Phase: v1alpha1.StepSkipped},
		{Name: "notify", Phase: v1alpha1.StepSucceeded, Attempt: 1},
	}}
	return run
}

// mutations: a case of problemOf left out lets one of the runs begin.
func TestOf_RefusesARunThatDidOtherWork(t *testing.T) {
	t.Parallel()
	follows := func(revision string) *v1alpha1.WorkflowRevision {
		return &v1alpha1.WorkflowRevision{Name: "release", Revision: revision}
	}
	for name, c := range map[string]struct {
		adjust   func(was, run *v1alpha1.WorkflowRun)
		gone     bool
		revision *v1alpha1.WorkflowRevision
		want     string
	}{
		"it is gone":             {gone: true, want: "does not exist"},
		"another of its name":    {adjust: func(was, _ *v1alpha1.WorkflowRun) { was.UID = "u0" }, want: "of uid u1 does not exist"},
		"under way":              {adjust: func(was, _ *v1alpha1.WorkflowRun) { was.Status.CompletedAt = nil }, want: "has not ended"},
		"of another tenant":      {adjust: func(was, _ *v1alpha1.WorkflowRun) { was.Status.Tenant = "other" }, want: "another tenant"},
		"followed a Workflow":    {adjust: func(was, _ *v1alpha1.WorkflowRun) { was.Status.Workflow = follows("1") }, want: "another revision"},
		"another revision":       {adjust: func(was, _ *v1alpha1.WorkflowRun) { was.Status.Workflow = follows("1") }, revision: follows("2"), want: "another revision"},
		"another step":           {adjust: func(was, _ *v1alpha1.WorkflowRun) { was.Spec.Steps[0].Job.Topic = "u" }, want: "other steps"},
		"another clean-up":       {adjust: func(was, _ *v1alpha1.WorkflowRun) { was.Spec.Finally = nil }, want: "other steps"},
		"other outputs":          {adjust: func(was, _ *v1alpha1.WorkflowRun) { was.Spec.Outputs = raw(`{}`) }, want: "other steps, outputs"},
		"other inputs":           {adjust: func(_, run *v1alpha1.WorkflowRun) { run.Spec.Inputs = raw(`{"a":1,"b":3}`) }, want: "or inputs"},
		"what is no JSON":        {adjust: func(was, run *v1alpha1.WorkflowRun) { was.Spec.Inputs, run.Spec.Inputs = raw("{"), raw("{") }, want: "or inputs"},
		"all of it is done":      {adjust: done, want: "nothing is left to do"},
		"not written in full":    {adjust: cutShort, want: "create the run without startFrom"},
		"the same":               {},
		"the same revision, too": {adjust: func(was, _ *v1alpha1.WorkflowRun) { was.Status.Workflow = follows("1") }, revision: follows("1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			was, run := failed(), chain()
			if c.adjust != nil {
				c.adjust(was, run)
			}
			if c.gone {
				was = nil
			}
			plan := dag.Of(run)
			got := origin.Of(was, run, &plan, c.revision, "ns")
			if (c.want == "") != (got.Problem == "") || !strings.Contains(got.Problem, c.want) {
				t.Errorf("%q", got.Problem)
			}
			if c.want != "" && len(got.Steps) > 0 {
				t.Errorf("takes over %v", got.Steps)
			}
		})
	}
}

func cutShort(was, _ *v1alpha1.WorkflowRun) {
	was.Status.Conditions[0].Message, was.Status.Steps[0].Output = status.LeftOut+"; step deploy failed", nil
}

func done(was, _ *v1alpha1.WorkflowRun) {
	for i := range was.Status.Steps {
		was.Status.Steps[i].Phase = v1alpha1.StepSucceeded
	}
}

// mutations: allDone that is always true, done without OutputRef or the depth, or asTaken that
// keeps the job's id, makes this fail.
func TestOf_TakesOverWhatIsDone(t *testing.T) {
	t.Parallel()
	names := func(steps []v1alpha1.StepStatus) (all []string) {
		for i := range steps {
			all = append(all, steps[i].Name)
		}
		return all
	}
	for name, c := range map[string]struct {
		adjust func(st []v1alpha1.StepStatus)
		want   []string
	}{
		"build failed deploy":                      {nil, []string{"build", "scan"}},
		"announce went on in spite of a failure":   {func(st []v1alpha1.StepStatus) { st[2].Phase = v1alpha1.StepSucceeded }, []string{"build", "scan"}},
		"the output of build is stored":            {func(st []v1alpha1.StepStatus) { st[0].OutputRef = &v1alpha1.OutputReference{Name: "x"} }, []string{"scan"}},
		"the output of build is as deep as may be": {func(st []v1alpha1.StepStatus) { st[0].Output = nested(bounds.MaxInputDepth) }, []string{"build", "scan"}},
		"the output of build is deeper":            {func(st []v1alpha1.StepStatus) { st[0].Output = nested(bounds.MaxInputDepth + 1) }, []string{"scan"}},
		"deploy is done, build is stored": {func(st []v1alpha1.StepStatus) {
			st[0].OutputRef, st[1].Phase = &v1alpha1.OutputReference{}, v1alpha1.StepSucceeded
		}, []string{"scan"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			was, run := failed(), chain()
			if c.adjust != nil {
				c.adjust(was.Status.Steps)
			}
			plan := dag.Of(run)
			got := origin.Of(was, run, &plan, nil, "ns")
			if diff := cmp.Diff(c.want, names(got.Steps)); diff != "" {
				t.Error(diff)
			}
		})
	}
	was, run := failed(), chain()
	was.Status.Steps[0].ChildRun, was.Status.Steps[0].Locks = &v1alpha1.ChildRunStatus{Name: "c"}, []v1alpha1.LockHold{{}}
	plan := dag.Of(run)
	got := origin.Of(was, run, &plan, nil, "ns").Steps[0]
	want := v1alpha1.StepStatus{
		Name: "build", Phase: v1alpha1.StepSucceeded, DoneBy: "first", Failures: 1,
		CompletedAt: was.Status.Steps[0].CompletedAt, Output: raw(`"x"`),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
