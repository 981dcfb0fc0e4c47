// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kubectl runs it against the release's API server.
func (r *release) kubectl(stdin []byte, args ...string) string {
	r.t.Helper()
	program, err := filepath.Abs(filepath.Join(server.env.BinaryAssetsDirectory, "kubectl"))
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := run(stdin, program, append([]string{"--kubeconfig", r.kubeconfig}, args...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(out)
}

// The manifests of the last release, with objects made from its samples, become those of this tree
// by kubectl apply: the objects stay, and what their authors apply, again or for the first time, is
// still taken.
// hack/compat compares the same by reading.
// mutation: a field of the samples taken out of the CRDs, or a rule that refuses them, makes this
// fail.
func TestTheLastReleaseIsUpgradedToThisTree(t *testing.T) {
	const last = "hack/compat/last"
	r := newRelease(t)
	r.kubectl(nil, "apply", "--server-side", "-f", last+"/install.yaml")
	r.kubectl(nil, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	samples := []string{"apply", "--server-side", "--validate=strict", "-f", last + "/samples"}
	r.kubectl(nil, samples...)
	all := []string{"get", "workflowruns,workflows,schedules,lockpolicies,semaphores", "-A", "-o", "jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.uid}{'\\n'}{end}"}
	before := r.kubectl(nil, all...)
	if n := strings.Count(before, "\n"); n < 10 {
		t.Fatalf("only %d objects:\n%s", n, before)
	}
	r.kubectl(kustomize(t, "config/default"), "apply", "--server-side", "--validate=strict", "-f", "-")
	r.kubectl(nil, samples...)
	// What is there and stays as it is, rules that are new are not asked about.
	r.kubectl(nil, append(samples, "--namespace", "kube-public", "--dry-run=server")...)
	if after := r.kubectl(nil, all...); after != before {
		t.Errorf("after the upgrade there is\n%s\nand there was\n%s", after, before)
	}
}

// pageOf is a page of docs.
func pageOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// helmOfThePage is the first command of docs/install.md that matches.
func helmOfThePage(t *testing.T, like string) []string {
	t.Helper()
	page := strings.ReplaceAll(pageOf(t, "install.md"), "\\\n", "")
	command := regexp.MustCompile(`(?m)^helm (` + like + `)(?: +#.*)?$`).FindStringSubmatch(page)
	if command == nil {
		t.Fatalf("the page has no helm %s", like)
	}
	return strings.Fields(command[1])
}

// The commands of docs/install.md that install by Helm, upgrade, go back and upgrade again end with
// the image that they are to end with: the one that was named at first is a value of the release,
// which an upgrade keeps, as it does what the way back says of CRDs.
// mutations: the tag taken from the upgrade makes this fail, as does crds.install.
func TestTheUpgradeOfThePageHasTheNewImage(t *testing.T) {
	r := newRelease(t)
	const upgrade = "upgrade [^#\n]*image.tag=v2[^#\n]*"
	for _, step := range []struct {
		command, image string
		crds           bool
	}{
		{"install [^#\n]*", "example.org/syncopate:v1", true},
		{upgrade, "example.org/syncopate:v2", true},
		{"upgrade [^#\n]*image.tag=v1[^#\n]*", "example.org/syncopate:v1", false},
		{upgrade, "example.org/syncopate:v2", true},
	} {
		if err := r.helm(helmOfThePage(t, step.command)...); err != nil {
			t.Fatal(err)
		}
		d := &appsv1.Deployment{}
		if err := r.client.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: "syncopate"}, d); err != nil {
			t.Fatal(err)
		}
		if got := d.Spec.Template.Spec.Containers[0].Image; got != step.image {
			t.Errorf("after helm %s the image is %s, not %s", step.command, got, step.image)
		}
		manifest, err := run(nil, server.helm, "--kubeconfig", r.kubeconfig, "--namespace", operatorNamespace, "get", "manifest", "syncopate")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(manifest), "kind: CustomResourceDefinition"); got != step.crds {
			t.Errorf("after helm %s CRDs are in the manifest: %t", step.command, got)
		}
	}
}

// olderChart is a chart whose CRDs are marked as those of an older version.
func olderChart(t *testing.T) string {
	t.Helper()
	chart := t.TempDir()
	if err := os.CopyFS(chart, os.DirFS(filepath.Join(moduleRoot, "charts", "syncopate"))); err != nil {
		t.Fatal(err)
	}
	crd := filepath.Join(chart, "files", "crds", "syncopate.dev_workflowruns.yaml")
	text, err := os.ReadFile(crd)
	if err != nil {
		t.Fatal(err)
	}
	marked := strings.Replace(string(text), "  annotations:\n", "  annotations:\n    example.org/of: older\n", 1)
	if err := os.WriteFile(crd, []byte(marked), 0o600); err != nil {
		t.Fatal(err)
	}
	return chart
}

