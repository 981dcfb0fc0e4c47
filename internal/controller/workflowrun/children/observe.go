// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

// Relatives are the parent and the children of a run.
type Relatives struct {
	Parent   *lifecycle.Parent          // that the run claims; nil: none
	Children map[string]lifecycle.Child // under way, by name
	// RetryAt is when a creation that was put off is due; zero: none was.
	RetryAt time.Time
}

// Observe reads the parent that the run claims, and its child runs under way.
func (c *Children) Observe(ctx context.Context, st *State, run *v1alpha1.WorkflowRun) (Relatives, error) {
	var rel Relatives
	parent, err := c.Parent(ctx, run)
	if err != nil {
		return rel, err
	}
	rel.Parent = parent
	st.edited(run)
	if _, err := st.land(ctx, c.Clock.Now()); err != nil { // as nothing is known, it is due again
		log.FromContext(ctx).V(1).Info("A child run is created again", "cause", err.Error())
	}
	if len(st.due(run, c.Clock.Now())) == 0 {
		st.LeaveLine()
	}
	list := lifecycle.Children(run)
	rel.Children = make(map[string]lifecycle.Child, len(list))
	left := make(map[string]creation, len(list))
	for _, s := range list {
		name := s.ChildRun.Name
		if s.ChildRun.UID == "" {
			b := st.of[name]
			left[name] = b
			fact, at := st.seen(&b, c.Clock.Now())
			rel.Children[name], rel.RetryAt = fact, pacing.Earliest(rel.RetryAt, at)
			continue
		}
		child, err := c.relative(ctx, run.Namespace, name, s.ChildRun.UID)
		if err != nil {
			return rel, fmt.Errorf("read child run: %w", err)
		}
		rel.Children[name] = lifecycle.Child{State: lifecycle.ChildGone}
		if child != nil {
			rel.Children[name] = facts.SeenChild(child)
		}
	}
	st.of = left
	return rel, nil
}

// Parent reads the parent that the run claims; nil: it claims none.
func (c *Children) Parent(ctx context.Context, run *v1alpha1.WorkflowRun) (*lifecycle.Parent, error) {
	claim := run.ClaimsParent()
	if claim == nil {
		return nil, nil //nolint:nilnil // that it claims none is an answer
	}
	parent, err := c.relative(ctx, run.Namespace, claim.Name, claim.UID)
	if err != nil {
		return nil, fmt.Errorf("read parent run: %w", err)
	}
	return facts.SeenParent(run, parent), nil
}

// AnyUnderWay says whether a run below a run, at any level, has not ended. One that status names
// without a uid was never let in, so it has nothing to clean up.
func (c *Children) AnyUnderWay(ctx context.Context, run *v1alpha1.WorkflowRun) (bool, error) {
	return c.UnderWay(ctx, run.Namespace, confirmed(run))
}

// UnderWay is AnyUnderWay of these runs, which have a uid, and those below them.
func (c *Children) UnderWay(ctx context.Context, namespace string, below []v1alpha1.ChildRunStatus) (bool, error) {
	seen := map[string]bool{} // by uid: what a status says need not be a tree
	for len(below) > 0 {
		named := below[0]
		below = below[1:]
		if seen[named.UID] {
			continue
		}
		seen[named.UID] = true
		child, err := c.relative(ctx, namespace, named.Name, named.UID)
		switch {
		case err != nil:
			return false, fmt.Errorf("read child run: %w", err)
		case child == nil:
		case !lifecycle.Finished(child):
			return true, nil
		default:
			below = append(below, confirmed(child)...)
		}
	}
	return false, nil
}

// confirmed are the child runs that status names with their uid, ended ones included.
func confirmed(run *v1alpha1.WorkflowRun) []v1alpha1.ChildRunStatus {
	var all []v1alpha1.ChildRunStatus
	for i := range run.Status.Steps {
		if child := run.Status.Steps[i].ChildRun; child != nil && child.UID != "" {
			all = append(all, *child)
		}
	}
	return all
}

// relative reads another run of the namespace; nil: it does not exist. That is decided on a live
// read only: what the cache has not seen may be new. An owner reference may have a name that no
// object can have: to ask for it is an error, each time.
func (c *Children) relative(ctx context.Context, namespace, name, uid string) (*v1alpha1.WorkflowRun, error) {
	if len(validation.NameIsDNSSubdomain(name, false)) > 0 {
		return nil, nil //nolint:nilnil // none has such a name
	}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	run := &v1alpha1.WorkflowRun{}
	err := c.Client.Get(ctx, key, run, client.UnsafeDisableDeepCopy) // facts are read of it; a parent has up to 200 of them, in each pass
	if err == nil && string(run.UID) == uid {
		return run, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	run = &v1alpha1.WorkflowRun{}
	err = c.Live.Get(ctx, key, run)
	switch {
	case err == nil && string(run.UID) == uid:
		return run, nil
	case client.IgnoreNotFound(err) != nil:
		return nil, err
	default:
		return nil, nil //nolint:nilnil // that it is gone is an answer
	}
}
