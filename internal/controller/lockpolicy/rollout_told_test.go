// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/console/views"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// says fails the test unless these events were written. Names of candidates are CANDIDATE
// in them.
func (w *world) says(want ...string) {
	w.t.Helper()
	var got []string
	for len(w.told.Events) > 0 {
		e := <-w.told.Events
		if r := w.get(polled).Status.Rollout; r != nil && r.Candidate != nil {
			e = strings.ReplaceAll(e, r.Candidate.Name, "CANDIDATE")
		}
		got = append(got, e)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("events (-want +got):\n%s", diff)
	}
}

// ready fails the test unless the condition of the current generation is so, and returns it.
func (w *world) ready(status metav1.ConditionStatus, reason string) metav1.Condition {
	w.t.Helper()
	c := meta.FindStatusCondition(w.status(polled).Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != w.get(polled).Generation {
		w.t.Fatalf("condition %+v; want %s, %s", c, status, reason)
	}
	return *c
}

// unkept fails the test unless the policy says of the current generation that a revision is
// refused, and is Ready all the same. It returns what it says.
func (w *world) unkept() string {
	w.t.Helper()
	w.ready(metav1.ConditionTrue, v1alpha1.ReasonReady)
	p := w.get(polled)
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRevisionsKept)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonRevisionNotKept || c.ObservedGeneration != p.Generation {
		w.t.Fatalf("condition %+v", c)
	}
	if got := seenByTools(w.t, p); got.Status != kstatus.CurrentStatus {
		w.t.Errorf("tools see it as %s: %s", got.Status, got.Message)
	}
	page := views.PoliciesOf([]v1alpha1.LockPolicy{*p}, nil, facts.Rows{}, w.clock.Now())
	if one := page.Policies[0]; one.Bad || one.Ready != "in force" {
		w.t.Errorf("the console says %+v", one)
	}
	return c.Message
}

// kept fails the test if the policy says that a revision is refused.
func (w *world) kept() {
	w.t.Helper()
	if c := meta.FindStatusCondition(w.status(polled).Conditions, v1alpha1.ConditionRevisionsKept); c != nil {
		w.t.Fatalf("condition %+v", c)
	}
}

// keeps says that the revision of the candidate is kept.
func (w *world) keeps() bool {
	w.t.Helper()
	err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: "default", Name: polled + "-" + w.rollout().Candidate.Name}, &appsv1.ControllerRevision{})
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return err == nil
}

func exceeded() error {
	return apierrors.NewForbidden(appsv1.Resource("controllerrevisions"), "r", errors.New("exceeded quota"))
}

// Revisions are for people. Where the API server refuses one, a rollout goes on all the same: else
// a bad candidate would stay in force for half of the runs, and nobody could abort it.
//
// mutation: a status that waits for its revision, an event with each pass, a time of transition
// that is new with each pass, and a revision that is not tried again make this fail.
func TestARefusedRevisionHoldsNothingUp(t *testing.T) {
	w := trying(t, fixed)
	old := w.rollout().Candidate.Name
	w.refuse = exceeded()
	w.edit(handOff)
	w.pass()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	if text := w.unkept(); !strings.Contains(text, "exceeded quota") {
		t.Errorf("it says %q", text)
	}
	r := w.rollout()
	if r.Candidate.Name == old || r.History[0].Reason != v1alpha1.ReasonSuperseded {
		t.Errorf("candidate %s, history %+v", r.Candidate.Name, r.History)
	}
	w.says(
		"Warning Superseded Candidate "+old+" is superseded by an edit",
		"Normal CanaryRuns Candidate CANDIDATE of runLock is tried on 20 percent of the runs",
		"Warning RevisionNotKept Not kept for the history (Forbidden): keep revision CANDIDATE of lock policy polled: "+w.refuse.Error(),
	)
	w.refresh()
	writes := w.writes.Load()
	w.refresh()
	if n := w.writes.Load() - writes; n != 0 {
		t.Errorf("while it is refused the status is written %d times", n)
	}
	w.play(60, 9, 2)
	w.refresh()
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonBusyRunsWorse)
	w.tells("BusyRunsWorse")
	if w.keeps() {
		t.Fatal("the revision is kept though it was refused")
	}
	w.refuse = nil
	w.restart()
	w.refresh()
	w.kept()
	if !w.keeps() {
		t.Error("the revision is not kept once the refusal has ended")
	}
	w.says()
}

