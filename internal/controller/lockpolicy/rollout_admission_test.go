// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

func atomically(p *v1alpha1.LockPolicy) {
	p.Spec.Admission.Strategy = v1alpha1.AdmissionStrategyAtomic
}

func limited(p *v1alpha1.LockPolicy) { p.Spec.Admission.MaxConcurrentRuns = new(int32(7)) }

func shared(p *v1alpha1.LockPolicy) {
	p.Spec.Admission.Total = &v1alpha1.AdmissionTotal{MaxConcurrentRuns: 9}
}

// both makes two edits at once.
func both(a, b func(*v1alpha1.LockPolicy)) func(*v1alpha1.LockPolicy) {
	return func(p *v1alpha1.LockPolicy) { a(p); b(p) }
}

// delayOf is how long tenant acme waits before it tries its lock again, in an arm; 0: Atomic.
func (w *world) delayOf(arm rollout.Arm) time.Duration {
	w.t.Helper()
	a := policy.InForce(w.get(polled)).Admission
	at := w.clock.Now()
	if arm != rollout.Rest {
		for at = at.Add(2 * rollout.Period); ; at = at.Add(rollout.Period) {
			if _, minute := a.At("acme", at); minute == nil {
				w.t.Fatal("nothing is tried")
			} else if minute.Arm == arm {
				break
			}
		}
	}
	if now, _ := a.At("acme", at); now.Lock != nil {
		return now.Lock.Retry.Delay
	}
	return 0
}

// delays fails the test unless these are those of canary, control and all others.
func (w *world) delays(canary, control time.Duration) {
	w.t.Helper()
	if a, b, c := w.delayOf(rollout.Canary), w.delayOf(rollout.Control), w.delayOf(rollout.Rest); a != canary || b != control || c != control {
		w.t.Fatalf("canary %s, control %s, others %s; want %s, %s", a, b, c, canary, control)
	}
}

// inForce fails the test unless all have this delay.
func (w *world) inForce(delay time.Duration) {
	w.t.Helper()
	if a := policy.InForce(w.get(polled)).Admission; a.Trial != nil || w.delayOf(rollout.Rest) != delay {
		w.t.Fatalf("%s is in force, and %+v is tried; want %s", w.delayOf(rollout.Rest), a.Trial, delay)
	}
}

func (w *world) tells(want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.events()); diff != "" {
		w.t.Errorf("events (-want +got):\n%s", diff)
	}
}

// mutation: a candidate in force before it is promoted, or one of which the unit is not stored,
// makes this fail.
func TestAnEditOfAdmissionIsTriedOnTenantMinutes(t *testing.T) {
	w := trying(t, slower)
	w.delays(200*time.Millisecond, 10*time.Millisecond)
	var percents []int32
	for range 20 {
		w.play(40, 3, 3)
		w.refresh()
		if p := w.rollout().Percent; !slices.Contains(percents, p) {
			percents = append(percents, p)
		}
	}
	w.is(rollout.Promoted, 0, v1alpha1.ReasonAllStepsPassed)
	w.inForce(200 * time.Millisecond)
	if diff := cmp.Diff([]int32{20, 50, 0}, percents); diff != "" {
		t.Errorf("percentages (-want +got):\n%s", diff)
	}
	w.tells("CanaryRuns", "AllStepsPassed")
	r := w.rollout()
	want := []string{"admission.lock.retry.delayMillis: 10 -> 200"}
	if r.Unit != v1alpha1.RolloutUnitTenantMinute || len(r.History) != 1 || !slices.Equal(r.History[0].Changes, want) {
		t.Errorf("%s, history %+v", r.Unit, r.History)
	}
	kept := &appsv1.ControllerRevision{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: polled + "-" + r.Candidate.Name}, kept); err != nil {
		t.Fatal(err)
	}
	content := policy.Content{}
	raw := strings.NewReplacer(`"runLock"`, `"RunLock"`, `"admission"`, `"Admission"`).Replace(string(kept.Data.Raw))
	if err := json.Unmarshal([]byte(raw), &content); err != nil || content.Admission == nil || content.Admission.Lock.Retry.DelayMillis != 200 {
		t.Errorf("the revision has %s, %v", kept.Data.Raw, err)
	}
	before := w.versions()
	w.pass()
	if diff := cmp.Diff(before, w.versions()); diff != "" {
		t.Errorf("a policy at rest is written (-before +after):\n%s", diff)
	}
}

func TestAnEditOfAdmissionThatIsWorseIsRolledBack(t *testing.T) {
	w := trying(t, slower)
	w.play(60, 9, 2)
	w.refresh()
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonBusyRunsWorse)
	w.inForce(10 * time.Millisecond)
	if r := w.rollout(); !strings.Contains(r.Message, "tenant-minutes of the canary") {
		t.Errorf("it says %q", r.Message)
	}
	say := func(verb string) {
		w.edit(func(p *v1alpha1.LockPolicy) {
			p.Annotations = map[string]string{v1alpha1.AnnotationRollout: verb + " " + w.rollout().Candidate.Name}
		})
		w.pass()
	}
	say("promote")
	w.is(rollout.Promoted, 0, v1alpha1.ReasonPromotedByUser)
	w.inForce(200 * time.Millisecond)
	w.edit(atomically)
	w.pass()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	w.delays(0, 200*time.Millisecond)
	say("abort")
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonAbortedByUser)
	w.inForce(200 * time.Millisecond)
}

