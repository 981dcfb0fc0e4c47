// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

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
	o, err := c.marker.Doubts.Read(ctx, c.live, c.client, run.name, run.uid)
	if err != nil || o == nil {
		return nil, nil, err
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
// locks of what may begin, is not over and holds nothing.
func grantable(ctx context.Context, c *Controller, run *v1alpha1.WorkflowRun) (all []store.Holding, err error) {
	f := factOf(run)
	note := func(part string, requests []v1alpha1.LockRequest, times int) {
		if p := PartOf(run, part); err != nil || times <= 0 || p.Over || len(p.Holds) > 0 {
			return
		}
		h := store.Holding{Ticket: store.Ticket{ID: TicketOf(f.uid, part), Run: f.name.String(), Tree: f.tree, Version: f.version}}
		if h.Locks, err = c.mayHold(ctx, run.Namespace, requests, times); len(h.Locks) > 0 {
			all = append(all, h)
		}
	}
	note("", run.Spec.Locks, 1)
	for _, s := range mayBegin(run) {
		note(s.Name, s.Locks, 1)
		if s.ForEach != nil && !PartOf(run, s.Name).Over {
			note(s.Name+"/"+nextItem(run, s.Name), s.ForEach.Locks, f.itemsOf(&s))
		}
	}
	return all, err
}

const (
	// mostLocked is how many items of a run may have locks, or wait for them, at a time.
	mostLocked = 50
	// usualParallel is how many items of a step are under way where it does not say.
	usualParallel = 10
)

// itemsOf is how many items of a step may have been granted locks that status does not name. What
// a newer operator grants at a time nobody knows here.
func (f fact) itemsOf(s *v1alpha1.Step) int {
	if f.unread() {
		return math.MaxInt32
	}
	most := min(int(cmp.Or(s.ForEach.MaxParallel, usualParallel)), mostLocked)
	if f.status == nil {
		return most
	}
	st := stepNamed(f.status.Steps, s.Name)
	if st == nil || st.ForEach == nil {
		return most
	}
	left := int(st.ForEach.Total - st.ForEach.Succeeded - st.ForEach.Failed)
	for _, l := range st.ForEach.Locks {
		if len(l.Locks) > 0 {
			left--
		}
	}
	return min(most, left)
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

// lockText is what a key, or the name of a mutex, has to be.
var lockText = regexp.MustCompile(`^[A-Za-z0-9._:/@+=-]{1,128}$`)

// mayHold are the locks that a part of a run may have been granted, for so many items: none if one
// of them cannot be had, as its Semaphore says, or by its name.
//
// Errors: errUnknownLocks, if they can be had and the name of one is a matter of expressions. Those
// of reading Semaphores.
func (c *Controller) mayHold(ctx context.Context, namespace string, requests []v1alpha1.LockRequest, times int) ([]store.Hold, error) {
	var all []store.Hold
	var unknown error
	for i := range requests {
		r := requestOf(namespace, requests[i])
		limit, err := c.limitFor(ctx, namespace, r)
		if err != nil || int(r.Permits) > limit {
			return nil, err
		}
		text := requests[i].Mutex + requests[i].Key
		switch {
		case strings.Contains(text, "$"):
			unknown = fmt.Errorf("%w: %.140q is an expression", errUnknownLocks, r.Name)
		case text != "" && !lockText.MatchString(text):
			return nil, nil
		}
		all = append(all, store.Hold{Name: r.Name, Permits: min(limit, int(r.Permits)*times)})
	}
	if unknown != nil {
		return nil, unknown
	}
	return all, nil
}

// limitFor is how many permits of a lock a namespace may have; 0: its Semaphore is not for it, or
// is gone. It does not depend on the key.
func (c *Controller) limitFor(ctx context.Context, namespace string, r Request) (int, error) {
	w, _, err := c.want(ctx, namespace, r)
	if _, shut := errors.AsType[*UnusableError](err); shut {
		return 0, nil
	}
	return w.Limit, err
}

// requestOf is a request without a look at expressions.
func requestOf(namespace string, l v1alpha1.LockRequest) Request {
	r := Request{Name: l.Semaphore + "/" + l.Key, Permits: 1}
	if l.Mutex != "" {
		r.Name = mutexPrefix + namespace + "/" + l.Mutex
	}
	if l.Permits != nil {
		r.Permits = *l.Permits
	}
	return r
}