// A full quota refuses what is there already, too.
//
// mutation: a refusal that is believed without a look makes this fail.
func TestARevisionThatIsKeptIsNotRefused(t *testing.T) {
	w := trying(t, fixed)
	w.refuse = exceeded()
	w.edit(handOff)
	w.pass()
	w.unkept()
	w.edit(func(p *v1alpha1.LockPolicy) {
		p.Spec.RunLock.BusyRetry.Mode, p.Spec.RunLock.Wait.Mode = v1alpha1.JitterModeJittered, v1alpha1.WaitModePoll
	})
	w.pass()
	w.is(rollout.Stable, 0, v1alpha1.ReasonInForce)
	w.kept()
}

// An operator in another namespace, or after a restore, finds none of the revisions that the status
// names, which has their content still.
//
// mutations: revisions that the last status names and that are never looked for, or are made anew
// with each pass.
func TestRevisionsThatANewNamespaceLacksAreKeptAgain(t *testing.T) {
	w := trying(t, handOff)
	baseline := polled + "-" + w.rollout().Baseline.Name
	if err := w.client.DeleteAllOf(t.Context(), &appsv1.ControllerRevision{}, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.refresh()
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: baseline}, &appsv1.ControllerRevision{}); err != nil || !w.keeps() {
		t.Errorf("the baseline: %v; the candidate is kept: %v", err, w.keeps())
	}
	if len(w.r.lost) != 0 {
		t.Errorf("these are made anew with each pass: %v", w.r.lost)
	}
	w.kept()
	w.says()
}

func TestANewPolicyWhoseRevisionIsRefusedHasAStatus(t *testing.T) {
	w := newWorld(t)
	w.refuse = exceeded()
	w.canaried()
	w.unkept()

	younger := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "younger"}, Spec: w.get(polled).Spec}
	if err := w.client.Create(t.Context(), younger); err != nil {
		t.Fatal(err)
	}
	w.pass()
	c := meta.FindStatusCondition(w.status("younger").Conditions, v1alpha1.ConditionReady)
	if c.Reason != v1alpha1.ReasonClassConflict || !unkept(w.status("younger")) {
		t.Errorf("a policy of which a class is another's says %+v", c)
	}
}

// mutation: an outage that is waited for once a revision was refused makes this fail.
func TestAnOutageAfterARefusalHoldsNothingUp(t *testing.T) {
	w := trying(t, fixed)
	w.refuse = exceeded()
	w.edit(handOff)
	w.pass()
	w.refuse = apierrors.NewInternalError(errors.New("a webhook is away"))
	w.play(60, 9, 2)
	w.refresh()
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonBusyRunsWorse)
	w.edit(fixed)
	w.pass()
	w.unkept()
	w.refuse = nil
	w.refresh()
	w.kept()
}

// A webhook that is down answers as a server that is away does. A bad candidate must not stay in
// force for as long.
//
// mutation: a keepRevisions without an end of its patience.
func TestAnOutageHoldsAStatusUpForAShortWhileOnly(t *testing.T) {
	w := trying(t, fixed)
	w.refuse = apierrors.NewInternalError(errors.New("a webhook is away"))
	w.edit(handOff)
	if _, err := w.try(); err == nil {
		t.Fatal("a short outage is not waited for")
	}
	w.refresh()
	w.unkept()
	w.play(60, 9, 2)
	w.refresh()
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonBusyRunsWorse)
	w.refuse = nil
	w.refresh()
	w.kept()
}

// A webhook denies with the code that it likes.
//
// mutation: a conflict of a revision that is taken for one of the policy.
func TestADenialByAConflictIsARefusal(t *testing.T) {
	w := trying(t, fixed)
	w.refuse = apierrors.NewConflict(appsv1.Resource("controllerrevisions"), "r", errors.New("the webhook denies it"))
	w.edit(handOff)
	w.pass()
	w.unkept()
	w.refuse = nil
	w.refresh()
	w.kept()
}

// mutations: a text that is cut in the middle of a character, or not at all; one that is written
// each time that it differs.
func TestWhatIsSaidOfARefusalIsBoundedAndStays(t *testing.T) {
	w := trying(t, fixed)
	refusal := func(n int) error {
		return apierrors.NewForbidden(appsv1.Resource("controllerrevisions"), "r", fmt.Errorf("%s%d\x1b[2J%s", strings.Repeat("ü", 300), n, strings.Repeat("ü", 723)))
	}
	w.refuse = refusal(1)
	w.edit(handOff)
	w.pass()
	if text := w.unkept(); len(text) > 1000 || !utf8.ValidString(text) || strings.Contains(text, "\x1b") {
		t.Errorf("%d bytes are said: %q", len(text), text)
	}
	w.refresh()
	writes := w.writes.Load()
	for n := range 3 {
		w.refuse = refusal(n)
		w.refresh()
	}
	if n := w.writes.Load() - writes; n != 0 {
		t.Errorf("the status is written %d times, for other words", n)
	}
}

