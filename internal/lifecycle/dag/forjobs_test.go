// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// bounded has all fields that are for jobs.
func bounded(name string, s v1alpha1.Step) v1alpha1.Step {
	s.Name, s.TimeoutSeconds, s.StartTimeoutSeconds, s.Retry.MaxFailures = name, 60, 60, 5
	return s
}

func childSpec(text string) *v1alpha1.ChildRun {
	return &v1alpha1.ChildRun{Spec: runtime.RawExtension{Raw: []byte(text)}}
}

// mutations: ForJobs without finally, without child runs, or without one of the kinds or fields,
// and one that tells of jobs, each make this fail.
func TestFieldsForJobsAreToldOfOtherSteps(t *testing.T) {
	run := &v1alpha1.WorkflowRun{}
	run.Spec.Steps = []v1alpha1.Step{
		bounded("job", v1alpha1.Step{Job: &v1alpha1.Job{Topic: "t"}}),
		bounded("ask", v1alpha1.Step{Approval: &v1alpha1.Approval{}}),
		{Name: "plain", Approval: &v1alpha1.Approval{TimeoutSeconds: new(int32(60))}},
		{Name: "wait", Delay: &v1alpha1.Delay{}, Retry: v1alpha1.Retry{Backoff: v1alpha1.Backoff{InitialMillis: new(int64(0))}}},
		{Name: "below", StartTimeoutSeconds: 60, TimeoutSeconds: 60, Run: childSpec(`{"steps": [{"name": "a", "approval": {}, "timeoutSeconds": 60},
			{"name": "b", "run": {"spec": {"steps": [{"name": "c", "delay": {"seconds": 1}, "startTimeoutSeconds": 60}]}}}]}`)},
		{Name: "elsewhere", Run: childSpec(`{"workflowRef": {"name": "w"}}`)},
		{Name: "odd", Run: childSpec(`[`), TimeoutSeconds: 60},
		{Name: "none", TimeoutSeconds: 60},
	}
	run.Spec.Finally = []v1alpha1.Step{{Name: "last", Delay: &v1alpha1.Delay{}, TimeoutSeconds: 60}}
	want := []string{
		"spec.steps[1].timeoutSeconds: it is for jobs; an approval has approval.timeoutSeconds",
		"spec.steps[1].startTimeoutSeconds: it is for jobs; an approval does nothing with it",
		"spec.steps[1].retry: it is for jobs; an approval does nothing with it",
		"spec.steps[3].retry: it is for jobs; a delay does nothing with it",
		"spec.steps[4].timeoutSeconds: it is for jobs; a child run has an activeDeadlineSeconds of its own",
		"spec.steps[4].startTimeoutSeconds: it is for jobs; a child run does nothing with it",
		"spec.steps[4].run.spec.steps[0].timeoutSeconds: it is for jobs; an approval has approval.timeoutSeconds",
		"spec.steps[4].run.spec.steps[1].run.spec.steps[0].startTimeoutSeconds: it is for jobs; a delay does nothing with it",
		"spec.steps[6].timeoutSeconds: it is for jobs; a child run has an activeDeadlineSeconds of its own",
		"spec.finally[0].timeoutSeconds: it is for jobs; a delay does nothing with it",
	}
	p := Of(run)
	if diff := cmp.Diff(want, ForJobs(run, &p, Top)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// mutation: ForJobs without sizes, or without maxLevels, makes this fail.
func TestNothingIsToldOfASpecThatIsNotLookedAt(t *testing.T) {
	deep := `{"steps": [{"name": "a", "approval": {}, "timeoutSeconds": 60}]}`
	for range maxLevels {
		deep = fmt.Sprintf(`{"steps": [{"name": "a", "run": {"spec": %s}}]}`, deep)
	}
	for name, step := range map[string]v1alpha1.Step{
		"too large": {Approval: &v1alpha1.Approval{}, TimeoutSeconds: 60, When: strings.Repeat("x", bounds.MaxSpecBytes)},
		"too deep":  {Run: childSpec(deep)},
	} {
		run := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{step}}}
		p := Of(run)
		if found := ForJobs(run, &p, Top); len(found) > 0 {
			t.Errorf("%s: %q", name, found)
		}
	}
}
