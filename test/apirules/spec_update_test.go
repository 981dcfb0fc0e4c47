// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// everything is a run with every field of spec set.
func everything() string {
	return aRun(
		"  workloadClass: batch",
		"  tenant: acme",
		"  idempotencyKey: report-1",
		"  suspend: true",
		"  shutdown: Cancel",
		"  queueTimeoutSeconds: 60",
		"  activeDeadlineSeconds: 60",
		"  ttlSecondsAfterFinished: 60",
		"  maxParallelSteps: 5",
		"  finallyTimeoutSeconds: 60",
		"  finally: [{name: f, job: {topic: t}}]",
		"  outputs: {a: {b: [1, x]}}",
		"  inputs: {a: {b: [1, x]}}")
}

// Mutation: writing an immutability rule as `!has(self.x) || self.x == oldSelf.x`, without the
// comparison of has(), makes the cases "... removed" and "... added" fail.
func TestSpecIsImmutable(t *testing.T) {
	immutable := func(field string) []string {
		return []string{"spec." + field + " is immutable: delete the run first, or give another name"}
	}
	for name, c := range map[string]struct {
		manifest, patch string
		refused         []string
	}{
		"class changed":                {everything(), "spec: {workloadClass: other}", immutable("workloadClass")},
		"class removed":                {everything(), "spec: {workloadClass: null}", immutable("workloadClass")},
		"tenant changed":               {everything(), "spec: {tenant: other}", immutable("tenant")},
		"tenant removed":               {everything(), "spec: {tenant: null}", immutable("tenant")},
		"tenant added":                 {aRun(), "spec: {tenant: acme}", immutable("tenant")},
		"idempotency key changed":      {everything(), "spec: {idempotencyKey: other}", immutable("idempotencyKey")},
		"idempotency key removed":      {everything(), "spec: {idempotencyKey: null}", immutable("idempotencyKey")},
		"idempotency key added":        {aRun(), "spec: {idempotencyKey: k}", immutable("idempotencyKey")},
		"priority of a waiting run":    {everything(), "spec: {priority: 7}", nil},
		"queue timeout changed":        {everything(), "spec: {queueTimeoutSeconds: 61}", immutable("queueTimeoutSeconds")},
		"queue timeout removed":        {everything(), "spec: {queueTimeoutSeconds: null}", immutable("queueTimeoutSeconds")},
		"queue timeout added":          {aRun(), "spec: {queueTimeoutSeconds: 1}", immutable("queueTimeoutSeconds")},
		"deadline changed":             {everything(), "spec: {activeDeadlineSeconds: 61}", immutable("activeDeadlineSeconds")},
		"deadline removed":             {everything(), "spec: {activeDeadlineSeconds: null}", immutable("activeDeadlineSeconds")},
		"deadline added":               {aRun(), "spec: {activeDeadlineSeconds: 1}", immutable("activeDeadlineSeconds")},
		"parallel steps changed":       {everything(), "spec: {maxParallelSteps: 6}", immutable("maxParallelSteps")},
		"parallel steps removed":       {everything(), "spec: {maxParallelSteps: null}", immutable("maxParallelSteps")},
		"inputs changed at depth":      {everything(), "spec: {inputs: {a: {b: [1, y]}}}", immutable("inputs")},
		"inputs removed":               {everything(), "spec: {inputs: null}", immutable("inputs")},
		"inputs added":                 {aRun(), "spec: {inputs: {}}", immutable("inputs")},
		"finally time-out changed":     {everything(), "spec: {finallyTimeoutSeconds: 61}", immutable("finallyTimeoutSeconds")},
		"finally time-out removed":     {everything(), "spec: {finallyTimeoutSeconds: null}", immutable("finallyTimeoutSeconds")},
		"finally time-out kept":        {everything(), "spec: {finallyTimeoutSeconds: 60}", nil},
		"outputs changed at depth":     {everything(), "spec: {outputs: {a: {b: [1, y]}}}", immutable("outputs")},
		"outputs removed":              {everything(), "spec: {outputs: null}", immutable("outputs")},
		"outputs added":                {aRun(), "spec: {outputs: {}}", immutable("outputs")},
		"the same outputs again":       {everything(), "spec: {outputs: {a: {b: [1, x]}}}", nil},
		"finally steps removed":        {everything(), "spec: {finally: null}", immutable("finally")},
		"finally steps emptied":        {everything(), "spec: {finally: []}", immutable("finally")},
		"finally steps added":          {aRun(), "spec: {finally: [{name: f, job: {topic: t}}]}", immutable("finally")},
		"a finally step's topic":       {everything(), "spec: {finally: [{name: f, job: {topic: u}}]}", immutable("finally")},
		"the same finally steps again": {everything(), "spec: {finally: [{name: f, job: {topic: t}}]}", nil},
		"a job made an approval":       {aRun(), "spec: {steps: [{name: a, approval: {}}]}", immutable("steps")},
		"a delay made longer":          {kinds("delay: {seconds: 1}"), "spec: {steps: [{name: a, delay: {seconds: 2}}]}", immutable("steps")},
		"another answer to failure":    {aRun(), "spec: {steps: [{name: a, job: {topic: demo.echo}, onFailure: Continue}]}", immutable("steps")},
		"a step added":                 {aRun(), "spec: {steps: [{name: a, job: {topic: demo.echo}}, {name: b, job: {topic: t}}]}", immutable("steps")},
		"a step's topic changed":       {aRun(), "spec: {steps: [{name: a, job: {topic: t}}]}", immutable("steps")},
		"a step's input changed":       {aRunOf(step("name: a, job: {topic: t, input: {x: 1}}")), "spec: {steps: [{name: a, job: {topic: t, input: {x: 2}}}]}", immutable("steps")},
		"a step's input added":         {aRun(), "spec: {steps: [{name: a, job: {topic: demo.echo, input: {x: 2}}}]}", immutable("steps")},
		"a step's retry changed":       {aRun(), "spec: {steps: [{name: a, job: {topic: demo.echo}, retry: {maxFailures: 4}}]}", immutable("steps")},
		"workflow changed":             {aRunOf("  workflowRef: {name: w}"), "spec: {workflowRef: {name: v}}", []string{"spec.workflowRef is immutable"}},
		"workflow pinned by a user":    {aRunOf("  workflowRef: {name: w}"), "spec: {workflowRef: {revision: abc}}", []string{"spec.workflowRef is immutable"}},
		"workflow replaced by steps":   {aRunOf("  workflowRef: {name: w}"), "spec: {workflowRef: null, steps: [{name: a, job: {topic: t}}]}", []string{"spec.workflowRef is immutable"}},
		"steps removed":                {aRun(), "spec: {steps: null}", []string{"exactly one source of steps is needed"}},
		"steps renamed to duplicates":  {aRun(), "spec: {steps: [{name: b, job: {topic: t}}, {name: b, job: {topic: t}}]}", immutable("steps")},
		"spec removed":                 {aRun(), "spec: null", []string{"spec: Required value"}},
		"the same steps again":         {aRun(), "spec: {steps: [{name: a, job: {topic: demo.echo}}]}", nil},
		"suspend set":                  {aRun(), "spec: {suspend: true}", nil},
		"suspend taken back":           {everything(), "spec: {suspend: false}", nil},
		"suspend removed":              {everything(), "spec: {suspend: null}", nil},
		"time to live set":             {aRun(), "spec: {ttlSecondsAfterFinished: 0}", nil},
		"time to live changed":         {everything(), "spec: {ttlSecondsAfterFinished: 61}", nil},
		"time to live removed":         {everything(), "spec: {ttlSecondsAfterFinished: null}", nil},
		"shutdown set to Cancel":       {aRun(), "spec: {shutdown: Cancel}", nil},
		"shutdown set to Terminate":    {aRun(), "spec: {shutdown: Terminate}", nil},
		"shutdown upgraded":            {everything(), "spec: {shutdown: Terminate}", nil},
		"shutdown removed":             {everything(), "spec: {shutdown: null}", []string{"spec.shutdown goes one way: unset, Cancel, Terminate; it cannot be taken back"}},
		"shutdown Terminate downgrade": {aRun("  shutdown: Terminate"), "spec: {shutdown: Cancel}", []string{"spec.shutdown goes one way"}},
		"shutdown Terminate removed":   {aRun("  shutdown: Terminate"), "spec: {shutdown: null}", []string{"spec.shutdown goes one way"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := mustCreate(t, c.manifest)
			wantRefused(t, patch(t, o, c.patch), c.refused...)
		})
	}
}

