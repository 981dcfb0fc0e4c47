// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"context"
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// People apply manifests from their side, GitOps tools on the server's, each as a manager of
// its own. None of them changes what another wrote, so none is in conflict. The operator has
// written status meanwhile.
// mutation: +kubebuilder:default on any field of Step, Retry, Backoff, Approval or ForEach
// makes this fail.
func TestManagersWhoApplyTheSameManifestAreInNoConflict(t *testing.T) {
	ns := namespace(t)
	t.Cleanup(func() {
		if err := server.client.DeleteAllOf(context.WithoutCancel(t.Context()), &v1alpha1.LockPolicy{}); err != nil {
			t.Errorf("delete what the test made: %v", err)
		}
	})
	samples := []string{"-n", ns, "-f", filepath.Join(moduleRoot, "config", "samples")}
	apply := func(args ...string) {
		t.Helper()
		kubectl(t, append(append([]string{"apply"}, args...), samples...)...)
	}
	apply()
	var runs v1alpha1.WorkflowRunList
	if err := server.client.List(t.Context(), &runs, client.InNamespace(ns)); err != nil || len(runs.Items) < 5 {
		t.Fatalf("%d runs: %v", len(runs.Items), err)
	}
	for i := range runs.Items {
		kubectl(t, "patch", "wfr", runs.Items[i].Name, "-n", ns, "--subresource=status", "--type=merge", "-p", `{"status":{"observedGeneration":1,"fence":1,"lock":{"leaseID":"x"}}}`)
	}
	apply("--server-side")
	apply("--server-side", "--field-manager=argocd-controller")
	apply("--server-side", "--field-manager=kustomize-controller")
	apply()
	for _, manager := range []string{"argocd-controller", "somebody-else"} {
		if out, err := tryKubectl(t, append([]string{"diff", "--server-side", "--field-manager=" + manager}, samples...)...); err != nil {
			t.Errorf("diff as %s: %v\n%s", manager, err, out)
		}
	}
}

// Steps are one value: who applies other ones than those that are stored is refused,
// by whichever way.
func TestOtherStepsAreRefusedFromTheServersSideToo(t *testing.T) {
	o := mustCreate(t, aRun())
	other := parse(t, aRunOf("  steps: [{name: b, job: {topic: demo.echo}}]"))
	other.SetName(o.GetName())
	other.SetGenerateName("")
	err := server.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(other), client.FieldOwner("other"), client.ForceOwnership)
	wantRefused(t, err, "spec.steps is immutable")
}