func TestMessagesAreCutBetweenCharacters(t *testing.T) {
	long := strings.Repeat("x", maxMessage-1) + "üü"
	if got := cut(long); !utf8.ValidString(got) || utf8.RuneCountInString(got) > maxMessage {
		t.Errorf("%d characters: %q", utf8.RuneCountInString(got), got)
	}
	whole := strings.Repeat("x", maxMessage-1) + "ü"
	if got := cut(whole); got != whole {
		t.Errorf("a text within the bound is cut to %d bytes", len(got))
	}
}

// What is not refused is tried until it goes well, and status waits for it.
func TestAStatusWaitsForARevisionInAnOutage(t *testing.T) {
	w := trying(t, fixed)
	w.refuse = apierrors.NewInternalError(errors.New("not now"))
	w.edit(handOff)
	if _, err := w.try(); !errors.Is(err, w.refuse) {
		t.Errorf("reconcile: %v", err)
	}
	if p := w.get(polled); p.Status.ObservedGeneration == p.Generation {
		t.Error("status names a revision that is not kept")
	}
	w.refuse = nil
	w.pass()
	w.ready(metav1.ConditionTrue, v1alpha1.ReasonReady)
}

const onlyThese = "only edits of runLock, and of strategy and lock of admission without a total, are tried on a part of them"

// mutation: words that say of spec what is true of its limits only make this fail.
func TestAnEditOfALimitSaysWhatIsInForce(t *testing.T) {
	w := trying(t, fixed)
	w.edit(limited)
	w.pass()
	w.says("Normal InForce Generation 3 is in force for all runs at once, but for runLock, whose candidate CANDIDATE is Progressing: " + onlyThese)
	if c := w.ready(metav1.ConditionTrue, v1alpha1.ReasonReady); c.Message != inForce {
		t.Errorf("it says %q", c.Message)
	}

	w.play(60, 3, 3)
	w.refresh()
	w.play(60, 3, 3)
	w.edit(func(p *v1alpha1.LockPolicy) { p.Spec.Admission.MaxConcurrentRuns = new(int32(8)) })
	w.refresh() // the next step begins in the pass that sees the edit
	w.says(
		"Normal CanaryRuns Candidate CANDIDATE of runLock is tried on 50 percent of the runs",
		"Normal InForce Generation 4 is in force for all runs at once, but for runLock, whose candidate CANDIDATE is Progressing: "+onlyThese,
	)

	w.play(60, 9, 2)
	w.refresh()
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonBusyRunsWorse)
	w.events()
	w.edit(limited)
	w.pass()
	w.says("Normal InForce Generation 5 is in force for all runs at once, but for runLock, whose candidate CANDIDATE is RolledBack: " + onlyThese)
	w.edit(slower)
	w.pass()
	w.says("Normal TriedNext Strategy and lock of admission in generation 6 are tried only once runLock is promoted or edited: " +
		"its candidate CANDIDATE was taken back; limits are in force")
	w.edit(func(p *v1alpha1.LockPolicy) {
		p.Spec.RunLock.BusyRetry.Mode, p.Spec.Admission.Lock.Retry.DelayMillis = v1alpha1.JitterModeJittered, 10
	})
	w.pass()
	w.says("Normal InForce Generation 7 is in force for all runs at once: " + onlyThese)
}

// What is tried, or was taken back, is in spec for as long as nobody edits it.
//
// mutation: effective that has these of spec makes this fail.
func TestStatusHasTheRunLockThatIsInForceAndNotThatOfSpec(t *testing.T) {
	w := trying(t, func(p *v1alpha1.LockPolicy) {
		handOff(p)
		p.Spec.RunLock.TTLSeconds, p.Spec.RunLock.Scope = 60, v1alpha1.LockScopeRun
		p.Spec.RunLock.Renewal.OnFailure = v1alpha1.RenewalFailureContinue
	})
	inForce := func(ttl int64, scope v1alpha1.LockScope, onFailure v1alpha1.RenewalFailureMode, wait v1alpha1.WaitMode) {
		t.Helper()
		got := *w.status(polled).Effective
		want := got
		want.TTLSeconds, want.Scope, want.OnFailure, want.WaitMode = ttl, scope, onFailure, wait
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("effective (-want +got):\n%s", diff)
		}
	}
	inForce(30, v1alpha1.LockScopeActivation, v1alpha1.RenewalFailureFence, v1alpha1.WaitModePoll)
	w.play(60, 9, 2)
	w.refresh()
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonBusyRunsWorse)
	inForce(30, v1alpha1.LockScopeActivation, v1alpha1.RenewalFailureFence, v1alpha1.WaitModePoll)
	w.edit(func(p *v1alpha1.LockPolicy) { p.Spec.Rollout = nil })
	w.pass()
	inForce(60, v1alpha1.LockScopeRun, v1alpha1.RenewalFailureContinue, v1alpha1.WaitModeHandOff)
}