// The way back of docs/install.md leaves the CRDs of the newer version, and helm rollback does not:
// whoever may think of it is told.
// mutations: crds.install taken from the command of the way back makes this fail, as does "helm
// rollback" taken from a page or from NOTES.txt.
func TestTheWayBackOfHelmKeepsTheCRDs(t *testing.T) {
	r, older := newRelease(t), olderChart(t)
	of := func(chart string, command []string) []string {
		return strings.Fields(strings.ReplaceAll(strings.Join(command, " "), "charts/syncopate", chart))
	}
	for _, step := range []struct {
		args []string
		mark string
	}{
		{of(older, helmOfThePage(t, "install [^#\n]*")), "older"},
		{helmOfThePage(t, "upgrade [^#\n]*image.tag=v2[^#\n]*"), ""},
		{of(older, helmOfThePage(t, "upgrade [^#\n]*image.tag=v1[^#\n]*")), ""},
		{[]string{"rollback", "syncopate", "1"}, "older"},
	} {
		if err := r.helm(step.args...); err != nil {
			t.Fatal(err)
		}
		if got := r.kubectl(nil, "get", "crd", "workflowruns.syncopate.dev", "-o", `jsonpath={.metadata.annotations.example\.org/of}`); got != step.mark {
			t.Errorf("after helm %s the CRDs are %q, not %q", step.args, got, step.mark)
		}
	}
	for _, page := range []string{"install.md", "runbooks/SyncopateOperatorDown.md", "../charts/syncopate/templates/NOTES.txt"} {
		if text := pageOf(t, page); !strings.Contains(text, "helm rollback") || !strings.Contains(text, "--atomic") {
			t.Errorf("%s does not tell that helm rollback takes the CRDs back", page)
		}
	}
}

// The patches with which docs/install.md goes back take CRDs from an overlay, and from that of
// examples/production what is not the operator; the operator has its arguments.
// mutation: one of the two patches taken from the page makes this fail.
func TestTheWayBackOfThePageIsOfTheOperatorOnly(t *testing.T) {
	var patches string
	for _, b := range docsBlocks(t) {
		if b.page == "docs/install.md" && strings.Contains(b.text, "$patch: delete") {
			patches = b.text
		}
	}
	root, err := filepath.Abs(moduleRoot)
	if err != nil {
		t.Fatal(err)
	}
	for _, base := range []string{"config/default", "config/default-webhook", "examples/production"} {
		dir := t.TempDir()
		relative, err := filepath.Rel(dir, filepath.Join(root, base))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("resources: ["+relative+"]\n"+patches), 0o600); err != nil {
			t.Fatal(err)
		}
		back := objects(t, kustomize(t, dir))
		for _, o := range back {
			if ns := o.GetNamespace(); o.GetKind() == "CustomResourceDefinition" || ns == "nats" || ns == "redis" {
				t.Errorf("the way back of %s applies %s %s", base, o.GetKind(), o.GetName())
			}
		}
		var was, is appsv1.Deployment
		findObject(t, objects(t, kustomize(t, base)), "Deployment", operatorNamespace, "syncopate", &was)
		findObject(t, back, "Deployment", operatorNamespace, "syncopate", &is)
		if got, want := is.Spec.Template.Spec.Containers[0].Args, was.Spec.Template.Spec.Containers[0].Args; len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("the way back of %s has arguments %q, not %q", base, got, want)
		}
	}
}

// An overlay names the manifests and the image of one version: flags and CRDs of another one are
// not those of the image.
// mutation: a ref of main beside a tag makes this fail.
func TestAnOverlayOfThePagesIsOfOneVersion(t *testing.T) {
	overlays := 0
	for _, b := range docsBlocks(t) {
		tag := regexp.MustCompile(`newTag: ([^ },]+)`).FindStringSubmatch(b.text)
		for _, ref := range regexp.MustCompile(`\?ref=(\S+)`).FindAllStringSubmatch(b.text, -1) {
			overlays++
			if tag == nil || ref[1] != tag[1] {
				t.Errorf("%s: manifests of %s, and of the image %q", b.page, ref[1], tag)
			}
		}
	}
	if overlays < 2 {
		t.Errorf("%d overlays", overlays)
	}
}

// kubectl rollout undo makes the image its own, so what is applied after it is in conflict. A page
// that has people undo says how they go on.
// mutation: --force-conflicts taken from a page makes this fail.
func TestWhoUndoesARolloutCanApplyAgain(t *testing.T) {
	manifests := kustomize(t, "config/default-webhook")
	old := `{"spec":{"template":{"spec":{"containers":[{"name":"manager","image":"syncopate:old"}]}}}}`
	if _, err := kubectl(nil, "-n", operatorNamespace, "patch", "deployment", "syncopate", "--field-manager=kubectl-rollout", "-p", old); err != nil {
		t.Fatal(err)
	}
	if err := apply(manifests); err == nil || !strings.Contains(err.Error(), "conflict") {
		t.Errorf("after an undo, an apply says %v", err)
	}
	if err := apply(manifests, "--force-conflicts"); err != nil {
		t.Error(err)
	}
	for _, page := range []string{"install.md", "runbooks/SyncopateOperatorDown.md"} {
		if text := pageOf(t, page); strings.Contains(text, "rollout undo") && !strings.Contains(text, "--force-conflicts") {
			t.Errorf("%s says nothing about the next apply", page)
		}
	}
}
