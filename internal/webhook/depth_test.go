// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	hooks "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// nested is JSON with n lists and objects in each other.
func nested(n int) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(strings.Repeat(`{"a":`, n-1) + "[]" + strings.Repeat("}", n-1))}
}

// Such a run is not stored, whatever its policy says: a run that is nested thousands deep breaks jq
// for the list that it is in.
//
// mutation: the check after that of the policy, for runs of policies that reject only,
// makes this fail.
func TestARunThatIsNestedTooDeepIsRefusedAtItsCreation(t *testing.T) {
	const refused = "InvalidSpec: spec.inputs: nested more than 100 deep"
	for name, c := range map[string]struct {
		class   string
		deep    int
		refused string
	}{
		"as deep as may be":            {"batch", 100, ""},
		"one more":                     {"batch", 101, refused},
		"far too deep":                 {"batch", 9000, refused},
		"deeper than JSON readers go":  {"batch", 10001, "Malformed: the object cannot be read: "},
		"of a policy that rejects":     {"payments", 101, refused},
		"of a class without any limit": {"unheard-of", 101, refused},
	} {
		t.Run(name, func(t *testing.T) {
			quotas := &stubQuotas{}
			quotas.answer.Admitted = true
			cache := objects(t, namespace("team", nil), lockPolicy("payments", rejecting(2)), lockPolicy("batch", v1alpha1.AdmissionPolicy{}))
			h := newHandler(cache, cache, quotas)
			got := h.Handle(t.Context(), creation(t, c.class, func(run *v1alpha1.WorkflowRun, r *hooks.Request) {
				raw := `{"metadata":{"name":"run","uid":"uid-1"},"spec":{"workloadClass":"` + run.Spec.WorkloadClass + `","inputs":` + string(nested(c.deep).Raw) + `}}`
				r.Object.Raw = []byte(raw)
			}))
			if c.refused == "" {
				if !got.Allowed {
					t.Errorf("refused: %+v", got.Result)
				}
				return
			}
			if got.Allowed || !strings.HasPrefix(got.Result.Message, c.refused) || len(quotas.calls) > 0 {
				t.Fatalf("allowed %v: %+v; the gate was asked %d times", got.Allowed, got.Result, len(quotas.calls))
			}
			if c.refused != refused {
				return
			}
			if got.Result.Code != 422 || got.Result.Reason != metav1.StatusReasonInvalid || got.Result.Details.RetryAfterSeconds != 0 ||
				testutil.ToFloat64(h.metrics.answers.WithLabelValues("invalid")) != 1 {
				t.Errorf("%+v", got.Result)
			}
		})
	}
}

// mutation: any field left out of tooDeep or stepTooDeep makes its row fail.
func TestWhichFieldsAreLookedAt(t *testing.T) {
	type spec = v1alpha1.WorkflowRunSpec
	step := func(s v1alpha1.Step) []v1alpha1.Step { return []v1alpha1.Step{{Name: "a"}, s} }
	for want, of := range map[string]func(deep int) *spec{
		"spec.inputs":             func(n int) *spec { return &spec{Inputs: nested(n)} },
		"spec.outputs":            func(n int) *spec { return &spec{Outputs: nested(n)} },
		"spec.steps[1].job.input": func(n int) *spec { return &spec{Steps: step(v1alpha1.Step{Job: &v1alpha1.Job{Input: nested(n)}})} },
		"spec.finally[1].job.input": func(n int) *spec {
			return &spec{Steps: step(v1alpha1.Step{}), Finally: step(v1alpha1.Step{Job: &v1alpha1.Job{Input: nested(n)}})}
		},
		"spec.steps[1].run.inputs": func(n int) *spec {
			return &spec{Steps: step(v1alpha1.Step{Run: &v1alpha1.ChildRun{Inputs: nested(n)}})}
		},
		"spec.steps[1].run.spec": func(n int) *spec { // the operator takes this much, where runs are nested five levels deep
			return &spec{Steps: step(v1alpha1.Step{Run: &v1alpha1.ChildRun{Spec: *nested(n + 16)}})}
		},
	} {
		if field, _ := tooDeep(of(100)); field != "" {
			t.Errorf("%s at the bound: refused for %s", want, field)
		}
		field, bound := tooDeep(of(101))
		if field != want || bound != 100 && field != "spec.steps[1].run.spec" {
			t.Errorf("%s beyond the bound: refused for %q, bound %d", want, field, bound)
		}
	}
}
