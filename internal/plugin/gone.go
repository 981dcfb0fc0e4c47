// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// errNoEnd is told of a run that is gone, and of whose end the API server said nothing.
var errNoEnd = errors.New("the API server does not tell")

// gone says whether an error of a sighting is that the run is deleted.
func gone(err error) bool { return apierrors.IsNotFound(err) || errors.Is(err, errReplaced) }

// lastState is what a run was when it was deleted: with ttlSecondsAfterFinished 0 that is at once.
// The event of the deletion has the state. The API server keeps events for about a minute, so they
// are asked for from the last sighting on. Who may not list runs, or did not reach the API server
// for as long, may come too late.
func lastState(ctx context.Context, c client.Reader, seen *sighting) (*v1alpha1.WorkflowRun, error) {
	watcher, ok := c.(client.WithWatch)
	if !ok {
		return nil, errNoEnd
	}
	ctx, cancel := context.WithTimeout(ctx, lastAnswer)
	defer cancel()
	one := client.MatchingFields{"metadata.name": seen.run.Name}
	since := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: seen.since}}
	events, err := watcher.Watch(ctx, &v1alpha1.WorkflowRunList{}, client.InNamespace(seen.run.Namespace), one, since)
	if err != nil {
		return nil, err
	}
	defer events.Stop()
	for e := range events.ResultChan() {
		run, ok := e.Object.(*v1alpha1.WorkflowRun)
		switch {
		case e.Type == watch.Error:
			return nil, apierrors.FromObject(e.Object)
		case e.Type == watch.Deleted && ok && run.UID == seen.run.UID:
			return run, nil
		}
	}
	return nil, errNoEnd
}

// whenGone is the end of a run that was deleted meanwhile. err is what said so.
func whenGone(ctx context.Context, c client.Reader, seen *sighting, err error) (*v1alpha1.WorkflowRun, error) {
	last, why := lastState(ctx, c, seen)
	switch {
	case why != nil:
		return nil, fmt.Errorf("%w, and whether it had succeeded is not known: %w", err, why)
	case last.Status == nil || last.Status.CompletedAt == nil:
		return nil, fmt.Errorf("run %s was deleted before it had ended", last.Name)
	}
	return last, nil
}
