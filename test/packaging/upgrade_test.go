// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"path/filepath"
	"strings"
	"testing"
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
