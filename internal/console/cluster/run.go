// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const (
	maxEvents  = 100
	eventPage  = 500
	eventPages = 20
)

// Run reads a run, and shows it. What does not follow from each other is asked for at the same
// time: a page waits for the slowest answer, and not for the sum of all. A run that waits for
// others is shown with all runs under way, as UnderWay does. All but the run itself has a third of
// the time: what cannot be read then is Missing, and the page has the rest.
func (v *View) Run(ctx context.Context, namespace, name, operator string, show func(*facts.Run)) error {
	stored, err := v.Stored(ctx, namespace, name)
	if err != nil {
		return err
	}
	r, until := &facts.Run{Stored: stored}, aThird(ctx)
	if waits(stored) {
		early, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		leave, err := v.shared.turns.enter(early, v.User)
		switch {
		case err == nil:
			defer leave()
		case ctx.Err() != nil:
			return err
		}
		r.Unread = err
	}
	if err := v.fill(ctx, r, operator, until); err != nil {
		return err
	}
	show(r)
	return nil
}

// aThird is when a third of the time that is left has passed.
func aThird(ctx context.Context) time.Time {
	now := time.Now() //nolint:forbidigo // the deadline of a context is of this clock
	end, ok := ctx.Deadline()
	if !ok {
		end = now.Add(time.Minute)
	}
	return now.Add(end.Sub(now) / 3)
}

// waits says whether a run waits in a queue, or for locks.
func waits(run *v1alpha1.WorkflowRun) bool {
	return run.Status != nil && run.Status.CompletedAt == nil && (run.Status.Phase == v1alpha1.RunQueued || runview.WaitsForLocks(run))
}

// beside are the questions beside a run, which are asked at the same time.
type beside struct {
	group *errgroup.Group
	until time.Time

	mu      sync.Mutex
	missing []error
}

// ask asks a question until then. What has no answer is told, unless the page itself is over: the
// rest is shown without it.
func (b *beside) ask(ctx context.Context, question func(context.Context) error) {
	b.group.Go(func() error {
		early, cancel := context.WithDeadline(ctx, b.until)
		defer cancel()
		err := question(early)
		if err == nil || ctx.Err() != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.missing = append(b.missing, err)
		return nil
	})
}

func (v *View) fill(ctx context.Context, r *facts.Run, operator string, until time.Time) error {
	stored := r.Stored
	group, ctx := errgroup.WithContext(ctx)
	b := &beside{group: group, until: until}
	b.ask(ctx, func(ctx context.Context) error {
		var noSteps, noKids error
		r.Run, noSteps = reads.WithSteps(ctx, v.Client, stored)
		r.Children, noKids = reads.Children(ctx, v.Client, r.Run)
		return errors.Join(noSteps, noKids)
	})
	b.ask(ctx, func(ctx context.Context) (err error) { r.Policies, err = reads.Policies(ctx, v.Client); return err })
	b.ask(ctx, func(ctx context.Context) error { r.NoEvents = v.events(ctx, r); return r.NoEvents })
	v.under(ctx, b, r, operator)
	err := group.Wait()
	r.Missing = b.missing
	return err
}

// under adds what there is to know of a run that has not ended: who is in line, and who drives it.
func (v *View) under(ctx context.Context, b *beside, r *facts.Run, operator string) {
	stored := r.Stored
	if stored.Status != nil && stored.Status.CompletedAt != nil {
		return
	}
	if waits(stored) && r.Unread == nil {
		b.group.Go(func() error { return v.see(ctx, r, b.until) })
		b.ask(ctx, func(ctx context.Context) error {
			all, more, err := v.semaphores(ctx, semaphorePages)
			if !more {
				r.Semaphores = all
			}
			return err
		})
	}
	b.group.Go(func() error {
		early, cancel := context.WithDeadline(ctx, b.until)
		defer cancel()
		if owner, err := reads.Owners(early, v.Client, operator, string(stored.UID)); err == nil { // most users may not see it
			r.Owner = owner
		}
		return nil
	})
}

// see adds the runs under way, or why they could not be read until then.
func (v *View) see(ctx context.Context, r *facts.Run, until time.Time) error {
	early, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	others, all, err := v.others(early, r.Stored.Namespace)
	switch {
	case err == nil:
		r.Others, r.All = others, all
		if runview.WaitsForLocks(r.Stored) {
			r.Tops = reads.Tops(early, v.Client, others)
		}
	case ctx.Err() != nil:
		return err
	default:
		r.Unread = err
	}
	return nil
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

// events adds those of a run, the newest first. The API server gives them by name, which is about
// the oldest first: the newest are on the last page.
func (v *View) events(ctx context.Context, r *facts.Run) error {
	all, next, read := []corev1.Event{}, "", 0
	for range eventPages {
		of := v.rows.Get().AbsPath("api", "v1", "namespaces", r.Stored.Namespace, "events").Param("limit", strconv.Itoa(eventPage)).Param("continue", next).
			Param("fieldSelector", fields.OneTermEqualSelector("involvedObject.uid", string(r.Stored.UID)).String())
		var err error
		next, err = stream(ctx, of, func(e *corev1.Event) bool {
			if all, read = append(all, briefEvent(e)), read+1; len(all) == 2*maxEvents {
				all = newest(all)
			}
			return true
		})
		switch {
		case apierrors.IsForbidden(err):
			return nil
		case err != nil:
			return fmt.Errorf("list events: %w", err)
		}
		if next == "" {
			break
		}
	}
	r.Events, r.EventsLeft, r.EventsUnread = newest(all), read > maxEvents, next != ""
	return nil
}

// newest are the newest events, the newest first. The others are not kept.
func newest(all []corev1.Event) []corev1.Event {
	slices.SortStableFunc(all, func(a, b corev1.Event) int { return facts.EventTime(&b).Compare(facts.EventTime(&a)) })
	return append([]corev1.Event{}, all[:min(len(all), maxEvents)]...)
}
