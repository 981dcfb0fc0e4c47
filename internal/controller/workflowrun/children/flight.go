// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// flight is a creation under way. It may outlive its pass, and the lease of that: who creates the
// same child as another creates one, and none begins before its parent's status has its uid, which
// is written under a lease.
type flight struct {
	done   chan struct{} // closed once became and err are set
	became creation
	err    error // nothing is known
	left   atomic.Bool
}

// over says whether the creation is.
func (f *flight) over() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// begin begins the creation of a child, if there is a place for it while the pass waits. It says
// whether there was.
func (c *Children) begin(ctx, waits, while context.Context, st *State, parent *v1alpha1.WorkflowRun, held lease, child lifecycle.ChildToCreate) (has bool, err error) {
	leave, has := c.place(waits, while, st, parent)
	if !has {
		return false, nil
	}
	if err := held.Err(); err != nil { // it may have been lost meanwhile
		leave()
		return true, err
	}
	trace := ""
	if c.Traces != nil {
		trace = c.Traces(parent, child.Step)
	}
	f := &flight{done: make(chan struct{})}
	b := st.of[child.Name]
	b.flight = f
	st.put(child.Name, b)
	parent, child.Spec = about(parent), *child.Spec.DeepCopy()       // the pass goes on with its own
	own, stop := context.WithCancelCause(context.WithoutCancel(ctx)) // webhooks may take longer than a pass
	end := context.AfterFunc(while, func() { stop(context.Cause(while)) })
	go func() {
		defer stop(nil)
		defer end()
		f.became, f.err = c.create(own, parent, child, trace)
		leave()
		close(f.done)
		if f.left.Load() && c.Wake != nil {
			c.Wake(client.ObjectKeyFromObject(parent))
		}
	}()
	return true, nil
}

// about is what a creation has to know of the parent.
func about(parent *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: parent.Namespace, Name: parent.Name, UID: parent.UID, Annotations: maps.Clone(parent.Annotations)},
		Status:     &v1alpha1.WorkflowRunStatus{Tenant: parent.Status.Tenant},
	}
}

// patience is for how long a pass waits.
func (st *State) patience() time.Duration {
	for _, b := range st.of {
		if b.flight != nil && b.flight.left.Load() && !b.flight.over() {
			return briefly
		}
	}
	return patience
}

// begun says whether a creation is under way that this pass began.
func (st *State) begun() bool {
	for _, b := range st.of {
		if b.flight != nil && !b.flight.left.Load() && !b.flight.over() {
			return true
		}
	}
	return false
}

// await waits for the creations that this pass began. Those that are not over in time wake the
// parent. What an earlier pass left does so, too: no other pass keeps the lock for it.
func (st *State) await(ctx context.Context) {
	for _, b := range st.of {
		if b.flight == nil || b.flight.left.Load() {
			continue
		}
		select {
		case <-b.flight.done:
		case <-ctx.Done():
			b.flight.left.Store(true) // before land looks whether it is over
		}
	}
}

// land notes what became of creations that are over, and says whether anything did.
func (st *State) land(ctx context.Context, now time.Time) (news bool, failed error) {
	for name, b := range st.of {
		f := b.flight
		if f == nil || !f.over() {
			continue
		}
		b.flight = nil
		st.of[name] = b
		if f.err != nil {
			failed = errors.Join(failed, f.err)
			continue
		}
		st.note(ctx, name, f.became, now)
		news = true
	}
	return news, failed
}

// fullByNow says whether a creation under way turned out to be too much for a quota.
func (st *State) fullByNow() bool {
	for _, b := range st.of {
		if f := b.flight; f != nil && f.over() && f.err == nil && f.became.full {
			return true
		}
	}
	return false
}
