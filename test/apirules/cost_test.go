// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// managedFields of a run name its status as a whole, whatever is in it.
// Mutation: without structType=atomic on the status they have an entry for each field of each
// condition, and take 1,900 bytes; with listType=map on status.steps as well, they grow by some 150
// bytes a step.
func TestManagedFieldsNameTheStatusAsAWhole(t *testing.T) {
	for _, n := range []int{1, 5, 200} {
		o := mustCreate(t, bigRun(t, "syncopate.dev", n))
		for i := range 3 {
			writeStatus(t, o, n, i)
		}
		if got := managedFieldsBytes(t, o); got > 600 {
			t.Errorf("managedFields take %d bytes with %d steps, more than 600", got, n)
		}
	}
}

// BenchmarkStatusWrite measures what a status write costs at the API server, and which share of it
// the rules have:
//
//	go test ./test/apirules -run '^$' -bench StatusWrite -benchtime 300x
//
// Each iteration writes once to a run of each variant of the CRD, so that noise hits all alike.
// Reported are medians. docs/adr/0002-status-write-cost.md keeps the figures.
func BenchmarkStatusWrite(b *testing.B) {
	variants := installVariants(b)
	for _, n := range []int{1, 5, 50, 200} {
		b.Run(fmt.Sprintf("steps=%d", n), func(b *testing.B) {
			objects := make([]*unstructured.Unstructured, len(variants))
			created := make([][]time.Duration, len(variants))
			for range 9 {
				for i, v := range variants {
					start := time.Now()
					objects[i] = mustCreate(b, bigRun(b, v.group, n))
					created[i] = append(created[i], time.Since(start))
				}
			}
			took := make([][]time.Duration, len(variants))
			i := 0
			for b.Loop() {
				for v := range objects {
					// Each variant goes first, second, ... equally often.
					at := (v + i) % len(objects)
					took[at] = append(took[at], writeStatus(b, objects[at], n, i))
				}
				i++
			}
			for v := range variants {
				b.ReportMetric(medianMillis(took[v]), variants[v].name+"-ms")
				b.ReportMetric(medianMillis(created[v]), "create-"+variants[v].name+"-ms")
			}
			for v := range variants {
				b.ReportMetric(float64(managedFieldsBytes(b, objects[v])), variants[v].name+"-managedFields-B")
			}
		})
	}
}

func bigRun(t testing.TB, group string, n int) string {
	t.Helper()
	steps := make([]map[string]any, n)
	for i := range steps {
		steps[i] = map[string]any{
			"name": stepName(i),
			"when": "inputs.enabled == true",
			"job": map[string]any{"topic": "demo.echo", "input": map[string]any{
				"url": "https://example.com/${inputs.path}", "headers": map[string]any{"accept": "application/json"}, "numbers": []int{1, 2, 3},
			}},
		}
		if i > 0 {
			steps[i]["dependsOn"] = []string{stepName(i - 1)}
		}
	}
	o := map[string]any{
		"apiVersion": group + "/v1alpha1", "kind": "WorkflowRun",
		"metadata": map[string]any{"generateName": "cost-", "namespace": "default"},
		"spec":     map[string]any{"inputs": map[string]any{"enabled": true, "path": "x"}, "steps": steps},
	}
	data, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func stepName(i int) string { return "step-" + strconv.Itoa(i) }

func medianMillis(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)/2].Microseconds()) / 1000
}

