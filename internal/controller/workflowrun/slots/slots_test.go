// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// oneSlot is a quota with one slot.
type oneSlot struct {
	taken    bool // by another run
	released int
}

func (q *oneSlot) Admit(context.Context, *v1alpha1.WorkflowRun, string, policy.Effective) (store.Answer, error) {
	return store.Answer{Admitted: !q.taken, Limit: 1}, nil
}

func (q *oneSlot) Release(context.Context, types.UID, string, string) error {
	q.released++
	return nil
}

func (q *oneSlot) Forget(types.UID) {}

// A run that waits for its locks gives its slot back, but for one that lost its turn in their line
// before, as there was no slot, once it is first there again. So no more slots are idle than there
// are locks.
//
// mutations: Ask that notes who was in no line, or who gets a slot, and AwaitLocks that does not
// look who is first, or that keeps nothing, make this fail.
func TestARunThatLostItsTurnForWantOfASlotKeepsTheNext(t *testing.T) {
	for name, tc := range map[string]struct {
		waits, taken bool // for locks, as it asked before; and whether there was a slot
		first        bool // in line, now that it has a slot
		keeps        bool
	}{
		"lost its turn, and is first":     {waits: true, taken: true, first: true, keeps: true},
		"lost its turn, and is not first": {waits: true, taken: true},
		"had its slot":                    {waits: true, first: true},
		"was in no line":                  {taken: true, first: true},
	} {
		t.Run(name, func(t *testing.T) {
			q, st := &oneSlot{taken: tc.taken}, &State{}
			s := &Slots{Quota: q}
			run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: &v1alpha1.WorkflowRunStatus{Admission: &v1alpha1.AdmissionStatus{}}}
			ask := func() {
				if _, err := s.Ask(t.Context(), st, run, "acme", policy.Effective{Name: "batch"}); err != nil {
					t.Fatal(err)
				}
			}
			if tc.waits {
				run.Status.Admission.LockWait = &v1alpha1.LocksWait{Lock: "mutex:ns/x"}
			}
			ask()
			q.taken, run.Status.Admission.LockWait = false, nil
			ask()
			if err := s.AwaitLocks(t.Context(), st, run.UID, tc.first); err != nil {
				t.Fatal(err)
			}
			if keeps := q.released == 0 && st.Holding != nil; keeps != tc.keeps {
				t.Errorf("keeps its slot: %v", keeps)
			}
		})
	}
}