func TestMetadataUpdatesTripNoRule(t *testing.T) {
	for name, manifest := range map[string]string{
		"a minimal run":   aRun(),
		"a run with all":  everything(),
		"a run of 200":    aRunOf(nSteps(200)),
		"a lock policy":   aPolicy(),
		"a run of kinds":  aRunOf("  steps: [{name: a, approval: {}}, {name: b, delay: {until: \"2026-11-20T10:00:00Z\"}}]", "  finally: [{name: f, delay: {seconds: 1}}]"),
		"a run with JSON": aRunOf(step("name: a, job: {topic: t, input: {none: null, f: 1.5, l: [[]], o: {}}}")),
	} {
		t.Run(name, func(t *testing.T) {
			o := mustCreate(t, manifest)
			for _, p := range []string{
				"metadata: {labels: {a: b}}",
				"metadata: {annotations: {a: b}}",
				"metadata: {finalizers: [example.com/hold]}",
				"metadata: {finalizers: null}",
				"metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: \"1\"}]}",
			} {
				if err := patch(t, o, p); err != nil {
					t.Errorf("%s: %v", p, err)
				}
			}
			writeBack(t, o)
		})
	}
}

// writeBack writes the object back as it was read, the way `kubectl replace` does.
func writeBack(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	if err := server.client.Update(t.Context(), o); err != nil {
		t.Errorf("write back what was read: %v", err)
	}
}
