// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// A worker returns any JSON; status keeps it, whatever its type, through the Go types that
// the operator uses.
// Mutation: +kubebuilder:validation:Type=object on StepStatus.output refuses all but objects.
func TestAnyJSONIsAnOutput(t *testing.T) {
	for name, output := range map[string]string{
		"a string":          `"text"`,
		"an empty string":   `""`,
		"an integer":        `7`,
		"a large integer":   `9007199254740993`,
		"a fraction":        `1.5`,
		"a bool":            `false`,
		"a list":            `[1,"a",null,[{}]]`,
		"an empty list":     `[]`,
		"an object":         `{"a":{"b":[1,null]},"status":200}`,
		"an empty object":   `{}`,
		"nulls in objects":  `{"a":null,"b":{"c":null}}`,
		"4 KiB of text":     `"` + strings.Repeat("x", 4094) + `"`,
		"keys like schemas": `{"apiVersion":1,"kind":[],"metadata":"x","x-kubernetes-y":{}}`,
	} {
		for how, write := range map[string]statusWrite{"updated": update, "patched by path": patchByPath} {
			t.Run(name+" "+how, func(t *testing.T) {
				if got := storedOutput(t, write, output); got == nil {
					t.Error("the output is gone")
				} else if diff := cmp.Diff(decoded(t, output), decoded(t, string(got.Raw))); diff != "" {
					t.Errorf("output as stored (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Two things that a writer of outputs must know. null is no output: encoding/json makes a nil
// pointer of it, so that a reader cannot tell it from absence. And a merge patch means removal
// by null, which the API server applies inside of lists, too: the operator must not write
// outputs by merge patch.
func TestWhatBecomesOfNulls(t *testing.T) {
	for name, c := range map[string]struct {
		write          statusWrite
		output, stored string
	}{
		"null reads as no output":                  {update, `null`, ``},
		"a merge patch drops the nulls in objects": {mergePatch, `{"a":null,"b":1}`, `{"b":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			if output := storedOutput(t, c.write, c.output); output != nil {
				got = string(output.Raw)
			}
			if got != c.stored {
				t.Errorf("%s was stored as %q, want %q", c.output, got, c.stored)
			}
		})
	}
}

// statusWrite writes the status of run; before is the run as it was read.
type statusWrite func(ctx context.Context, run, before *v1alpha1.WorkflowRun) error

func update(ctx context.Context, run, _ *v1alpha1.WorkflowRun) error {
	return server.client.Status().Update(ctx, run)
}

func mergePatch(ctx context.Context, run, before *v1alpha1.WorkflowRun) error {
	return server.client.Status().Patch(ctx, run, client.MergeFrom(before))
}

func patchByPath(ctx context.Context, run, _ *v1alpha1.WorkflowRun) error {
	p, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/resourceVersion", "value": run.ResourceVersion},
		{"op": "add", "path": "/status", "value": run.Status},
	})
	if err != nil {
		return err
	}
	return server.client.Status().Patch(ctx, run, client.RawPatch(types.JSONPatchType, p))
}

func storedOutput(t *testing.T, write statusWrite, output string) *runtime.RawExtension {
	t.Helper()
	made := mustCreate(t, aRun())
	run := &v1alpha1.WorkflowRun{}
	if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(made), run); err != nil {
		t.Fatal(err)
	}
	before := run.DeepCopy()
	run.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{{
		Name: "a", Phase: v1alpha1.StepSucceeded, Output: &runtime.RawExtension{Raw: []byte(output)},
	}}}
	if err := write(t.Context(), run, before); err != nil {
		t.Fatal(err)
	}
	if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(made), run); err != nil {
		t.Fatal(err)
	}
	return run.Status.Steps[0].Output
}

func decoded(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return v
}
