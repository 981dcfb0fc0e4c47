// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	hooks "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Each replica keeps all runs in memory, until they are deleted. The API server has a bound for
// annotations, and none for the rest but that of the whole object.
//
// mutations: decide without tooLarge, dag.TooLarge that is always empty, and a metadataBytes that
// leaves out one of what it adds make this fail.
func TestARunThatIsTooLargeIsRefusedAtItsCreation(t *testing.T) {
	text := func(n int) string { return strings.Repeat("x", n) }
	labels := func(n int) map[string]string { // some 100 bytes each
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf("x.example/%040d", i)] = text(50)
		}
		return all
	}
	for name, c := range map[string]struct {
		change  func(*v1alpha1.WorkflowRun)
		refused string
	}{
		"an ordinary one":     {change: func(*v1alpha1.WorkflowRun) {}},
		"many labels":         {change: func(r *v1alpha1.WorkflowRun) { r.Labels = labels(650) }},
		"large annotations":   {change: func(r *v1alpha1.WorkflowRun) { r.Annotations = map[string]string{"a": text(250 << 10)} }}, // the API server takes 256 KiB
		"a spec of its bound": {change: func(r *v1alpha1.WorkflowRun) { r.Spec.Inputs = object(512<<10 - 2) }},
		"a spec beyond it":    {func(r *v1alpha1.WorkflowRun) { r.Spec.Inputs = object(512<<10 - 1) }, "InvalidSpec: spec: 524289 bytes of inputs, expressions and dependencies, more than 524288 in all"},
		"too many labels":     {func(r *v1alpha1.WorkflowRun) { r.Labels = labels(660) }, "InvalidSpec: metadata: 66000 bytes of labels, finalizers and owner references, more than 65536"},
		"a long finalizer":    {func(r *v1alpha1.WorkflowRun) { r.Finalizers = []string{"x.example/" + text(70_000)} }, "InvalidSpec: metadata: 70010 bytes"},
		"a long owner reference": {func(r *v1alpha1.WorkflowRun) {
			r.OwnerReferences = []metav1.OwnerReference{{Kind: text(20_000), Name: text(20_000), UID: "u", APIVersion: text(30_000)}}
		}, "InvalidSpec: metadata: 70001 bytes"},
	} {
		quotas := &stubQuotas{}
		cache := objects(t, namespace("team", nil))
		got := newHandler(cache, cache, quotas).Handle(t.Context(), creation(t, "batch", func(run *v1alpha1.WorkflowRun, r *hooks.Request) {
			c.change(run)
			raw, err := json.Marshal(run)
			if err != nil {
				t.Fatal(err)
			}
			r.Object.Raw = raw
		}))
		switch {
		case c.refused == "" && !got.Allowed:
			t.Errorf("%s: refused: %+v", name, got.Result)
		case c.refused != "" && (got.Allowed || !strings.HasPrefix(got.Result.Message, c.refused)):
			t.Errorf("%s: %t, %+v", name, got.Allowed, got.Result)
		}
	}
}

// object is JSON of n bytes. Two more count for outputs that are not there.
func object(n int) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"x":"` + strings.Repeat("x", n-8) + `"}`)}
}
