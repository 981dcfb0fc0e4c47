// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
)

// yamlBlock is a block of a page, its content the first group.
var yamlBlock = regexp.MustCompile("(?ms)^```ya?ml\n(.*?)^```$")

// frames complete a block that shows a part of an object, by how it begins; the first that fits
// counts. An object without a kind is a WorkflowRun.
var frames = []struct{ begins, frame string }{
	{"  - name: class-rejects\n", webhookFrame},
	{"  - name:", "spec:\n  steps:\n"},
	{"  steps:", "spec:\n"},
	{"  admission:", "kind: LockPolicy\nspec:\n  workloadClasses: [docs]\n"},
	{"spec:\n  permits:", "kind: Semaphore\n"},
	{"spec:\n  backfill:", "kind: Schedule\n"},
}

const webhookFrame = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
webhooks:
- name: docs.syncopate.dev
  clientConfig: {url: "https://example.org"}
  sideEffects: None
  admissionReviewVersions: [v1]
  matchConditions:
`

// notForTheServer are blocks that no API server takes, by how they begin: kustomize reads them.
var notForTheServer = []string{"resources:\n", "patches:"}

// docsBlock is a block of YAML of a page.
type docsBlock struct{ page, text string }

// docsBlocks are those of README.md and of all pages of docs.
func docsBlocks(t *testing.T) (blocks []docsBlock) {
	t.Helper()
	add := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page, err := filepath.Rel(moduleRoot, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
			for part := range strings.SplitSeq(m[1], "\n---\n") {
				blocks = append(blocks, docsBlock{page: page, text: part})
			}
		}
	}
	add(filepath.Join(moduleRoot, "README.md"))
	err := filepath.WalkDir(filepath.Join(moduleRoot, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".md" {
			add(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

// object is what a block says, completed where it shows a part.
func (b docsBlock) object(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	text := b.text
	for _, f := range frames {
		if strings.HasPrefix(text, f.begins) {
			text = f.frame + text
			break
		}
	}
	all := objects(t, []byte(text))
	if len(all) != 1 {
		t.Fatalf("%d objects in\n%s", len(all), text)
	}
	o := all[0]
	if o.GetAPIVersion() == "" {
		o.SetAPIVersion(v1alpha1.GroupVersion.String())
	}
	if o.GetKind() == "" {
		o.SetKind("WorkflowRun")
	}
	if o.GetName() == "" && o.GetGenerateName() == "" {
		o.SetName("docs")
	}
	if strings.HasPrefix(o.GetAPIVersion(), v1alpha1.GroupVersion.Group+"/") && !clusterWide[o.GetKind()] {
		o.SetNamespace("default")
	}
	switch o.GetKind() {
	case "WorkflowRun":
		completeSteps(t, o.Object, "spec")
	case "Schedule":
		completeSteps(t, o.Object, "spec", "runTemplate", "spec")
		complete(t, o.Object, []any{"0 6 * * *"}, "spec", "cron")
	}
	return o
}

var clusterWide = map[string]bool{"LockPolicy": true, "Semaphore": true}

// complete sets a field that a block leaves out.
func complete(t *testing.T, object map[string]any, value any, path ...string) {
	t.Helper()
	if _, is, err := unstructured.NestedFieldNoCopy(object, path...); err != nil {
		t.Fatal(err)
	} else if is {
		return
	}
	if err := unstructured.SetNestedField(object, value, path...); err != nil {
		t.Fatal(err)
	}
}

// completeSteps adds the steps that a block speaks of and does not show, and what is given to them.
func completeSteps(t *testing.T, object map[string]any, spec ...string) {
	t.Helper()
	steps, _, err := unstructured.NestedSlice(object, append(spec, "steps")...)
	if err != nil {
		t.Fatal(err)
	}
	has := map[any]bool{}
	for _, s := range steps {
		step, _ := s.(map[string]any)
		has[step["name"]] = true
	}
	for _, s := range steps {
		step, _ := s.(map[string]any)
		needs, _ := step["dependsOn"].([]any)
		for _, name := range needs {
			if !has[name] {
				has[name] = true
				steps = append(steps, map[string]any{"name": name, "job": map[string]any{"topic": "docs.work"}})
			}
		}
	}
	if len(steps) == 0 && !hasTemplate(object) {
		steps = []any{map[string]any{"name": "work", "job": map[string]any{"topic": "docs.work"}}}
	}
	if len(steps) == 0 {
		return
	}
	if err := unstructured.SetNestedSlice(object, steps, append(spec, "steps")...); err != nil {
		t.Fatal(err)
	}
}

func hasTemplate(object map[string]any) bool {
	_, is, err := unstructured.NestedMap(object, "spec", "workflowRef")
	return is && err == nil
}

// Whoever copies a block of README.md or of a page of docs gets an object that the API server
// takes, and a run that can be run. A block that shows a part is completed by no more than frames
// and completeSteps say.
// mutation: a field with a typing error in any block makes this fail.
func TestEveryBlockOfYAMLInTheDocsIsTaken(t *testing.T) {
	blocks := docsBlocks(t)
	const atLeast = 20 // else blocks are not found any more
	if len(blocks) < atLeast {
		t.Fatalf("%d blocks", len(blocks))
	}
	for i, b := range blocks {
		if skipped(b.text) {
			continue
		}
		t.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(b.page, "/", "."), i), func(t *testing.T) {
			o := b.object(t)
			if err := creator(t, o).Create(t.Context(), o.DeepCopy(), client.DryRunAll, client.FieldValidation("Strict")); err != nil {
				t.Errorf("%s: %v\n%s", b.page, err, b.text)
			}
			if o.GetKind() == "WorkflowRun" {
				expectRunnable(t, o)
			}
		})
	}
}

// creator is a client of who has to create an object: a decision is taken from its approver only.
func creator(t *testing.T, o *unstructured.Unstructured) client.Client {
	t.Helper()
	if approver, is, err := unstructured.NestedString(o.Object, "spec", "approver"); err != nil {
		t.Fatal(err)
	} else if is {
		return as(t, approver, []string{"system:masters"})
	}
	return server.client
}

func skipped(text string) bool {
	for _, begins := range notForTheServer {
		if strings.HasPrefix(text, begins) {
			return true
		}
	}
	return false
}

// expectRunnable looks at expressions and references, as the operator does.
func expectRunnable(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	run := &v1alpha1.WorkflowRun{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, run); err != nil {
		t.Fatal(err)
	}
	if len(run.Spec.Steps) == 0 {
		return
	}
	plan := dag.Of(run)
	problems, _ := dag.Validate(run, &plan, dag.Top, nil)
	for _, problem := range problems {
		t.Error(problem)
	}
}
