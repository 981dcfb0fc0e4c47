// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/revisions"
)

// errUnknownLocks is why a rebuild cannot go on beside a run that may not be marked.
var errUnknownLocks = errors.New("which locks it may have been granted before their data was lost is not known")

// errNewer is why a run is not marked that an operator of an older version leaves alone.
var errNewer = errors.New("it needs a newer operator, and this one does not write it")

// unmarked is a run that may not be marked, because of cause, with the locks that it may have been
// granted before the loss: what was granted may be written once the run may be changed. Others do
// not get these meanwhile. It is nil if the run is gone, or over; a suspended one
// was granted nothing.
//
// Errors: cause, if the locks are not known: no lock is given on doubt. Those of reading the run.
func unmarked(ctx context.Context, c *Controller, run fact, cause error) (*fact, []store.Holding, error) {
	o := &v1alpha1.WorkflowRun{}
	if err := c.live.Get(ctx, run.name, o); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	if o.UID != run.uid || o.Status != nil && o.Status.CompletedAt != nil {
		return nil, nil, nil
	}
	now := factOf(o)
	if o.Spec.Suspend { // nothing begins, and what it was granted before that edit cannot be written
		return &now, nil, nil
	}
	followed, err := withSteps(ctx, c, o)
	var granted []store.Holding
	if err == nil {
		granted, err = grantable(ctx, c, followed)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w; %w", cause, err)
	}
	c.log.Info("A run may not be changed: others do not get the locks that it may have been granted", "run", run.name.String(), "tickets", len(granted), "cause", cause.Error())
	return &now, granted, nil
}

// withSteps is a run with the steps and locks of its Workflow, if it follows one.
func withSteps(ctx context.Context, c *Controller, run *v1alpha1.WorkflowRun) (*v1alpha1.WorkflowRun, error) {
	if run.Spec.WorkflowRef == nil {
		return run, nil
	}
	if run.Status == nil || run.Status.Workflow == nil {
		return nil, fmt.Errorf("%w: its status names no revision of its Workflow", errUnknownLocks)
	}
	kept := revisions.Store{Live: c.live}
	content, _, err := kept.Load(ctx, run.Namespace, *run.Status.Workflow)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnknownLocks, err)
	}
	return content.Effective(run, nil), nil
}

// grantable is what a run may have been granted that its status does not say, without fences: all
// locks of what may begin, is not over and holds nothing. A lock with a name that no lock can have
// was never granted.
func grantable(ctx context.Context, c *Controller, run *v1alpha1.WorkflowRun) (all []store.Holding, err error) {
	f := factOf(run)
	note := func(part string, requests []v1alpha1.LockRequest) {
		if p := PartOf(run, part); err != nil || len(requests) == 0 || p.Over || len(p.Holds) > 0 {
			return
		}
		h := store.Holding{Ticket: store.Ticket{ID: TicketOf(f.uid, part), Run: f.name.String(), Tree: f.tree, Version: f.version}}
		h.Locks, err = plain(run.Namespace, requests)
		all = append(all, h)
	}
	note("", run.Spec.Locks)
	for _, s := range mayBegin(run) {
		note(s.Name, s.Locks)
		if s.ForEach == nil || len(s.ForEach.Locks) == 0 || PartOf(run, s.Name).Over {
			continue
		}
		before := len(all)
		note(s.Name+"/"+nextItem(run, s.Name), s.ForEach.Locks)
		for _, h := range all[before:] {
			err = errors.Join(err, c.whole(ctx, h.Locks))
		}
	}
	return slices.DeleteFunc(all, func(h store.Holding) bool { return len(h.Locks) == 0 }), err
}

// nextItem is an item of a step that has not begun: it stands for all that may have been granted
// their locks.
func nextItem(run *v1alpha1.WorkflowRun, step string) string {
	for _, s := range stepsOf(run) {
		if s.Name == step && s.ForEach != nil {
			return strconv.Itoa(int(s.ForEach.Begun))
		}
	}
	return "0"
}

// whole takes all permits of semaphores: any number of items may have been granted some.
func (c *Controller) whole(ctx context.Context, held []store.Hold) error {
	for i := range held {
		if strings.HasPrefix(held[i].Name, mutexPrefix) {
			continue
		}
		sem, err := c.semaphore(ctx, semaphoreOf(held[i].Name))
		if err != nil {
			return err
		}
		if sem != nil {
			held[i].Permits = max(held[i].Permits, int(sem.Spec.Permits))
		}
	}
	return nil
}

// lockText is what a key, or the name of a mutex, has to be.
var lockText = regexp.MustCompile(`^[A-Za-z0-9._:/@+=-]{1,128}$`)

// plain are locks whose names are no matter of expressions; none if one of them cannot be had.
func plain(namespace string, requests []v1alpha1.LockRequest) (all []store.Hold, err error) {
	for _, r := range requests {
		name := r.Semaphore + "/" + r.Key
		if r.Mutex != "" {
			name = mutexPrefix + namespace + "/" + r.Mutex
		}
		if strings.Contains(name, "$") {
			return nil, fmt.Errorf("%w: %.140q is an expression", errUnknownLocks, name)
		}
		if text := r.Mutex + r.Key; text != "" && !lockText.MatchString(text) {
			return nil, nil
		}
		h := store.Hold{Name: name, Permits: 1}
		if r.Permits != nil {
			h.Permits = int(*r.Permits)
		}
		all = append(all, h)
	}
	return all, nil
}