// writeStatus puts a whole status, as the operator does: all steps, eight conditions,
// a higher fence.
func writeStatus(t testing.TB, o *unstructured.Unstructured, n, i int) time.Duration {
	t.Helper()
	now := time.Date(2026, 11, 20, 10, 0, i%60, 0, time.UTC).Format(time.RFC3339)
	steps := make([]any, n)
	for s := range steps {
		steps[s] = map[string]any{
			"name": stepName(s), "phase": "Succeeded", "attempt": int64(1),
			"jobID":        "0b6f0f5c-7d9c-4b36-8f0a-0123456789ab/" + stepName(s) + "/-/1",
			"dispatchedAt": "2026-11-20T10:00:00.000000Z", "startedAt": "2026-11-20T10:00:00.100000Z", "completedAt": "2026-11-20T10:00:00.200000Z",
			"output": map[string]any{"status": int64(200), "run": int64(i)},
		}
	}
	var conditions []any
	for _, c := range []string{"Admitted", "RunLockRenewed", "RunLockAbandoned", "DeadLettered", "Finished", "Succeeded", "Reconciling", "Stalled"} {
		conditions = append(conditions, map[string]any{
			"type": c, "status": "Unknown", "reason": "Running", "message": "at " + now, "lastTransitionTime": now, "observedGeneration": int64(1),
		})
	}
	o.Object["status"] = map[string]any{
		"observedGeneration": int64(1), "tenant": "acme", "phase": "Running", "fence": int64(i + 1), "progress": fmt.Sprintf("%d/%d", n, n),
		"lock":      map[string]any{"leaseID": "lease-" + strconv.Itoa(i), "holder": "manager-0", "acquiredAt": now},
		"startedAt": "2026-11-20T10:00:00Z", "steps": steps, "conditions": conditions,
	}
	start := time.Now()
	if err := server.client.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

func managedFieldsBytes(t testing.TB, o *unstructured.Unstructured) int {
	t.Helper()
	data, err := json.Marshal(o.GetManagedFields())
	if err != nil {
		t.Fatal(err)
	}
	return len(data)
}

// variant is the CRD of WorkflowRun, in a group of its own, with other rules.
type variant struct {
	name, group string
	change      func(root *apiextensionsv1.JSONSchemaProps)
}

func crdVariants() []variant {
	keepingOf := func(keep func(path, rule string) bool) func(*apiextensionsv1.JSONSchemaProps) {
		return func(root *apiextensionsv1.JSONSchemaProps) { dropRules(root, "", keep) }
	}
	return []variant{
		{"shipped", "syncopate.dev", nil},
		{"no-step-rules", "nosteprules.syncopate.dev", keepingOf(func(path, rule string) bool {
			return path != ".spec.steps" && !strings.Contains(rule, "self.spec.")
		})},
		{"no-rules", "norules.syncopate.dev", keepingOf(func(string, string) bool { return false })},
		{"granular-status", "granular.syncopate.dev", func(root *apiextensionsv1.JSONSchemaProps) {
			status := root.Properties["status"]
			status.XMapType = nil
			root.Properties["status"] = status
		}},
		{"steps-by-name", "byname.syncopate.dev", func(root *apiextensionsv1.JSONSchemaProps) {
			spec := root.Properties["spec"]
			steps, list := spec.Properties["steps"], "map"
			steps.XListType, steps.XListMapKeys = &list, []string{"name"}
			spec.Properties["steps"] = steps
			root.Properties["spec"] = spec
		}},
		{"stored-defaults", "defaults.syncopate.dev", storeDefaults},
		{"always-compared", "always.syncopate.dev", func(root *apiextensionsv1.JSONSchemaProps) {
			spec := root.Properties["spec"]
			spec.XValidations = append(spec.XValidations, apiextensionsv1.ValidationRule{Rule: "self.steps == oldSelf.steps"})
			root.Properties["spec"] = spec
		}},
	}
}

// storeDefaults has the API server fill in what a step does not say, as it did before ADR 35.
func storeDefaults(root *apiextensionsv1.JSONSchemaProps) {
	steps := root.Properties["spec"].Properties["steps"].Items.Schema
	set := func(in *apiextensionsv1.JSONSchemaProps, name, value string) {
		p := in.Properties[name]
		p.Default = &apiextensionsv1.JSON{Raw: []byte(value)}
		in.Properties[name] = p
	}
	set(steps, "onFailure", `"FailRun"`)
	set(steps, "timeoutSeconds", "3600")
	set(steps, "startTimeoutSeconds", "3600")
	set(steps, "retry", `{"maxFailures":3,"backoff":{"initialMillis":1000,"factorPercent":200,"maxMillis":60000,"jitterPercent":20}}`)
}

func installVariants(b *testing.B) []variant {
	b.Helper()
	data, err := os.ReadFile(filepath.Join(moduleRoot, "config", "crd", "bases", "syncopate.dev_workflowruns.yaml"))
	if err != nil {
		b.Fatal(err)
	}
	variants := crdVariants()
	for _, v := range variants[1:] {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, crd); err != nil {
			b.Fatal(err)
		}
		crd.Name = crd.Spec.Names.Plural + "." + v.group
		crd.Spec.Group = v.group
		crd.Spec.Names.ShortNames = nil
		v.change(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
		if _, err := envtest.InstallCRDs(server.env.Config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}}); err != nil {
			b.Fatal(err)
		}
	}
	return variants
}

func dropRules(s *apiextensionsv1.JSONSchemaProps, path string, keep func(path, rule string) bool) {
	s.XValidations = slices.DeleteFunc(s.XValidations, func(r apiextensionsv1.ValidationRule) bool { return !keep(path, r.Rule) })
	for name := range s.Properties {
		p := s.Properties[name]
		dropRules(&p, path+"."+name, keep)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		dropRules(s.Items.Schema, path, keep)
	}
}
