// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	hooks "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func TestInputsOfARunThatFollowsAWorkflowAreCheckedAtItsCreation(t *testing.T) {
	report := &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "report"}, Spec: v1alpha1.WorkflowSpec{
		Parameters: []v1alpha1.Parameter{{Name: "region", Required: true, Enum: []string{"eu"}}},
	}}
	for name, c := range map[string]struct {
		ref     v1alpha1.WorkflowReference
		inputs  string
		refused string
	}{
		"good":             {v1alpha1.WorkflowReference{Name: "report"}, `{"region":"eu"}`, ""},
		"missing":          {v1alpha1.WorkflowReference{Name: "report"}, `{}`, "InvalidSpec: spec.inputs.region: Workflow report requires this string"},
		"wrong":            {v1alpha1.WorkflowReference{Name: "report"}, `{"region":"us"}`, `InvalidSpec: spec.inputs.region: "us" is not one of eu`},
		"no such Workflow": {v1alpha1.WorkflowReference{Name: "other"}, `{}`, ""},
		"no such revision": {v1alpha1.WorkflowReference{Name: "report", Revision: "abc"}, `{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := objects(t, namespace("team", nil), report)
			h := newHandler(cluster, cluster, &stubQuotas{})
			got := h.Handle(t.Context(), creation(t, "batch", func(run *v1alpha1.WorkflowRun, _ *hooks.Request) {
				run.Spec.WorkflowRef, run.Spec.Inputs = &c.ref, &runtime.RawExtension{Raw: []byte(c.inputs)}
			}))
			if got.Allowed != (c.refused == "") || !got.Allowed && (got.Result.Code != 422 || !strings.HasPrefix(got.Result.Message, c.refused)) {
				t.Errorf("allowed %v: %+v", got.Allowed, got.Result)
			}
		})
	}
}
