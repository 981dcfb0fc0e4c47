// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// withAuthorities is examples/production in an overlay with the component beside it.
func withAuthorities(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	dir := t.TempDir()
	example, err := filepath.Abs(filepath.Join(moduleRoot, "examples", "production"))
	if err != nil {
		t.Fatal(err)
	}
	if example, err = filepath.Rel(dir, example); err != nil {
		t.Fatal(err)
	}
	overlay := "resources: [" + example + "]\ncomponents: [" + example + "/authorities]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	return objects(t, kustomize(t, dir))
}

// cert-manager writes the authority of the issuer into ca.crt of its Secrets, so that a file
// with an old and a new one needs another place. It is read under the name of before: arguments
// and configurations stay.
//
// mutation: a part left out of the component, or ca.crt among the items of a Secret,
// makes this fail.
func TestWhomPartsTrustMayComeFromAConfigMap(t *testing.T) {
	all := withAuthorities(t)
	templates := map[string]*corev1.PodTemplateSpec{}
	for _, name := range []string{"nats", "redis"} {
		var s appsv1.StatefulSet
		findObject(t, all, "StatefulSet", name, name, &s)
		templates[name] = &s.Spec.Template
	}
	var d appsv1.Deployment
	findObject(t, all, "Deployment", operatorNamespace, "syncopate", &d)
	templates["syncopate"] = &d.Spec.Template
	for name, pod := range templates {
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "tls" })
		if i < 0 || pod.Spec.Volumes[i].Secret != nil || pod.Spec.Volumes[i].Projected == nil {
			t.Errorf("%s: the volume tls is not of several sources: %v", name, pod.Spec.Volumes)
			continue
		}
		var from []string
		for _, s := range pod.Spec.Volumes[i].Projected.Sources {
			switch {
			case s.Secret != nil && len(s.Secret.Items) > 0:
				for _, item := range s.Secret.Items {
					from = append(from, s.Secret.Name+" "+item.Key+" "+item.Path)
				}
			case s.ConfigMap != nil:
				from = append(from, s.ConfigMap.Name)
			}
		}
		want := []string{name + "-tls tls.crt tls.crt", name + "-tls tls.key tls.key", "syncopate-authorities"}
		if !slices.Equal(from, want) {
			t.Errorf("%s: the volume is of %q; want %q", name, from, want)
		}
	}
}

// The file of authorities may change alone, and nats-server reads it on SIGHUP only.
//
// mutation: ca.crt taken from the reloader's arguments makes this fail.
func TestNATSReadsItsAuthoritiesAgain(t *testing.T) {
	var s appsv1.StatefulSet
	findObject(t, production(t), "StatefulSet", "nats", "nats", &s)
	if reloader := s.Spec.Template.Spec.Containers[1]; !slices.Contains(reloader.Args, "/etc/nats-tls/ca.crt") {
		t.Errorf("the reloader looks at %q", reloader.Args)
	}
}

// A server that has read the old authority alone refuses clients, and other servers, with a
// certificate of the new one. That this order works is what
// TestLocksOnSentinelWithTLSOutliveAFailOverAndRotations and
// TestAClusterWithTLSAndAccountsIsUsedAndRotationsAreFollowed try.
//
// mutation: the page without a command, or with certificates before it, makes this fail.
func TestThePageHasServersReadANewAuthorityBeforeItsCertificates(t *testing.T) {
	_, section, _ := strings.Cut(pageOf(t, "production.md"), "\n### A new CA\n")
	section, _, _ = strings.Cut(section, "\n#")
	at := 0
	for _, words := range []string{
		"to all, servers too", "examples/production/authorities", "CONFIG SET tls-ca-cert-file /etc/redis-tls/ca.crt", "SHUTDOWN", "Then the certificates", "Then the old CA goes",
	} {
		i := strings.Index(section[at:], words)
		if i < 0 {
			t.Fatalf("%q is not in the section, or not behind what comes first:\n%s", words, section)
		}
		at += i
	}
}
