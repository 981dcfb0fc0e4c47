// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun"
)

// maxEventWrites is how many events are written at the same time.
const maxEventWrites = 1

// eventSink writes events one at a time. client-go writes each in a goroutine of its own, so a
// burst of them would keep the API server from status writes, for which workers and tenants wait.
// Who makes events asks how many wait.
//
// An event may wait long: behind others, for the API server, or for the end of its series, minutes
// after it was made. Once its run is deleted it is dropped: nobody could find what it is about.
type eventSink struct {
	next    events.EventSink
	exists  func(types.UID) bool // says whether a run is there, as far as this process has heard
	late    prometheus.Counter   // events whose run was deleted before they were written
	places  chan struct{}
	waiting atomic.Int64
}

func newEventSink(next events.EventSink, exists func(types.UID) bool, late prometheus.Counter) *eventSink {
	return &eventSink{next: next, exists: exists, late: late, places: make(chan struct{}, maxEventWrites)}
}

// newEventRecorder makes a recorder whose events go through a sink until ctx ends.
func newEventRecorder(ctx context.Context, sink events.EventSink, scheme *runtime.Scheme) (events.EventRecorder, error) {
	ctx = log.IntoContext(ctx, log.Log.WithName("events"))
	all := events.NewBroadcaster(sink)
	if err := all.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("record events: %w", err)
	}
	context.AfterFunc(ctx, all.Shutdown)
	return all.NewRecorder(scheme, "syncopate"), nil
}

// recordEvents makes the recorder of runs and policies, which writes until ctx ends.
func (a *adapters) recordEvents(ctx context.Context, mgr manager.Manager) error {
	api, err := eventsOf(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	exists := func(uid types.UID) bool {
		_, known := a.index.Find(uid)
		return known
	}
	dropped := a.figures.EventsDropped
	sink := newEventSink(api, exists, dropped.WithLabelValues("deleted"))
	recorder, err := newEventRecorder(ctx, sink, mgr.GetScheme())
	if err != nil {
		return err
	}
	a.events = &workflowrun.BoundedEvents{EventRecorder: recorder, Waiting: sink.Waiting, Dropped: dropped.WithLabelValues("full")}
	return nil
}

// eventsOf writes events to the API server.
func eventsOf(config *rest.Config, c *http.Client) (events.EventSink, error) {
	api, err := typedeventsv1.NewForConfigAndClient(config, c)
	if err != nil {
		return nil, fmt.Errorf("make client of events: %w", err)
	}
	return &events.EventSinkImpl{Interface: api}, nil
}

// Waiting is how many events are being written or wait for that.
func (s *eventSink) Waiting() int { return int(s.waiting.Load()) }

// Create implements events.EventSink.
func (s *eventSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return s.inTurn(ctx, e, func() (*eventsv1.Event, error) { return s.next.Create(ctx, e) })
}

// Update implements events.EventSink.
func (s *eventSink) Update(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return s.inTurn(ctx, e, func() (*eventsv1.Event, error) { return s.next.Update(ctx, e) })
}

// Patch implements events.EventSink.
func (s *eventSink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	return s.inTurn(ctx, e, func() (*eventsv1.Event, error) { return s.next.Patch(ctx, e, data) })
}

// inTurn writes an event when it is its turn, if its run is still there then.
func (s *eventSink) inTurn(ctx context.Context, e *eventsv1.Event, write func() (*eventsv1.Event, error)) (*eventsv1.Event, error) {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	select {
	case s.places <- struct{}{}:
		defer func() { <-s.places }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to write an event: %w", context.Cause(ctx))
	}
	if e.Regarding.Kind == "WorkflowRun" && !s.exists(e.Regarding.UID) {
		s.late.Inc()
		return e, nil // as if written: client-go would try again
	}
	return write()
}
