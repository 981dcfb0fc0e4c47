// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// listPage is the number of runs per page of a live list.
const (
	listPage = 500
	// runsPage is a page of whole runs, each of up to 1.5 MiB.
	runsPage = 50
)

// fact is what quotas have to know of a run.
type fact struct {
	uid    types.UID
	name   types.NamespacedName
	class  string
	tenant string // pinned in status; "": not yet
	key    string // idempotency key; "": none

	child      bool // claims to be a child run: it has a slot of its root, or will never have any
	finished   bool
	refused    bool // ended because another run has its idempotency key
	suspended  bool // or left alone, because it needs a newer operator
	stopped    bool // suspended: nobody decides to let it in, as it is
	newer      bool // needs a newer operator: this one writes nothing to it, and it keeps its slot
	priority   int32
	created    time.Time
	admittedAt time.Time // zero: not admitted
	policy     string    // under which it was admitted
	forLocks   bool      // waits for its locks, and needs no place in the queue meanwhile
	keptUntil  time.Time // until when it keeps its slot at most while it does; zero: it keeps none
}

func factOf(run *v1alpha1.WorkflowRun) fact {
	f := fact{
		uid: run.UID, name: client.ObjectKeyFromObject(run), class: run.Spec.WorkloadClass, key: run.Spec.IdempotencyKey,
		suspended: run.Spec.Suspend || run.NeedsNewer() > 0, child: run.ClaimsParent() != nil,
		stopped: run.Spec.Suspend, newer: run.NeedsNewer() > 0, priority: run.Spec.Priority, created: run.CreationTimestamp.Time,
	}
	st := run.Status
	if st == nil {
		return f
	}
	f.tenant, f.finished = st.Tenant, st.CompletedAt != nil
	if st.Admission != nil {
		f = f.with(st.Admission)
	}
	if end := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionSucceeded); f.finished && end != nil {
		f.refused = end.Reason == v1alpha1.ReasonDuplicateRun || end.Reason == v1alpha1.ReasonIdempotencyConflict
	}
	return f
}

// with adds what status says of the admission.
func (f fact) with(a *v1alpha1.AdmissionStatus) fact {
	if a.AdmittedAt != nil {
		f.admittedAt, f.policy = a.AdmittedAt.Time, a.Policy
	}
	f.forLocks = a.LockWait != nil
	if !f.admitted() && a.SlotExpiresAt != nil {
		f.keptUntil = a.SlotExpiresAt.Time
	}
	return f
}

// admitted says whether the run was let in. That never changes back, nor does the policy under
// which it was.
func (f fact) admitted() bool { return !f.admittedAt.IsZero() }

// under says whether the run has to have a slot of a key.
func (f fact) under(at store.Key) bool {
	return f.admitted() && !f.finished && !f.child && at.Policy != "" && f.policy == at.Policy && (at.Pool() || f.tenant == at.Tenant)
}

// pending says whether the run may still be admitted by a quota some day.
func (f fact) pending() bool { return !f.admitted() && !f.finished && !f.child }

// waits says whether the run is to be admitted as soon as there is room.
func (f fact) waits() bool { return f.pending() && !f.suspended }

// older orders by admission.
func (f fact) older(g fact) bool {
	return cmp.Or(f.admittedAt.Compare(g.admittedAt), cmp.Compare(f.uid, g.uid)) < 0
}

// view is what there is according to the cache.
type view struct {
	runs     map[types.UID]fact
	policies map[string]policy.Effective // by name
	classes  map[string]string           // class -> name of its policy
}

// waitsAt says whether a run that is not admitted would be admitted under that key.
func (v *view) waitsAt(f fact, at store.Key) bool {
	return f.waits() && v.classes[f.class] == at.Policy && (at.Pool() || f.tenant == at.Tenant || f.tenant == "")
}

// look reads the cache. Nothing is copied but what is needed; the objects are the cache's own.
func (k *Controller) look(ctx context.Context) (*view, error) {
	var policies v1alpha1.LockPolicyList
	if err := k.client.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list lock policies: %w", err)
	}
	var list v1alpha1.WorkflowRunList
	if err := k.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	v := &view{runs: make(map[types.UID]fact, len(list.Items)), policies: map[string]policy.Effective{}, classes: map[string]string{}}
	for i := range policies.Items {
		v.policies[policies.Items[i].Name] = policy.Of(&policies.Items[i])
	}
	owners := policy.OwnersOf(policies.Items)
	for i := range list.Items {
		f := factOf(&list.Items[i])
		v.runs[f.uid] = f
		v.classes[f.class] = owners.Of(f.class)
	}
	return v, nil
}

// cached is a run as the cache has it; nil if it has none of that name.
func (k *Controller) cached(ctx context.Context, name types.NamespacedName) (*fact, error) {
	run := &v1alpha1.WorkflowRun{}
	if err := k.client.Get(ctx, name, run, client.UnsafeDisableDeepCopy); err != nil { // it is read only, and once for each that is woken
		if client.IgnoreNotFound(err) == nil {
			return nil, nil //nolint:nilnil // that there is none is an answer
		}
		return nil, fmt.Errorf("read run %s: %w", name, err)
	}
	f := factOf(run)
	return &f, nil
}

// read is a run as the API server has it; nil if there is none of that name, and the cache does not
// have the one with that UID either. See resyncs.Read.
func (k *Controller) read(ctx context.Context, name types.NamespacedName, uid types.UID) (*fact, error) {
	return factOrNone(resyncs.Read(ctx, k.live, k.client, name, uid))
}

// readSurely is read, for what a doubt of one run would end for others: it waits for the watch.
func readSurely(ctx context.Context, k *Controller, name types.NamespacedName, uid types.UID) (*fact, error) {
	return factOrNone(k.marker.Doubts.Read(ctx, k.live, k.client, name, uid))
}

func factOrNone(run *v1alpha1.WorkflowRun, err error) (*fact, error) {
	if err != nil || run == nil {
		return nil, err
	}
	f := factOf(run)
	return &f, nil
}

// liveUIDs lists the UIDs of all runs live.
func (k *Controller) liveUIDs(ctx context.Context) (map[types.UID]bool, error) {
	all := map[types.UID]bool{}
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkflowRunList"))
	for {
		if err := k.live.List(ctx, page, client.Limit(listPage), client.Continue(page.Continue)); err != nil {
			return nil, fmt.Errorf("list runs live: %w", err)
		}
		for i := range page.Items {
			all[page.Items[i].UID] = true
		}
		if page.Continue == "" {
			return all, nil
		}
	}
}