// mutation: both in one candidate, admission in force with the promotion of runLock, and a
// condition that is True in between make this fail.
func TestRunLockIsTriedBeforeAdmission(t *testing.T) {
	w := newWorld(t)
	w.canaried()
	w.edit(both(handOff, slower))
	w.pass()
	w.tells("CanaryRuns", "TriedNext")
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	w.inForce(10 * time.Millisecond)
	if r := w.rollout(); r.Unit != v1alpha1.RolloutUnitRun {
		t.Fatalf("runLock is tried on %s", r.Unit)
	}
	for range 20 {
		if w.play(40, 3, 3); w.rollout().Unit == v1alpha1.RolloutUnitRun {
			w.refresh()
		}
		c := meta.FindStatusCondition(w.get(polled).Status.Conditions, v1alpha1.ConditionRolledOut)
		if c.Status != metav1.ConditionUnknown {
			t.Fatalf("while admission is still to be tried, spec is said to be in force: %+v", c)
		}
	}
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	w.tells("CanaryRuns", "AllStepsPassed", "CanaryRuns")
	if e, trial := w.governs(w.runIn(rollout.Canary)); e.RunLock.Wait.Poll || trial != (policy.Trial{}) {
		t.Errorf("a run has %+v, and the part %+v", e.RunLock, trial)
	}
	w.delays(200*time.Millisecond, 10*time.Millisecond)
	r := w.rollout()
	if r.Unit != v1alpha1.RolloutUnitTenantMinute || r.Canary != nil {
		t.Errorf("admission is tried on %s, with %+v", r.Unit, r.Canary)
	}
	for range 20 {
		w.play(40, 3, 3)
		w.refresh()
	}
	w.is(rollout.Promoted, 0, v1alpha1.ReasonAllStepsPassed)
	w.inForce(200 * time.Millisecond)
	var history []string
	for _, h := range w.rollout().History {
		history = append(history, fmt.Sprint(h.Reason, h.Changes))
	}
	want := []string{"AllStepsPassed[wait.mode: Poll -> HandOff]", "AllStepsPassed[admission.lock.retry.delayMillis: 10 -> 200]"}
	if diff := cmp.Diff(want, history); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

// mutation: an edit of admission that is tried though that of runLock was taken back
// makes this fail.
func TestAdmissionIsNotTriedWhileRunLockWaits(t *testing.T) {
	w := trying(t, both(fixed, slower))
	w.play(60, 9, 2)
	w.refresh()
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonBusyRunsWorse)
	w.events()
	w.inForce(10 * time.Millisecond)
	w.edit(atomically)
	w.pass()
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonBusyRunsWorse)
	w.tells("TriedNext")
	w.inForce(10 * time.Millisecond)
	w.edit(func(p *v1alpha1.LockPolicy) { p.Spec.RunLock.BusyRetry.Mode = v1alpha1.JitterModeJittered })
	w.pass()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	w.delays(0, 10*time.Millisecond)
}

func TestLimitsAreInForceWhileAdmissionIsTried(t *testing.T) {
	w := trying(t, slower)
	name := w.rollout().Candidate.Name
	w.edit(limited)
	w.pass()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	w.tells("InForce")
	w.delays(200*time.Millisecond, 10*time.Millisecond)
	if n := policy.InForce(w.get(polled)).Admission.Limit("acme"); n != 7 || w.rollout().Candidate.Name != name {
		t.Errorf("limit %d, candidate %s", n, w.rollout().Candidate.Name)
	}
}

// With a total one lock is for all tenants.
//
// mutation: a baseline that keeps what it had before the total makes this fail: once the total is
// removed that would be in force again.
func TestWithATotalAdmissionIsInForceAtOnce(t *testing.T) {
	w := trying(t, slower)
	w.edit(shared)
	w.inForce(200 * time.Millisecond) // before the operator has seen it
	w.pass()
	w.is(rollout.Stable, 0, v1alpha1.ReasonInForce)
	w.tells("Superseded")
	w.edit(atomically)
	w.pass()
	w.inForce(0)
	w.tells("InForce")
	w.edit(func(p *v1alpha1.LockPolicy) { p.Spec.Admission.Total = nil })
	w.inForce(0)
	w.pass()
	w.inForce(0)
	w.is(rollout.Stable, 0, v1alpha1.ReasonInForce)
	w.edit(func(p *v1alpha1.LockPolicy) { p.Spec.Admission.Strategy = v1alpha1.AdmissionStrategyLock })
	w.pass()
	w.delays(200*time.Millisecond, 0)
}

