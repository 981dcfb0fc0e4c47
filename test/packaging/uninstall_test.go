// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// deletesRevisions are the commands of docs/install.md that delete the revisions of Workflows.
func deletesRevisions(t *testing.T) string {
	t.Helper()
	page := pageOf(t, "install.md")
	_, section, _ := strings.Cut(page, "\n## Uninstall\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for i, block := range strings.Split(section, "\n```\n") {
		if i%2 == 1 && strings.Contains(block, "controllerrevision") {
			return block
		}
	}
	t.Fatal("no commands for ControllerRevisions under Uninstall")
	return ""
}

// A DaemonSet whose pods have the label of a Workflow has it on its ControllerRevisions, too. Those
// of a StatefulSet that was deleted without them have no owner until another one takes them.
//
// mutation: commands that go by the label alone, or by that and the owner, make this fail.
func TestUninstallingLeavesTheRevisionsOfOthers(t *testing.T) {
	ours := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "report-00000000000000000000", Labels: map[string]string{v1alpha1.LabelWorkflow: "report"},
		Annotations: map[string]string{v1alpha1.AnnotationWorkflowUID: "u"},
	}, Data: runtime.RawExtension{Raw: []byte(`{}`)}}
	theirs := ours.DeepCopy()
	theirs.Name, theirs.OwnerReferences = "workers-7d4f9c", []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "workers", UID: "u"}}
	orphan := ours.DeepCopy()
	orphan.Name, orphan.Annotations = "store-5b8c6d", nil
	for _, o := range []client.Object{ours, theirs, orphan} {
		if err := server.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(config, server.env.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := filepath.Abs(filepath.Join(server.env.BinaryAssetsDirectory, "kubectl"))
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(nil, "bash", "-c", "set -eu\nprogram=$0 config=$1\nkubectl() { \"$program\" --kubeconfig \"$config\" \"$@\"; }\n"+deletesRevisions(t), program, config)
	if err != nil {
		t.Fatal(err)
	}
	var left appsv1.ControllerRevisionList
	if err := server.client.List(t.Context(), &left, client.HasLabels{v1alpha1.LabelWorkflow}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range left.Items {
		names = append(names, left.Items[i].Name)
	}
	slices.Sort(names)
	if want := []string{orphan.Name, theirs.Name}; !slices.Equal(names, want) {
		t.Errorf("%q are left, want %q; the commands said\n%s", names, want, out)
	}
}
