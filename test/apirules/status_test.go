// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	held  = "status: {tenant: acme, phase: Running, fence: 7, lock: {leaseID: mine, holder: a}, startedAt: '2026-11-20T10:00:00Z'}"
	ended = "status: {tenant: acme, phase: Succeeded, fence: 7, lock: {leaseID: mine}, completedAt: '2026-11-20T10:00:00Z'}"
	bare  = "status: {phase: Pending}"

	staleFence = "stale writer: status.fence must not decrease"
	staleLease = "stale writer: an equal status.fence needs the same status.lock.leaseID"
	hasEnded   = "the run has ended: status.phase and status.completedAt cannot change"
	pinned     = "status.tenant is pinned"
	child      = "status: {tenant: acme, fence: 7, lock: {leaseID: mine}, parent: {name: boss, uid: u-1, root: top}}"
	pinnedToo  = "status.parent is pinned"
	follows    = "status: {tenant: acme, fence: 7, lock: {leaseID: mine}, workflow: {name: w, revision: abc}}"
	pinnedFlow = "status.workflow is pinned"
)

// G3 and G7 without any operator.
// Mutation: any one rule of status made always true lets its cases through; so does a fence rule
// that accepts the fence's removal.
func TestStatusRules(t *testing.T) {
	for name, c := range map[string]struct {
		before, patch string
		refused       []string
	}{
		"the first write without a fence":          {"", "status: {phase: Pending}", nil},
		"the first write with a fence":             {"", held, nil},
		"a fence on a status without one":          {bare, "status: {fence: 1, lock: {leaseID: x}}", nil},
		"a higher fence of another lease":          {held, "status: {fence: 8, lock: {leaseID: other}}", nil},
		"a higher fence without a lock":            {held, "status: {fence: 8, lock: null}", nil},
		"an equal fence of the same lease":         {held, "status: {fence: 7, lock: {leaseID: mine}, progress: 1/1}", nil},
		"a write that leaves the fence alone":      {held, "status: {progress: 1/1}", nil},
		"a lower fence":                            {held, "status: {fence: 6, lock: {leaseID: other}}", []string{staleFence}},
		"a lower fence of the same lease":          {held, "status: {fence: 6}", []string{staleFence}},
		"the fence removed":                        {held, "status: {fence: null}", []string{staleFence}},
		"the fence and the lock removed":           {held, "status: {fence: null, lock: null}", []string{staleFence}},
		"an equal fence of another lease":          {held, "status: {lock: {leaseID: other}}", []string{staleLease}},
		"an equal fence without the lock":          {held, "status: {lock: null}", []string{staleLease}},
		"an equal fence without the lease id":      {held, "status: {lock: {leaseID: null}}", []string{"status.lock.leaseID: Required value"}},
		"a lock where the fence had none":          {"status: {fence: 7}", "status: {lock: {leaseID: x}}", []string{staleLease}},
		"the status removed":                       {held, "status: null", []string{staleFence}},
		"a status without a fence removed":         {bare, "status: null", nil}, // it carries nothing that counts
		"the tenant changed":                       {held, "status: {tenant: other}", []string{pinned}},
		"the tenant removed":                       {held, "status: {tenant: null}", []string{pinned}},
		"the tenant changed with a higher fence":   {held, "status: {fence: 8, lock: {leaseID: o}, tenant: other}", []string{pinned}},
		"the parent changed":                       {child, "status: {parent: {name: other}}", []string{pinnedToo}},
		"the root changed":                         {child, "status: {parent: {root: null}}", []string{pinnedToo}},
		"the parent removed":                       {child, "status: {fence: 8, lock: {leaseID: o}, parent: null}", []string{pinnedToo}},
		"the parent kept":                          {child, "status: {fence: 8, lock: {leaseID: o}}", nil},
		"the workflow pinned":                      {held, "status: {workflow: {name: w, revision: abc}}", nil},
		"the workflow changed":                     {follows, "status: {fence: 8, lock: {leaseID: o}, workflow: {revision: abd}}", []string{pinnedFlow}},
		"the workflow removed":                     {follows, "status: {workflow: null}", []string{pinnedFlow}},
		"the tenant pinned late":                   {bare, "status: {tenant: acme}", nil},
		"the run ends":                             {held, "status: {phase: Failed, completedAt: '2026-11-20T10:00:01Z'}", nil},
		"after the end, the phase changes":         {ended, "status: {fence: 8, lock: {leaseID: o}, phase: Failed}", []string{hasEnded}},
		"after the end, the phase is removed":      {ended, "status: {phase: null}", []string{hasEnded}},
		"after the end, its time changes":          {ended, "status: {completedAt: '2026-11-20T10:00:01Z'}", []string{hasEnded}},
		"after the end, its time is removed":       {ended, "status: {completedAt: null}", []string{hasEnded}},
		"after the end, both are removed":          {ended, "status: {completedAt: null, phase: null}", []string{hasEnded}},
		"after the end, the run starts again":      {ended, "status: {completedAt: null, phase: Running}", []string{hasEnded}},
		"after the end, a lower fence":             {ended, "status: {fence: 6}", []string{staleFence}},
		"after the end, the rest may be completed": {ended, "status: {fence: 8, lock: {leaseID: o}, progress: 1/1}", nil},
		"a fence of nothing":                       {"", "status: {fence: 0}", []string{"status.fence", "greater than or equal to 1"}},
		"an unknown phase":                         {"", "status: {phase: Lost}", []string{"status.phase", "Unsupported value"}},
		"a step without a phase":                   {"", "status: {steps: [{name: a}]}", []string{"status.steps[0].phase: Required value"}},
		"an unknown phase of a step":               {"", "status: {steps: [{name: a, phase: Lost}]}", []string{"status.steps[0].phase"}},
		"an unknown field":                         {"", "status: {fenc: 1}", []string{`unknown field "status.fenc"`}},
	} {
		t.Run(name, func(t *testing.T) {
			o := runWithStatus(t, c.before)
			wantRefused(t, patchStatus(t, o, c.patch), c.refused...)
		})
	}
}

