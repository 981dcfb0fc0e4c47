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

	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// commandsUnder are the commands of docs/install.md under a heading that have a text in them.
func commandsUnder(t *testing.T, heading, text string) string {
	t.Helper()
	_, section, _ := strings.Cut(pageOf(t, "install.md"), "\n"+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for i, block := range strings.Split(section, "\n```\n") {
		if i%2 == 1 && strings.Contains(block, text) {
			return block
		}
	}
	t.Fatalf("no commands with %q under %q", text, heading)
	return ""
}

// play runs commands of a page against the release's API server. That has no controllers, so what
// waits for one is left out.
func (r *release) play(commands string) error {
	r.t.Helper()
	absolute := func(path string) string {
		p, err := filepath.Abs(path)
		if err != nil {
			r.t.Fatal(err)
		}
		return p
	}
	dir := r.t.TempDir()
	if err := os.Symlink(absolute(filepath.Join(moduleRoot, "charts")), filepath.Join(dir, "charts")); err != nil {
		r.t.Fatal(err)
	}
	_, err := run(nil, "bash", "-c", `set -euo pipefail
cd "$0"; kubectl=$1 helm=$2 config=$3
kubectl() { case "$*" in "delete namespace "*|*" wait "*) ;; *) "$kubectl" --kubeconfig "$config" "$@";; esac; }
helm() { "$helm" --kubeconfig "$config" "$@"; }
`+commands, dir, absolute(filepath.Join(server.env.BinaryAssetsDirectory, "kubectl")), absolute(server.helm), absolute(r.kubeconfig))
	return err
}

// What the last release in another namespace left is taken by who says so, and the Secrets and the
// history of LockPolicies come along with what is in them.
//
// mutations: --take-ownership taken from the page, or the jq, or the revisions, makes this fail.
func TestAnInstallationMovesToAnotherNamespaceByThePage(t *testing.T) {
	r := newRelease(t)
	const chart, flow = "charts/syncopate", "flow"
	if err := r.helm("install", "syncopate", chart, "--namespace", flow, "--create-namespace", "--set", "image.tag=v7"); err != nil {
		t.Fatal(err)
	}
	r.kubectl(nil, "-n", flow, "create", "secret", "generic", "syncopate-result-keys", "--from-literal=key=signs")
	if err := r.apply("apiVersion: syncopate.dev/v1alpha1\nkind: WorkflowRun\nmetadata: {name: kept, namespace: default}\n" +
		"spec: {steps: [{name: a, job: {topic: demo.echo}}]}\n"); err != nil {
		t.Fatal(err)
	}
	if err := r.apply("apiVersion: syncopate.dev/v1alpha1\nkind: LockPolicy\nmetadata: {name: polled}\nspec: {workloadClasses: [polled]}\n"); err != nil {
		t.Fatal(err)
	}
	p := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "syncopate.dev/v1alpha1", Kind: "LockPolicy"}}
	if err := r.client.Get(t.Context(), client.ObjectKey{Name: "polled"}, p); err != nil {
		t.Fatal(err)
	}
	said := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: flow, Name: "polled-12345678-1", Labels: map[string]string{policy.LabelRevisions: "polled"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "syncopate.dev/v1alpha1", Kind: "LockPolicy", Name: p.Name, UID: p.UID}},
		},
		Data: runtime.RawExtension{Raw: []byte(`{"runLock":{}}`)}, Revision: 1,
	}
	if err := r.client.Create(t.Context(), said.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := r.play(commandsUnder(t, "### Another namespace", "helm uninstall")); err != nil {
		t.Fatal(err)
	}
	if got := r.kubectl(nil, "-n", operatorNamespace, "get", "secret", "syncopate-result-keys", "-o", "jsonpath={.data.key}"); got != "c2lnbnM=" {
		t.Errorf("the keys are %q", got)
	}
	kept := &appsv1.ControllerRevision{}
	err := r.client.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: said.Name}, kept)
	if err != nil || string(kept.Data.Raw) != string(said.Data.Raw) || len(kept.OwnerReferences) != 1 || kept.OwnerReferences[0].UID != p.UID {
		t.Errorf("the history of the policy has %+v, %v", kept, err)
	}
	d := r.operator()
	if got := d.Spec.Template.Spec.Containers[0].Image; got != "syncopate:v7" {
		t.Errorf("the image is %s: the values did not come along", got)
	}
	if !r.exists("syncopate.dev/v1alpha1", "WorkflowRun", "default", "kept") || r.exists("apps/v1", "Deployment", flow, "syncopate") {
		t.Error("the run is gone, or the operator of before is there")
	}
	if err := r.helm("upgrade", "syncopate", chart, "--reuse-values"); err != nil {
		t.Errorf("the next upgrade: %v", err)
	}
}

// operator is the Deployment.
func (r *release) operator() *appsv1.Deployment {
	r.t.Helper()
	d := &appsv1.Deployment{}
	if err := r.client.Get(r.t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: "syncopate"}, d); err != nil {
		r.t.Fatal(err)
	}
	return d
}

// Two replicas with two stores of locks hold each lock twice: the commands of the page let none run
// while the address changes, and have all run again.
//
// mutation: the scale taken from the page makes this fail.
func TestAnotherRedisComesWhileNoReplicaRuns(t *testing.T) {
	r := newRelease(t)
	if err := r.helm("install", "syncopate", "charts/syncopate", "--create-namespace", "--set", "image.tag=v7"); err != nil {
		t.Fatal(err)
	}
	before, commands, found := strings.Cut(commandsUnder(t, "## Another Redis", "redis.addrs="), "\nhelm ")
	if !found {
		t.Fatal("the page has no helm")
	}
	if err := r.play(before); err != nil {
		t.Fatal(err)
	}
	if n := *r.operator().Spec.Replicas; n != 0 || !strings.Contains(before, "wait --for=delete pod") {
		t.Errorf("before the address changes there are %d replicas; the commands are\n%s", n, before)
	}
	if err := r.play("helm " + commands); err != nil {
		t.Fatal(err)
	}
	if n := *r.operator().Spec.Replicas; n != 2 || !slices.Contains(r.args(), "--redis-addrs=redis.other.svc:6379") {
		t.Errorf("%d replicas, with %q", n, r.args())
	}
}

// Streams of another prefix, or in another NATS, are lost to the operator, and keep their room.
//
// mutation: a stream taken from the page makes this fail.
func TestThePageOfAnotherPrefixRemovesAllStreams(t *testing.T) {
	commands := commandsUnder(t, "## Another prefix, or another NATS", "nats stream rm")
	n := protocol.Names{Prefix: "syncopate"}
	for _, stream := range []string{n.JobsStream(), n.ResultsStream(), n.DeadLettersStream(), n.ControlStream(), n.PayloadsStream()} {
		if !strings.Contains(commands, " "+stream) {
			t.Errorf("%s stays:\n%s", stream, commands)
		}
	}
	scale, remove := strings.Index(commands, "deployment/syncopate --replicas=0"), strings.Index(commands, "delete configmap "+ownership.ObjectName)
	if scale < 0 || remove < scale || strings.Index(commands, "nats stream rm") < remove {
		t.Errorf("in this order something is made again:\n%s", commands)
	}
}
