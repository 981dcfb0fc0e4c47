// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// namesAre has operators that are made from now on meet a policy on the names of runs. It sees a
// name, or what the API server would make of a prefix.
func (w *world) namesAre(allowed func(name string) bool) {
	w.funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		name := o.GetName()
		if name == "" {
			name = o.GetGenerateName() + "x7k2p"
		}
		if !allowed(name) {
			return apierrors.NewBadRequest("the policy takes no run of the name " + name)
		}
		return c.Create(ctx, o, opts...)
	}
}

// A policy may look at the names of runs: the dry run has one that a run of the schedule gets.
//
// mutation: dryRun that asks with another name than that of a slot.
func TestADryRunHasTheNameOfARun(t *testing.T) {
	for name, c := range map[string]struct {
		allowed func(name string) bool
		refused bool
	}{
		"one that its runs have":       {func(name string) bool { return strings.HasPrefix(name, "report-") }, false},
		"one that its runs never have": {func(name string) bool { return !strings.HasPrefix(name, "report-") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", nil)
			w.namesAre(c.allowed)
			r := w.operator()
			st := w.settle(r, s)
			if stalled := meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionStalled); stalled != c.refused {
				t.Errorf("before the first slot: %+v", st.Conditions)
			}
			if ready := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady); strings.Contains(ready.Message, schedule.RunName("report", w.slot(1))) {
				t.Errorf("the words have the name of one slot: %q", ready.Message)
			}
			w.at(1, 0)
			if st := w.settle(r, s); (st.Started == 0) != c.refused || (len(w.runs()) == 0) != c.refused {
				t.Errorf("%v, %d runs, %+v", reasons(st), len(w.runs()), st)
			}
		})
	}
}

// The API server says that a name is taken after all of admission has taken the run.
//
// mutation: dryRun that takes this for no answer.
func TestADryRunWhoseNameIsTakenIsAccepted(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	other := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: schedule.RunName("report", w.slot(1))}}
	other.Spec.Steps = []v1alpha1.Step{{Name: "work", Job: &v1alpha1.Job{Topic: "reports.daily"}}}
	if err := w.client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	asked := 0
	w.funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		err := c.Create(ctx, o, opts...)
		if asked++; err == nil && o.GetGenerateName() == "" {
			err = errors.New("a dry run of a name that is taken was accepted")
		}
		return err
	}
	w.clock.SetTime(w.slot(0)) // the next slot is the one whose name is taken
	r := w.operator()
	for range 2 {
		if st := w.settle(r, s); !meta.IsStatusConditionFalse(st.Conditions, v1alpha1.ConditionStalled) || asked != 1 {
			t.Errorf("after %d dry runs: %+v", asked, st.Conditions)
		}
	}
}
