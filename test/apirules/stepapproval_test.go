// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// aDecision is a StepApproval of whoever creates it as the tests do; the YAML changes its spec,
// null removes a field.
func aDecision(t testing.TB, change string) string {
	t.Helper()
	spec := map[string]any{"run": "report", "step": "publish", "decision": "Approve", "approver": whoami(t)}
	var changes map[string]any
	if err := yaml.Unmarshal([]byte(change), &changes); err != nil {
		t.Fatalf("the test's change is not YAML: %v\n%s", err, change)
	}
	for name, value := range changes {
		if spec[name] = value; value == nil {
			delete(spec, name)
		}
	}
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": "syncopate.dev/v1alpha1", "kind": "StepApproval",
		"metadata": map[string]any{"generateName": "decision-", "namespace": "default"}, "spec": spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// whoami is the user who runs the tests.
func whoami(t testing.TB) string {
	t.Helper()
	review := &authenticationv1.SelfSubjectReview{}
	if err := server.client.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo.Username
}

// Mutation: the rule on output made always true, or any bound removed, lets its case through.
func TestDecisionsAtCreate(t *testing.T) {
	for name, c := range map[string]struct {
		change  string
		refused []string
	}{
		"an approval":                   {"", nil},
		"a rejection":                   {"decision: Reject", nil},
		"all fields":                    {"{runUID: 3a2b, comment: 'well\ndone', output: {edition: 2, parts: [{a: null}]}}", nil},
		"an empty output":               {"output: {}", nil},
		"a rejection with an output":    {"{decision: Reject, output: {}}", []string{"spec.output", "only an approval has an output"}},
		"an output that is a list":      {"output: [1]", []string{"spec.output", "must be of type object"}},
		"no run":                        {"run: null", []string{"spec.run: Required value"}},
		"a run of no name":              {"run: ''", []string{"spec.run"}},
		"a run whose name is a path":    {"run: ../a", []string{"spec.run", `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`}},
		"a run with dots in its name":   {"run: a-1.b", nil},
		"no step":                       {"step: null", []string{"spec.step: Required value"}},
		"a step that no run can have":   {"step: Publish", []string{"spec.step", "^[a-z0-9-]+$"}},
		"a step of 41 characters":       {"step: " + strings.Repeat("a", 41), []string{"spec.step: Too long"}},
		"no decision":                   {"decision: null", []string{"spec.decision: Required value"}},
		"neither yes nor no":            {"decision: Maybe", []string{"spec.decision", `supported values: "Approve", "Reject"`}},
		"no approver":                   {"approver: null", []string{"spec.approver: Required value"}},
		"an approver of no name":        {"approver: ''", []string{"spec.approver"}},
		"an approver of 513 characters": {"approver: " + strings.Repeat("a", 513), []string{"spec.approver: Too long"}},
		"a comment of 1024 characters":  {"comment: " + strings.Repeat("ä", 1024), nil},
		"a comment of 1025 characters":  {"comment: " + strings.Repeat("a", 1025), []string{"spec.comment: Too long"}},
		"a UID that is none":            {"runUID: " + strings.Repeat("a", 65), []string{"spec.runUID: Too long"}},
		"a field that there is not":     {"reason: x", []string{`unknown field "spec.reason"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := create(t, aDecision(t, c.change))
			wantRefused(t, err, c.refused...)
		})
	}
}

// Mutation: without the rule self == oldSelf all of them are accepted; on the fields alone, "added"
// and "removed" are.
func TestDecisionsAreImmutable(t *testing.T) {
	const words = "a decision is immutable"
	for name, c := range map[string]struct{ change, patch string }{
		"turned into a rejection":  {"", "decision: Reject"},
		"for another run":          {"", "run: other"},
		"for another UID":          {"runUID: a", "runUID: b"},
		"UID added":                {"", "runUID: b"},
		"UID removed":              {"runUID: a", "runUID: null"},
		"for another step":         {"", "step: other"},
		"in another name":          {"", "approver: eve"},
		"comment changed":          {"comment: a", "comment: b"},
		"comment added":            {"", "comment: b"},
		"comment removed":          {"comment: a", "comment: null"},
		"output changed at depth":  {"output: {a: {b: [1, x]}}", "output: {a: {b: [1, y]}}"},
		"output added to at depth": {"output: {a: {b: 1}}", "output: {a: {c: 1}}"},
		"output added":             {"", "output: {}"},
		"output removed":           {"output: {a: 1}", "output: null"},
	} {
		t.Run(name, func(t *testing.T) {
			o := mustCreate(t, aDecision(t, c.change))
			wantRefused(t, patch(t, o, "spec: {"+c.patch+"}"), words)
		})
	}
	o := mustCreate(t, aDecision(t, "{comment: a, output: {a: {b: [1, null]}}}"))
	for _, p := range []string{
		"metadata: {labels: {a: b}}",
		"metadata: {ownerReferences: [{apiVersion: syncopate.dev/v1alpha1, kind: WorkflowRun, name: report, uid: \"1\"}]}",
		"spec: {comment: a}",
	} {
		if err := patch(t, o, p); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
	writeBack(t, o)
}

// Mutation: a printcolumn or the selectablefield dropped makes this fail.
func TestDecisionsAreShownAndSelected(t *testing.T) {
	ns := namespace(t)
	me := whoami(t)
	for name, change := range map[string]string{"one": "", "two": "{run: other, decision: Reject}"} {
		manifest := aDecision(t, change)
		manifest = strings.Replace(strings.Replace(manifest, "generateName: decision-", "name: "+name, 1), "namespace: default", "namespace: "+ns, 1)
		mustCreate(t, manifest)
	}
	rows := kubectl(t, "get", "stepapprovals", "-n", ns)
	for _, row := range rows[1:] {
		row[len(row)-1] = "age"
	}
	want := [][]string{
		{"NAME", "RUN", "STEP", "DECISION", "APPROVER", "AGE"},
		{"one", "report", "publish", "Approve", me, "age"},
		{"two", "other", "publish", "Reject", me, "age"},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("kubectl get (-want +got):\n%s", diff)
	}
	list := &v1alpha1.StepApprovalList{}
	opts := &client.ListOptions{Namespace: ns, Raw: &metav1.ListOptions{FieldSelector: "spec.run=report"}}
	if err := server.client.List(t.Context(), list, opts); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Name != "one" {
		t.Errorf("selected %+v", list.Items)
	}
}
