// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The page on security has a policy that an administrator may take as it is.
//
// mutations: UPDATE left out of the policy, the comparison with the old priority left out, and a
// binding without its selector make this fail.
func TestAPolicyOnThePriority(t *testing.T) {
	o := &office{t: t, ns: namespace(t)}
	urgent := namespace(t)
	label(t, o.ns, "{of: priorities}")
	label(t, urgent, "{of: priorities, urgent: 'true'}")
	run := func(ns, priority string) *unstructured.Unstructured {
		return parse(t, strings.Replace(aRun("  priority: "+priority), "namespace: default", "namespace: "+ns, 1))
	}
	was := run(o.ns, "7") // from before the policy
	o.make(was)
	for _, object := range documents(t, fromPage(t, "security.md", "syncopate-priority")) {
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" { // other tests have priorities, too
			if err := unstructured.SetNestedField(object.Object, "priorities", "spec", "matchResources", "namespaceSelector", "matchLabels", "of"); err != nil {
				t.Fatal(err)
			}
		}
		o.make(object)
	}
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = server.client.Create(t.Context(), run(o.ns, "1"), client.DryRunAll); err != nil {
			break
		}
	}
	if !isRefusal(err) {
		t.Fatalf("the policy does not come into force: %v", err)
	}
	for _, free := range []*unstructured.Unstructured{run(o.ns, "0"), run(o.ns, "-5"), run(urgent, "1000000")} {
		if err := server.client.Create(t.Context(), free, client.DryRunAll); err != nil {
			t.Errorf("%v: %v", free.Object["spec"], err)
		}
	}
	if err := patch(t, was, "spec: {suspend: true}"); err != nil {
		t.Errorf("a run from before: %v", err)
	}
	if err := patch(t, was, "spec: {priority: 8}"); !isRefusal(err) {
		t.Errorf("it is more urgent now: %v", err)
	}
	if err := patch(t, was, "spec: {priority: -1}"); err != nil {
		t.Errorf("it is less urgent now: %v", err)
	}
}

func isRefusal(err error) bool {
	return (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && strings.Contains(err.Error(), "runs of this namespace have a priority of 0 at most")
}

func label(t *testing.T, ns, labels string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("v1")
	o.SetKind("Namespace")
	o.SetName(ns)
	if err := patch(t, o, "metadata: {labels: "+labels+"}"); err != nil {
		t.Fatal(err)
	}
}

// fromPage is a file with the block of YAML of a page that has these words.
func fromPage(t *testing.T, page, words string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, after := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ := strings.Cut(after, "\n```")
		if strings.Contains(block, words) {
			file := filepath.Join(t.TempDir(), "block.yaml")
			if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		}
	}
	t.Fatalf("%s has no block with %s", page, words)
	return ""
}