func TestAnEditWhileAdmissionIsTriedSupersedes(t *testing.T) {
	for name, test := range map[string]struct {
		edit   func(*v1alpha1.LockPolicy)
		unit   v1alpha1.RolloutUnit
		events []string
	}{
		"of admission":   {atomically, v1alpha1.RolloutUnitTenantMinute, []string{"Superseded", "CanaryRuns"}},
		"of runLock":     {fixed, v1alpha1.RolloutUnitRun, []string{"Superseded", "CanaryRuns", "TriedNext"}},
		"back to before": {func(p *v1alpha1.LockPolicy) { p.Spec.Admission.Lock.Retry.DelayMillis = 10 }, "", []string{"Superseded"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := trying(t, slower)
			w.play(25, 3, 3)
			w.refresh()
			old := w.rollout().Candidate.Name
			w.edit(test.edit)
			w.pass()
			w.tells(test.events...)
			if test.unit == "" {
				w.is(rollout.Stable, 0, v1alpha1.ReasonInForce)
				w.inForce(10 * time.Millisecond)
				return
			}
			w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
			if r := w.rollout(); r.Unit != test.unit || r.Candidate.Name == old || r.Canary != nil || len(r.Replicas) > 0 {
				t.Errorf("%s is tried on %s, with %+v", r.Candidate.Name, r.Unit, r.Canary)
			}
		})
	}
}

// A status of a version that did not roll out admission has nothing of it.
//
// mutation: a baseline without admission that differs from what spec says makes this fail.
func TestAnUpgradeTriesNothing(t *testing.T) {
	w := newWorld(t)
	w.canaried()
	p := w.get(polled)
	p.Status.Rollout.Baseline.Admission, p.Status.Rollout.Unit = nil, ""
	if err := w.client.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	w.inForce(10 * time.Millisecond)
	w.pass()
	w.is(rollout.Stable, 0, v1alpha1.ReasonInForce)
	if a := w.rollout().Baseline.Admission; a == nil || a.Lock.Retry.DelayMillis != 10 {
		t.Errorf("the baseline has %+v", a)
	}
	w.edit(slower)
	w.pass()
	w.delays(200*time.Millisecond, 10*time.Millisecond)
}

// Whatever somebody writes into status, no edit of admission is in force in the end that is worse.
//
// mutation: a candidate that is judged by votes of another unit makes this fail.
func TestGarbageWhileAdmissionIsTried(t *testing.T) {
	for name, spoil := range map[string]func(*v1alpha1.LockPolicyRolloutStatus){
		"another unit": func(r *v1alpha1.LockPolicyRolloutStatus) { r.Unit = v1alpha1.RolloutUnitRun },
		"no unit":      func(r *v1alpha1.LockPolicyRolloutStatus) { r.Unit = "" },
		"a candidate without admission": func(r *v1alpha1.LockPolicyRolloutStatus) {
			r.Candidate.Admission = nil
		},
		"a candidate with other admission": func(r *v1alpha1.LockPolicyRolloutStatus) { r.Candidate.Admission.Lock.Retry.DelayMillis = 999 },
		"no candidate":                     func(r *v1alpha1.LockPolicyRolloutStatus) { r.Candidate = nil },
		"a step that began with all": func(r *v1alpha1.LockPolicyRolloutStatus) {
			r.StepCanaryEnded, r.StepControlEnded = 1<<62, 1<<62
		},
		"a step that begins in a century": func(r *v1alpha1.LockPolicyRolloutStatus) { r.ChangedAt.Time = r.ChangedAt.AddDate(100, 0, 0) },
		"counts back":                     func(r *v1alpha1.LockPolicyRolloutStatus) { r.Replicas[0].Canary.Ended -= 5 },
	} {
		t.Run(name, func(t *testing.T) {
			w := trying(t, slower)
			w.play(10, 3, 3)
			w.refresh()
			p := w.get(polled)
			spoil(p.Status.Rollout)
			if err := w.client.Status().Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			for range 4 {
				w.play(60, 9, 3)
				w.refresh()
			}
			w.anHourLater()
			w.inForce(10 * time.Millisecond)
			if r := w.rollout(); r.Unit != v1alpha1.RolloutUnitTenantMinute || r.Phase != "RolledBack" {
				t.Errorf("%s of %s, %s: %s", r.Phase, r.Unit, r.Reason, r.Message)
			}
		})
	}
}

// What is counted of a tenant-minute by a replica that only reports is judged, too.
func TestTenantMinutesOfAnotherReplicaCount(t *testing.T) {
	w := trying(t, slower)
	decides := w.r
	w.restart()
	reports := w.r
	reports.Elected = func() bool { return false }
	for range 4 {
		w.r = reports
		w.play(40, 9, 2)
		w.refresh()
		w.r = decides
		w.refresh()
	}
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonBusyRunsWorse)
	c := meta.FindStatusCondition(w.get(polled).Status.Conditions, v1alpha1.ConditionRolledOut)
	if c.Status != metav1.ConditionFalse {
		t.Errorf("condition %+v", c)
	}
}
