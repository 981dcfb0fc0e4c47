// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// fakeEvents is an API server that keeps what was written, and lets a test hold a write up.
type fakeEvents struct {
	mu      sync.Mutex
	written []string
	during  func() error // while an event is written
}

func (f *fakeEvents) write(how string, e *eventsv1.Event) (*eventsv1.Event, error) {
	if f.during != nil {
		if err := f.during(); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written = append(f.written, how+" "+e.Reason+" "+e.Regarding.Name)
	return e, nil
}

func (f *fakeEvents) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return f.write("create", e)
}

func (f *fakeEvents) Update(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return f.write("update", e)
}

func (f *fakeEvents) Patch(_ context.Context, e *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	return f.write("patch", e)
}

func (f *fakeEvents) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.written...)
}

func newLateCounter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "late_total", Help: "Came too late."})
}

func eventAbout(kind, name string) *eventsv1.Event {
	return &eventsv1.Event{Reason: "Told", Regarding: corev1.ObjectReference{Kind: kind, Name: name, UID: types.UID(name)}}
}

// mutations: an inTurn that does not wait, or keeps its place, makes this fail.
func TestEventsAreWrittenOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		api := &fakeEvents{during: func() error { <-hold; return nil }}
		sink := newEventSink(api, func(types.UID) bool { return true }, newLateCounter())
		for i := range 3 {
			go func() { _, _ = sink.Create(t.Context(), eventAbout("WorkflowRun", fmt.Sprint(i))) }()
		}
		synctest.Wait()
		errGone := errors.New("gone")
		gone, cancel := context.WithCancelCause(t.Context())
		cancel(errGone)
		if _, err := sink.Create(gone, eventAbout("WorkflowRun", "nobody waits")); !errors.Is(err, errGone) {
			t.Errorf("an event whose writer is gone: %v", err)
		}
		for done := range 3 {
			if n, written := sink.Waiting(), len(api.list()); n != 3-done || written != done {
				t.Errorf("%d wait and %d are written, want %d and %d", n, written, 3-done, done)
			}
			hold <- struct{}{}
			synctest.Wait()
		}
		close(hold)
		synctest.Wait()
		if n, done := sink.Waiting(), len(api.list()); n != 0 || done != 3 {
			t.Errorf("%d wait and %d are written at last", n, done)
		}
	})
}

// Mutations that make this fail: an inTurn that asks whether the run is there before it waits, or
// not at all; a Patch that does not ask (the series); an error in place of a dropped event, which
// client-go would try again; policies that are looked for among runs.
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
		api := &fakeEvents{during: func() error { <-hold; return nil }}
		late := newLateCounter()
		sink := newEventSink(api, exists, late)
		scheme, err := newScheme()
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		recorder, err := newEventRecorder(ctx, sink, scheme)
		if err != nil {
			t.Fatal(err)
		}
		tell := func(name, reason string) {
			run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "x", UID: types.UID(name)}}
			recorder.Eventf(run, nil, "Normal", reason, "Advance", "note")
			synctest.Wait()
		}
		tell("kept", "First")       // is being written
		tell("deleted", "Admitted") // waits behind it
		tell("kept", "Second")
		mu.Lock()
		delete(there, "deleted")
		mu.Unlock()
		policy := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy", UID: "policy"}}
		recorder.Eventf(policy, nil, "Normal", "Third", "Rollout", "note")
		close(hold)
		synctest.Wait()
		want := []string{"create First kept", "create Second kept", "create Third policy"}
		if diff := cmp.Diff(want, api.list()); diff != "" || testutil.ToFloat64(late) != 1 {
			t.Errorf("%v came too late, want 1; written (-want +got):\n%s", testutil.ToFloat64(late), diff)
		}

		// A series is written once more when it is over, six minutes later.
		mu.Lock()
		there["again"] = true
		mu.Unlock()
		tell("again", "StepBackingOff")
		tell("again", "StepBackingOff")
		mu.Lock()
		delete(there, "again")
		mu.Unlock()
		before := len(api.list())
		time.Sleep(time.Hour) // of the bubble
		synctest.Wait()
		if said := api.list()[before:]; len(said) > 0 || testutil.ToFloat64(late) != 2 {
			t.Errorf("written after the run was deleted: %v, %v were dropped, want 2", said, testutil.ToFloat64(late))
		}
		stop()
		synctest.Wait()
	})
}