func TestRolloutTakenOutOfSpecSaysWhatIsInForceThen(t *testing.T) {
	const text = "Warning Immediate Generation 3 is in force for all runs at once, untried: rollout is not in spec any more. Candidate %s was %s"
	unrolled := func(p *v1alpha1.LockPolicy) { p.Spec.Rollout = nil }
	for name, test := range map[string]struct {
		worse bool
		edit  func(*v1alpha1.LockPolicy)
		phase string // of the candidate, that is told; empty: nothing is
	}{
		"what was taken back":         {true, unrolled, "RolledBack"},
		"what is tried":               {false, unrolled, "Progressing"},
		"what was in force meanwhile": {true, both(unrolled, func(p *v1alpha1.LockPolicy) { p.Spec.RunLock.BusyRetry.Mode = v1alpha1.JitterModeJittered }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := trying(t, fixed)
			if test.worse {
				w.play(60, 9, 2)
				w.refresh()
				w.is(rollout.RolledBack, 0, v1alpha1.ReasonBusyRunsWorse)
			}
			w.events()
			candidate := w.rollout().Candidate.Name
			w.edit(test.edit)
			w.pass()
			if test.phase == "" {
				w.says()
				return
			}
			w.says(fmt.Sprintf(text, candidate, test.phase))
		})
	}
}

// The garbage collector has not come yet, or never does: revisions of a policy of this name that is
// gone are the first to go.
//
// mutation: the revisions with the lowest generations deleted first, whosever they are, makes this
// fail; so does one deleted that status is about to name.
func TestRevisionsOfADeletedPolicyGoFirst(t *testing.T) {
	w := newWorld(t)
	for i := range maxRevisions {
		if err := w.client.Create(t.Context(), &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprint(polled, "-", i), Labels: map[string]string{policy.LabelRevisions: polled},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: v1alpha1.GroupVersion.String(), Kind: "LockPolicy", Name: polled, UID: types.UID("gone"),
				}},
			},
			Revision: int64(100 + i), Data: runtime.RawExtension{Raw: []byte("{}")},
		}); err != nil {
			t.Fatal(err)
		}
	}
	w.canaried()
	w.edit(fixed)
	w.pass()
	if !w.keeps() {
		t.Error("the revision of the candidate is deleted")
	}
	var kept appsv1.ControllerRevisionList
	if err := w.client.List(t.Context(), &kept, client.MatchingLabels{policy.LabelRevisions: polled}); err != nil || len(kept.Items) != maxRevisions {
		t.Errorf("%d revisions are kept, %v; want %d", len(kept.Items), err, maxRevisions)
	}
}

// A canary does not shrink with the steps of its plan, and nobody who lowers them wants it in force
// earlier. They are told at once, and it is held until there is a step again.
//
// mutation: an edit that is told as any other, and a candidate that is promoted since no step is
// above make this fail.
func TestWhoLowersTheStepsBelowTheCanaryIsTold(t *testing.T) {
	w := trying(t, handOff)
	name := w.rollout().Candidate.Name
	w.edit(func(p *v1alpha1.LockPolicy) { p.Spec.Rollout.StepsPercent = []int32{5} })
	w.pass()
	const beyond = "stepsPercent ends with 5, and the candidate is tried on 20 percent of the runs: it stays there, and no evidence promotes it. " +
		"Add a step of 20 percent or more, or promote or abort it"
	w.says(
		"Normal InForce Generation 3 is in force for all runs at once, but for runLock, whose candidate CANDIDATE is Progressing: "+
			"only edits of runLock, and of strategy and lock of admission without a total, are tried on a part of them",
		"Warning CanaryRuns "+beyond,
	)
	for range 2 {
		w.play(60, 6, 6)
		w.refresh()
	}
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	c := meta.FindStatusCondition(w.status(polled).Conditions, v1alpha1.ConditionRolledOut)
	if c == nil || c.Status != metav1.ConditionUnknown || c.Message != beyond {
		t.Errorf("condition %+v", c)
	}
	w.says()
	w.edit(func(p *v1alpha1.LockPolicy) { p.Spec.Rollout.StepsPercent = []int32{5, 20} })
	w.pass()
	if w.is(rollout.Promoted, 0, v1alpha1.ReasonAllStepsPassed); w.rollout().Baseline.Name != name {
		t.Errorf("the baseline is %s", w.rollout().Baseline.Name)
	}
}
