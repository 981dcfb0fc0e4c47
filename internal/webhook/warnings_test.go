// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	hooks "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// mutations: decide without warnings, response that leaves them out, warningsOf that does not look
// at owners, and one without a bound, each make a case fail.
func TestWhoCreatesARunIsWarnedOfFieldsThatDoNothing(t *testing.T) {
	ask := v1alpha1.Step{Name: "ask", Approval: &v1alpha1.Approval{}, TimeoutSeconds: 60}
	const says = "].timeoutSeconds: it is for jobs; an approval has approval.timeoutSeconds"
	for name, c := range map[string]struct {
		change func(*v1alpha1.WorkflowRun)
		want   []string
	}{
		"none": {func(run *v1alpha1.WorkflowRun) {
			run.Spec.Steps = []v1alpha1.Step{{Name: "a", Job: &v1alpha1.Job{Topic: "t"}, TimeoutSeconds: 60}}
		}, nil},
		"one": {func(run *v1alpha1.WorkflowRun) { run.Spec.Steps = []v1alpha1.Step{ask} }, []string{"spec.steps[0" + says}},
		"of a run that a controller made": {func(run *v1alpha1.WorkflowRun) {
			run.Spec.Steps = []v1alpha1.Step{ask}
			run.OwnerReferences = []metav1.OwnerReference{{Kind: "Schedule", Controller: new(true)}}
		}, nil},
		"of a Workflow, whose author was told": {func(run *v1alpha1.WorkflowRun) {
			run.Spec.Steps, run.Spec.WorkflowRef = nil, &v1alpha1.WorkflowReference{Name: "nightly"}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := objects(t, namespace("team", nil))
			h := newHandler(cluster, cluster, &stubQuotas{})
			got := h.Handle(t.Context(), creation(t, "batch", func(run *v1alpha1.WorkflowRun, _ *hooks.Request) { c.change(run) }))
			if diff := cmp.Diff(c.want, got.Warnings); diff != "" || !got.Allowed {
				t.Errorf("allowed %t, warnings (-want +got):\n%s", got.Allowed, diff)
			}
		})
	}
	run := &v1alpha1.WorkflowRun{}
	for range maxWarnings + 2 {
		run.Spec.Steps = append(run.Spec.Steps, ask)
	}
	if all := warningsOf(run); len(all) != maxWarnings+1 || !strings.HasPrefix(all[maxWarnings], "and 2 more") {
		t.Errorf("%q", all)
	}
}
