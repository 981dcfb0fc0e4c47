// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const (
	maxEvents = 100
	eventPage = 500
)

// Run reads a run, and shows it. What does not follow from each other is asked for at the same
// time: a page waits for the slowest answer, and not for the sum of all. A run that waits for
// others is shown with all runs under way, as UnderWay does.
func (v *View) Run(ctx context.Context, namespace, name, operator string, show func(*facts.Run)) error {
	stored, err := v.Stored(ctx, namespace, name)
	if err != nil {
		return err
	}
	if waits(stored) {
		leave, err := v.shared.turns.enter(ctx, v.User)
		if err != nil {
			return err
		}
		defer leave()
	}
	r := &facts.Run{Stored: stored}
	if err := v.fill(ctx, r, operator); err != nil {
		return err
	}
	show(r)
	return nil
}

// waits says whether a run waits in a queue, or for locks.
func waits(run *v1alpha1.WorkflowRun) bool {
	return run.Status != nil && run.Status.CompletedAt == nil && (run.Status.Phase == v1alpha1.RunQueued || runview.WaitsForLocks(run))
}

func (v *View) fill(ctx context.Context, r *facts.Run, operator string) error {
	stored := r.Stored
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if r.Run, err = reads.WithSteps(ctx, v.Client, stored); err != nil {
			return err
		}
		r.Children, err = reads.Children(ctx, v.Client, r.Run)
		return err
	})
	group.Go(func() (err error) { r.Policies, err = reads.Policies(ctx, v.Client); return err })
	group.Go(func() (err error) { r.Events, err = v.events(ctx, stored); return err })
	v.under(ctx, group, r, operator)
	return group.Wait()
}

// under adds what there is to know of a run that has not ended: who is in line, and who drives it.
func (v *View) under(ctx context.Context, group *errgroup.Group, r *facts.Run, operator string) {
	stored := r.Stored
	if stored.Status != nil && stored.Status.CompletedAt != nil {
		return
	}
	if waits(stored) {
		group.Go(func() (err error) { r.Others, r.All, err = v.others(ctx, stored.Namespace); return err })
		group.Go(func() error {
			all, more, err := v.semaphores(ctx, semaphorePages)
			if !more {
				r.Semaphores = all
			}
			return err
		})
	}
	group.Go(func() error {
		if claims, err := reads.Claims(ctx, v.Client, operator); err == nil { // most users may not see them
			r.Claims = claims
		}
		return nil
	})
}

// others are the runs under way: of one namespace, and not all, if the user may not see the others.
// The caller has a turn.
func (v *View) others(ctx context.Context, namespace string) (runs []v1alpha1.WorkflowRun, all bool, err error) {
	runs, more, err := v.underWay(ctx, "")
	if apierrors.IsForbidden(err) {
		runs, _, err = v.underWay(ctx, namespace)
		return runs, false, err
	}
	return runs, !more, err
}

// Stored is a run as the API server has it.
func (v *View) Stored(ctx context.Context, namespace, name string) (*v1alpha1.WorkflowRun, error) {
	stored := &v1alpha1.WorkflowRun{}
	if err := v.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, stored); err != nil {
		return nil, fmt.Errorf("run %s/%s: %w", namespace, name, err)
	}
	stored.APIVersion, stored.Kind = v1alpha1.GroupVersion.String(), "WorkflowRun"
	return stored, nil
}

// events are those of a run, the newest first.
func (v *View) events(ctx context.Context, run *v1alpha1.WorkflowRun) ([]corev1.Event, error) {
	list := &corev1.EventList{}
	err := v.Client.List(ctx, list, client.InNamespace(run.Namespace), client.Limit(eventPage),
		client.MatchingFields{"involvedObject.uid": string(run.UID)})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return facts.EventTime(&b).Compare(facts.EventTime(&a)) })
	return append([]corev1.Event{}, list.Items[:min(len(list.Items), maxEvents)]...), nil
}
