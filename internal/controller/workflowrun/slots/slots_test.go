// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// oneSlot is a quota with one slot.
type oneSlot struct {
	taken    bool  // by another run
	failing  error // why there is no answer
	released int
}

func (q *oneSlot) Admit(context.Context, *v1alpha1.WorkflowRun, string, policy.Effective) (store.Answer, error) {
	return store.Answer{Admitted: !q.taken, Limit: 1}, q.failing
}

func (q *oneSlot) Release(context.Context, types.UID, string, string) error {
	q.released++
	return nil
}

func (q *oneSlot) Forget(types.UID) {}

// A run that waits for its locks gives its slot back, but for one that lost its turn in their line
// before, as there was no slot, or no word of one, once it is first there again.
//
// mutations: Wrote that notes who was in no line, who gets a slot, who keeps its place or who was
// suspended, or that looks at answers, and AwaitLocks that does not look who is first, or that
// keeps nothing, make this fail.
func TestARunThatLostItsTurnForWantOfASlotKeepsTheNext(t *testing.T) {
	waits := &v1alpha1.LocksWait{Lock: "mutex:ns/x"}
	busy := &store.BusyError{}
	for name, tc := range map[string]struct {
		was, now  *v1alpha1.LocksWait // in status, before the first answer and after it
		taken     bool                // whether there was a slot
		failing   error
		suspended bool
		first     bool // in line, now that it has a slot
		keeps     bool
	}{
		"lost its turn, and is first":                    {was: waits, taken: true, first: true, keeps: true},
		"lost its turn at a gate that was busy":          {was: waits, failing: busy, first: true, keeps: true},
		"lost its turn at a gate that was being rebuilt": {was: waits, failing: &store.RebuildingError{}, first: true, keeps: true},
		"lost its turn, and is not first":                {was: waits, taken: true},
		"kept its place, without an answer for a moment": {was: waits, now: waits, failing: &AskedError{}, first: true},
		"had its slot":   {was: waits, now: waits, first: true},
		"was in no line": {taken: true, first: true},
		"was suspended":  {was: waits, taken: true, suspended: true, first: true},
	} {
		t.Run(name, func(t *testing.T) {
			q, st := &oneSlot{taken: tc.taken, failing: tc.failing}, &State{}
			s := &Slots{Quota: q}
			run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: &v1alpha1.WorkflowRunStatus{Admission: &v1alpha1.AdmissionStatus{LockWait: tc.was}}}
			if _, err := s.Ask(t.Context(), st, run, "acme", policy.Effective{Name: "batch"}); !errors.Is(err, tc.failing) {
				if _, asked := errors.AsType[*AskedError](tc.failing); !asked {
					t.Fatal(err)
				}
			}
			next := run.DeepCopy()
			next.Status.Admission.LockWait, next.Spec.Suspend = tc.now, tc.suspended
			s.Wrote(st, run, next)
			q.taken, q.failing, q.released, next.Spec.Suspend = false, nil, 0, false
			if _, err := s.Ask(t.Context(), st, next, "acme", policy.Effective{Name: "batch"}); err != nil {
				t.Fatal(err)
			}
			if err := s.AwaitLocks(t.Context(), st, run.UID, tc.first); err != nil {
				t.Fatal(err)
			}
			if keeps := q.released == 0 && st.Holding != nil; keeps != tc.keeps {
				t.Errorf("keeps its slot: %v", keeps)
			}
		})
	}
}
