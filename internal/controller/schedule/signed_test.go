// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// signature is a policy on who made the schedule of a run, as operators meet it that are made from
// now on.
type signature struct {
	taken string // whose runs it takes
	away  bool   // nobody answers
	asked int    // dry runs
}

func (w *world) signedBy(name string) *signature {
	p := &signature{taken: name}
	w.funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0 {
			p.asked++
		}
		switch by := o.GetAnnotations()[v1alpha1.AnnotationCreatedBy]; {
		case p.away:
			return apierrors.NewInternalError(errors.New("no answer"))
		case by != p.taken:
			return apierrors.NewBadRequest("the policy takes no run of '" + by + "'")
		}
		return c.Create(ctx, o, opts...)
	}
	return p
}

func (w *world) sign(s *v1alpha1.Schedule, by string) {
	w.t.Helper()
	w.edit(s, func(s *v1alpha1.Schedule) { s.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: by} })
}

// A policy refuses the runs of a schedule that nobody signed. Once it is signed, which makes no
// other generation, its next slot starts.
//
// mutations: known, or dryRun, that takes an answer about another signature for one, and aboutOf
// that makes another of the same one each time, make this fail.
func TestAScheduleThatIsSignedAfterARefusalStartsItsNextSlot(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	policy := w.signedBy("jane")
	r := w.operator()
	w.at(1, -5)
	if st := w.settle(r, s); !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionStalled) {
		t.Errorf("before it is signed: %+v", st.Conditions)
	}
	w.at(1, -3)
	w.sign(s, "jane")
	if st := w.settle(r, s); !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("once it is signed: %+v", st.Conditions)
	}
	for range 3 {
		w.settle(r, s)
	}
	if policy.asked != 2 {
		t.Errorf("%d dry runs, want one for each signature", policy.asked)
	}
	w.at(1, 0)
	if st := w.settle(r, s); st.Started != 1 || len(w.runs()) != 1 {
		t.Errorf("%d started, %v, %d runs", st.Started, reasons(st), len(w.runs()))
	}
}

// A name that a policy forbids is found at once, as what is wrong with an edit of the template is:
// the schedule is held, and says so before its next slot.
//
// mutation: answered that takes what was said of another signature for an answer makes this fail.
func TestAScheduleThatIsSignedByANameThatIsForbiddenIsHeld(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: "jane"}
	})
	w.signedBy("jane")
	r := w.operator()
	w.at(1, -5)
	w.settle(r, s)
	w.at(1, -3)
	w.sign(s, "mallory")
	if st := w.settle(r, s); !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionStalled) {
		t.Errorf("signed by another: %+v", st.Conditions)
	}
	w.at(1, 0)
	if st := w.settle(r, s); st.Started != 0 || len(reasons(st)) != 1 || reasons(st)[0] != "TemplateRefused x 1" {
		t.Errorf("%d started, %v", st.Started, reasons(st))
	}
}

// What was said of runs that nobody signed is not believed of those that somebody did: while no
// answer comes, slots are tried.
//
// mutation: dryRun that goes on with the answer about another signature makes this fail.
func TestARefusalOfAnotherSignatureHoldsNothing(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	policy := w.signedBy("jane")
	r := w.operator()
	w.at(1, -5)
	w.settle(r, s)
	w.at(1, -3)
	w.sign(s, "jane")
	policy.away = true
	st := w.settle(r, s)
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionStalled); c == nil || c.Status != "Unknown" {
		t.Errorf("without an answer: %+v", c)
	}
	w.at(1, 0)
	w.settle(r, s)
	policy.away = false
	w.clock.SetTime(w.clock.Now().Add(createPause))
	if st := w.settle(r, s); st.Started != 1 {
		t.Errorf("%d started, %v", st.Started, reasons(st))
	}
}

// That a schedule was signed at all makes another, too, though with no name.
//
// mutation: aboutOf that takes an empty name for none makes this fail.
func TestASignatureIsAnotherWhereItsRunsDiffer(t *testing.T) {
	s, _ := stopping("")
	unsigned := aboutOf(s)
	all := map[about]string{unsigned: "nobody"}
	for _, by := range []string{"", "jane", "mallory"} {
		s.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: by}
		if other, met := all[aboutOf(s)]; met {
			t.Errorf("%q is taken for %s", by, other)
		}
		all[aboutOf(s)] = by
	}
	s.Annotations[v1alpha1.AnnotationCreatedBy] = "jane"
	if all[aboutOf(s)] != "jane" {
		t.Error("another one each time")
	}
}

// The words of a failure are kept for a minute, as those of the next may differ in a port only. Not
// so those that name who signed the schedule before.
//
// mutation: blame that looks at the generation alone makes this fail.
func TestWordsAboutAnotherSignatureAreNotKept(t *testing.T) {
	s, _ := stopping("")
	mem, now := newMemory(s.UID), time.Unix(2000, 0)
	mem.blame(cause{words: "nobody signed it", of: aboutOf(s), at: now})
	s.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: "mallory"}
	mem.blame(cause{words: "mallory may not", of: aboutOf(s), at: now.Add(time.Second)})
	if mem.stuck.words != "mallory may not" {
		t.Errorf("%q", mem.stuck.words)
	}
}