func runWithStatus(t *testing.T, status string) *unstructured.Unstructured {
	t.Helper()
	o := mustCreate(t, aRun())
	if status == "" {
		return o
	}
	if err := patchStatus(t, o, status); err != nil {
		t.Fatalf("set up the status: %v", err)
	}
	return o
}

// A writer may also replace the object or patch by path; a rule that stands on a child would not
// see these removals.
func TestStatusRulesHoldForEveryKindOfWrite(t *testing.T) {
	fields := func(o *unstructured.Unstructured, path ...string) { unstructured.RemoveNestedField(o.Object, path...) }
	jsonPatch := func(p string) client.Patch { return client.RawPatch(types.JSONPatchType, []byte(p)) }
	for name, c := range map[string]struct {
		write func(t *testing.T, o *unstructured.Unstructured) error
		words string
	}{
		"an update without the status": {func(t *testing.T, o *unstructured.Unstructured) error {
			fields(o, "status")
			return server.client.Status().Update(t.Context(), o)
		}, staleFence},
		"an update without the fence": {func(t *testing.T, o *unstructured.Unstructured) error {
			fields(o, "status", "fence")
			return server.client.Status().Update(t.Context(), o)
		}, staleFence},
		"a patch by path that empties the status": {func(t *testing.T, o *unstructured.Unstructured) error {
			return server.client.Status().Patch(t.Context(), o, jsonPatch(`[{"op":"replace","path":"/status","value":{}}]`))
		}, staleFence},
		"a patch by path that removes the status": {func(t *testing.T, o *unstructured.Unstructured) error {
			return server.client.Status().Patch(t.Context(), o, jsonPatch(`[{"op":"remove","path":"/status"}]`))
		}, staleFence},
		"a server-side apply of a lower fence": {func(t *testing.T, o *unstructured.Unstructured) error {
			a := parse(t, "apiVersion: syncopate.dev/v1alpha1\nkind: WorkflowRun\nstatus: {fence: 6, lock: {leaseID: other}}")
			a.SetName(o.GetName())
			a.SetNamespace(o.GetNamespace())
			return server.client.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(a), client.FieldOwner("other"), client.ForceOwnership)
		}, staleFence},
	} {
		t.Run(name, func(t *testing.T) {
			wantRefused(t, c.write(t, runWithStatus(t, held)), c.words)
		})
	}
}

// Mutation: a has(self.status) guard that also looks away when nobody wrote the status lets a
// user change spec.steps.
func TestStatusChangesOnlyThroughItsEndpoint(t *testing.T) {
	o := runWithStatus(t, held)
	if err := patch(t, o, "status: {fence: 1, lock: null}\nmetadata: {labels: {a: b}}"); err != nil {
		t.Fatal(err)
	}
	if fence, _, _ := unstructured.NestedInt64(o.Object, "status", "fence"); fence != 7 {
		t.Errorf("the fence went from 7 to %d through the main endpoint", fence)
	}
	if err := patchStatus(t, o, "spec: {workloadClass: other}\nstatus: {fence: 8, lock: {leaseID: o}}"); err != nil {
		t.Fatal(err)
	}
	if class, _, _ := unstructured.NestedString(o.Object, "spec", "workloadClass"); class != "default" {
		t.Errorf("the class became %q through the status endpoint", class)
	}
	// The rule on spec.steps looks away when the fence differs; neither endpoint lets both change.
	const smuggled = "spec: {inputs: {}, outputs: {}, steps: [{name: b, job: {topic: t}}], finally: [{name: f, job: {topic: t}}]}\n" +
		"status: {fence: 9, progress: 9/9, lock: {leaseID: p}}"
	wantRefused(t, patch(t, o, smuggled), "spec.steps is immutable", "spec.inputs is immutable", "spec.finally is immutable", "spec.outputs is immutable")
	if err := patchStatus(t, o, smuggled); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"inputs", "outputs", "finally"} {
		if value, found, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", field); found {
			t.Errorf("%s became %v through the status endpoint", field, value)
		}
	}
	made := mustCreate(t, aRun()+held+"\n")
	if diff := cmp.Diff(map[string]any{"observedGeneration": int64(-1)}, made.Object["status"]); diff != "" {
		t.Errorf("a run was created with a status (-want +got):\n%s", diff)
	}
}

func TestMetadataUpdatesKeepTheStatus(t *testing.T) {
	for name, status := range map[string]string{"while it runs": held, "after its end": ended} {
		t.Run(name, func(t *testing.T) {
			o := runWithStatus(t, status)
			for _, p := range []string{"metadata: {labels: {a: b}}", "metadata: {finalizers: [example.com/hold]}", "metadata: {finalizers: null}", "spec: {ttlSecondsAfterFinished: 1}"} {
				if err := patch(t, o, p); err != nil {
					t.Errorf("%s: %v", p, err)
				}
			}
			writeBack(t, o)
			if fence, _, _ := unstructured.NestedInt64(o.Object, "status", "fence"); fence != 7 {
				t.Errorf("fence is %d after updates of metadata", fence)
			}
		})
	}
}
