// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Shared is an API server that all tests of a package share. TestMain calls Main; then it is there.
type Shared struct {
	Config *rest.Config // limits no rate
	Scheme *runtime.Scheme
}

// Main runs the tests of a package while there is an API server, and ends the process.
func (s *Shared) Main(m *testing.M) {
	Main(m, func(server *envtest.Environment) (err error) {
		s.Config = server.Config
		s.Config.QPS = -1
		s.Scheme, err = Scheme()
		return err
	})
}

// Client is one of its clients.
func (s *Shared) Client(tb testing.TB) client.WithWatch {
	tb.Helper()
	c, err := client.NewWithWatch(s.Config, client.Options{Scheme: s.Scheme})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Namespace is a client, and a namespace of the test's own, whose name begins with prefix.
func (s *Shared) Namespace(tb testing.TB, prefix string) (client.WithWatch, string) {
	tb.Helper()
	c := s.Client(tb)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	if err := c.Create(tb.Context(), ns); err != nil {
		tb.Fatal(err)
	}
	return c, ns.Name
}
