// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// An authority keeps its key when cert-manager renews its certificate: what it signed is then valid
// under the new one, too, and nobody issues that anew. Since cert-manager 1.18 that has to be said.
// mutation: rotationPolicy taken out of any of them makes this fail.
func TestAuthoritiesKeepTheirKeys(t *testing.T) {
	for from, all := range map[string][]*unstructured.Unstructured{
		"config/webhook/cert-manager": objects(t, kustomize(t, "config/webhook/cert-manager")),
		"examples/production":         production(t),
		"the chart":                   objects(t, mustHelm(t, "--set", "webhook.enabled=true", "--set", "webhook.certificates=cert-manager")),
	} {
		authorities := 0
		for _, o := range all {
			if isCA, _, _ := unstructured.NestedBool(o.Object, "spec", "isCA"); o.GetKind() != "Certificate" || !isCA {
				continue
			}
			authorities++
			if policy, _, _ := unstructured.NestedString(o.Object, "spec", "privateKey", "rotationPolicy"); policy != "Never" {
				t.Errorf("%s: the key of %s rotates: %q", from, o.GetName(), policy)
			}
		}
		if authorities != 1 {
			t.Errorf("%s: %d authorities", from, authorities)
		}
	}
}
