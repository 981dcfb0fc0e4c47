// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/syncopate-dev/syncopate/internal/eventlog"
)

// eventSource is who says what events say.
const eventSource = "syncopate"

// recordEvents makes the recorder of all controllers, which writes until ctx ends.
func (a *adapters) recordEvents(ctx context.Context, mgr manager.Manager) error {
	create, err := eventsOf(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the name that events have of this process: %w", err)
	}
	w := eventlog.New(eventlog.Options{
		Scheme: mgr.GetScheme(), Controller: eventSource, Instance: eventSource + "-" + host, Create: create,
		Gone: goneRun(func(uid types.UID) bool {
			_, known := a.index.Find(uid)
			return known
		}),
		Dropped: a.figures.EventsDropped, Clock: clock.RealClock{}, Log: mgr.GetLogger().WithName("events"),
	})
	go w.Run(ctx)
	a.events = w
	return nil
}

// goneRun says of what events are about whether it is a run that is not there any more, as far as
// this process has heard.
func goneRun(exists func(types.UID) bool) func(*corev1.ObjectReference) bool {
	return func(about *corev1.ObjectReference) bool { return about.Kind == "WorkflowRun" && !exists(about.UID) }
}

// eventsOf writes an event to the API server, once: where that asks for patience, the client would
// wait for it, and all other events with it.
func eventsOf(config *rest.Config, c *http.Client) (func(context.Context, *eventsv1.Event) error, error) {
	api, err := typedeventsv1.NewForConfigAndClient(config, c)
	if err != nil {
		return nil, fmt.Errorf("make client of events: %w", err)
	}
	return func(ctx context.Context, e *eventsv1.Event) error {
		return api.RESTClient().Post().MaxRetries(0).Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error()
	}, nil
}
