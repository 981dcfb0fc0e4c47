// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
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

// Operators of two namespaces have keys of their own. The bus and the store of slots get the
// namespace, and whether that of another one is gone.
//
// mutation: an identity without its namespace, or a bus or store that does not get it, makes this
// fail.
func TestAnOperatorIsThatOfItsNamespace(t *testing.T) {
	c := apiServer(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "the-cluster"}})
	self, err := loadIdentity(t.Context(), c, "flow", nobody())
	if err != nil {
		t.Fatal(err)
	}
	self.homeGone = func(_ context.Context, namespace string) bool { return namespace == "gone" }
	o, err := parse(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := o.nats.busConfig(self, logr.Discard(), (*bus.Metrics)(nil))
	if b.Home != "flow" || b.HomeGone == nil || !b.HomeGone(t.Context(), "gone") || b.HomeGone(t.Context(), "flow") {
		t.Errorf("the bus gets %q", b.Home)
	}
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	for _, s := range []struct {
		home    string
		foreign bool
	}{{"gone", false}, {"flow", false}, {"staging", true}} {
		one := self
		one.home = s.home
		err := store.Own(t.Context(), store.New(client, gateOptions(o, one, lockmgr.NewMetrics(prometheus.NewRegistry(), nil), store.NewMetrics(nil, 0))))
		if f, foreign := errors.AsType[*store.ForeignError](err); foreign != s.foreign || foreign && !f.Neighbour || !foreign && err != nil {
			t.Errorf("operator in %s: %v", s.home, err)
		}
	}
}

// mutations: gone that takes an error for an answer, or that asks each time, makes this fail.
func TestANamespaceIsGoneOnlyIfTheAPIServerSaysSo(t *testing.T) {
	asked := 0
	var answer error
	base := apiServer(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "flow"}})
	c := interceptor.NewClient(base, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		asked++
		if answer != nil {
			return answer
		}
		return c.Get(ctx, key, o, opts...)
	}})
	clk := clocktesting.NewFakeClock(time.Now())
	h := newHomes(c, clk)
	want := func(when, namespace string, gone bool, asks int) {
		t.Helper()
		asked = 0
		if got := h.gone(t.Context(), namespace); got != gone || asked != asks {
			t.Errorf("%s: gone %v, asked %d times", when, got, asked)
		}
	}
	want("it is there", "flow", false, 1)
	want("soon after", "flow", false, 0)
	want("another", "staging", true, 1)
	answer = apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "flow", nil)
	clk.Step(homePause)
	want("nobody may ask", "flow", false, 1)
	answer = nil
	if err := base.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "flow"}}); err != nil {
		t.Fatal(err)
	}
	clk.Step(homePause)
	want("deleted", "flow", true, 1)
	want("soon after that", "flow", true, 0)
	answer = apierrors.NewInternalError(errors.New("etcd"))
	clk.Step(homePause)
	want("no answer", "flow", true, 1)
	answer = nil
	if err := base.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "flow"}}); err != nil {
		t.Fatal(err)
	}
	clk.Step(homePause)
	want("made anew", "flow", false, 1)
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
