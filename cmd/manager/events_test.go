// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/eventlog"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// newEvents makes a writer of events.
func newEvents(t *testing.T, create func(context.Context, *eventsv1.Event) error, exists func(types.UID) bool) (*eventlog.Writer, *prometheus.CounterVec) {
	t.Helper()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dropped_total", Help: "Left out."}, []string{"cause"})
	return eventlog.New(eventlog.Options{
		Scheme: scheme, Controller: eventSource, Instance: eventSource + "-a", Create: create, Gone: goneRun(exists), Dropped: dropped,
		Clock: clock.RealClock{}, Log: logr.Discard(),
	}), dropped
}

func runNamed(namespace, name string) *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(name)}}
}

// mutation: a goneRun that says of all runs that they exist, or that looks for policies among runs,
// makes this fail.
func TestNoEventIsWrittenAfterItsRunWasDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		there := map[types.UID]bool{"kept": true, "deleted": true}
		exists := func(uid types.UID) bool {
			mu.Lock()
			defer mu.Unlock()
			return there[uid]
		}
		hold := make(chan struct{})
		var written []string
		w, dropped := newEvents(t, func(_ context.Context, e *eventsv1.Event) error {
			<-hold
			mu.Lock()
			defer mu.Unlock()
			written = append(written, e.Reason+" "+e.Regarding.Name)
			return nil
		}, exists)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go w.Run(ctx)
		tell := func(name, reason string) {
			w.Eventf(runNamed("x", name), nil, "Normal", reason, "Advance", "note")
			synctest.Wait()
		}
		tell("kept", "First")       // is being written
		tell("deleted", "Admitted") // waits behind it
		tell("kept", "Second")
		mu.Lock()
		delete(there, "deleted")
		mu.Unlock()
		tell("deleted", "Succeeded")
		w.Eventf(&v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy", UID: "policy"}}, nil, "Normal", "Third", "Rollout", "note")
		close(hold)
		time.Sleep(time.Hour) // of the bubble
		synctest.Wait()
		late := testutil.ToFloat64(dropped.WithLabelValues("deleted"))
		want := []string{"First kept", "Third policy", "Second kept"}
		if diff := cmp.Diff(want, written); diff != "" || late != 2 {
			t.Errorf("%v came too late, want 2; written (-want +got):\n%s", late, diff)
		}
	})
}

// mutation: a client that waits for as long as the API server asks, and tries again, makes this
// fail; so does one that gives no error.
func TestAWriteOfAnEventIsTriedOnce(t *testing.T) {
	tries := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		tries++
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer s.Close()
	create, err := eventsOf(&rest.Config{Host: s.URL}, s.Client())
	if err != nil {
		t.Fatal(err)
	}
	err = create(t.Context(), &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}})
	if !apierrors.IsTooManyRequests(err) || tries != 1 {
		t.Errorf("%d tries: %v", tries, err)
	}
}

// mutation: an event without its time, a note of any length, an event of a policy in no namespace,
// or an instance that is empty, is refused by the API server.
func TestTheAPIServerTakesEvents(t *testing.T) {
	server := testenv.APIServer(t, testenv.CRDs())
	c, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	httpClient, err := rest.HTTPClientFor(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer httpClient.CloseIdleConnections()
	create, err := eventsOf(server.Config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan error)
	w, _ := newEvents(t, func(ctx context.Context, e *eventsv1.Event) error {
		err := create(ctx, e)
		results <- err
		return err
	}, func(types.UID) bool { return true })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	defer func() {
		stop()
		<-ended
	}()
	policy := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy", UID: "policy"}}
	w.Eventf(runNamed("default", "run"), nil, "Warning", "StepFailed", "Advance", "%s", strings.Repeat("€", 2000))
	w.Eventf(runNamed("default", "run"), policy, "Normal", "Failed", "Advance", "note")
	w.Eventf(policy, nil, "Normal", "InForce", "Rollout", "note")
	for range 3 {
		if err := <-results; err != nil {
			t.Errorf("the API server says: %v", err)
		}
	}
	for about, want := range map[string]int{"kind=WorkflowRun,regarding.name=run": 2, "kind=LockPolicy,regarding.name=policy": 1} {
		list, err := c.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "regarding." + about})
		if err != nil || len(list.Items) != want {
			t.Errorf("events of %s: %d, %v; want %d", about, len(list.Items), err, want)
		}
	}
	described, err := c.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=WorkflowRun,involvedObject.uid=run,type=Warning"})
	if err != nil || len(described.Items) != 1 || described.Items[0].Reason != "StepFailed" {
		t.Errorf("as kubectl describe lists them: %v, %v", described, err)
	}
}
