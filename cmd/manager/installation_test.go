// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/syncopate-dev/syncopate/internal/bus"
)

// mutation: an installation named by what a restart or another replica has not, or that is not
// handed to the bus, makes this fail.
func TestAnInstallationIsItsCluster(t *testing.T) {
	c := apiServer(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "the-cluster"}})
	first, err := loadIdentity(t.Context(), c, "one", nobody())
	if err != nil {
		t.Fatal(err)
	}
	second, err := loadIdentity(t.Context(), c, "another", nobody())
	if err != nil || first.installation != "the-cluster" || second.installation != first.installation {
		t.Errorf("installations %q and %q, %v", first.installation, second.installation, err)
	}
	o, err := parse(t, nil, "--nats-take-over=old-cluster")
	if err != nil {
		t.Fatal(err)
	}
	if b := o.nats.busConfig(first, logr.Discard(), (*bus.Metrics)(nil)); b.Installation != "the-cluster" || b.TakeOver != "old-cluster" || first.keys.Check() != nil {
		t.Errorf("the bus gets %q, %q and key %q", b.Installation, b.TakeOver, first.keys.Current.ID)
	}
}

func TestAClusterWithoutANameIsAnError(t *testing.T) {
	for name, c := range map[string]func() error{
		"no namespace": func() error { _, err := installationOf(t.Context(), apiServer()); return err },
		"no UID": func() error {
			_, err := installationOf(t.Context(), apiServer(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c() == nil {
				t.Error("it has a name")
			}
		})
	}
}

// mutation: a client that asks the API server where its kinds are.
func TestTheIdentityIsReadWithoutAskingForAllKinds(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Path)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loadOnce(t.Context(), &rest.Config{Host: server.URL}, scheme, "ns", nobody()); err == nil {
		t.Error("nothing may be read, and that is no error")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(asked) == 0 || slices.ContainsFunc(asked, func(path string) bool { return !strings.Contains(path, "/namespaces/") }) {
		t.Errorf("asked: %v", asked)
	}
}
