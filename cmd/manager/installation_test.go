// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
