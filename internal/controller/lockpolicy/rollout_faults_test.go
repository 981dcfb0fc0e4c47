// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// trying is a policy whose edit is tried on 20 percent of the runs.
func trying(t *testing.T, change func(*v1alpha1.LockPolicy)) *world {
	t.Helper()
	w := newWorld(t)
	w.canaried()
	w.edit(change)
	w.pass()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	w.events()
	return w
}

// runIn is a run of the class that is in an arm of the candidate; it is new.
func (w *world) runIn(arm rollout.Arm) *v1alpha1.WorkflowRun {
	w.t.Helper()
	r := w.rollout()
	run := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{WorkloadClass: polled}}
	for i := byte('a'); rollout.ArmOf(string(run.UID), r.Candidate.Name, int(r.Percent)) != arm; i++ {
		run.UID = types.UID([]byte{i})
	}
	return run
}

// governs is what governs a run, and its part in the rollout.
func (w *world) governs(run *v1alpha1.WorkflowRun) (policy.Effective, policy.Trial) {
	return policy.Governs(run, w.list())
}

// anHourLater is a pass when each step is over.
func (w *world) anHourLater() {
	w.t.Helper()
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	w.pass()
}

// A process that decides, and has no place to report what it counts, would hold a candidate that
// nobody judges.
//
// mutation: a decision that is not told of it makes this fail.
func TestADecisionWithoutAPlaceForItsCountsEndsTheTrial(t *testing.T) {
	w := trying(t, func(p *v1alpha1.LockPolicy) {
		fixed(p)
		p.Spec.Rollout.OnInsufficientData = v1alpha1.OnInsufficientDataHold
	})
	p := w.get(polled)
	for i := len(p.Status.Rollout.Replicas); i < maxReplicas; i++ {
		p.Status.Rollout.Replicas = append(p.Status.Rollout.Replicas, v1alpha1.RolloutReplica{Name: fmt.Sprint("gone/", i)})
	}
	if err := w.client.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	w.play(10, 3, 3)
	w.refresh()
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonInsufficientData)
}

// mutation: counts of a candidate that are kept for the next one make this fail.
func TestAnEditDuringARolloutBeginsAnew(t *testing.T) {
	w := trying(t, fixed)
	old := w.runIn(rollout.Canary)
	_, trial := w.governs(old)
	old.Status = &v1alpha1.WorkflowRunStatus{Fence: new(int64(1)), Policy: &v1alpha1.PolicyReference{
		Name: polled, Trial: &v1alpha1.PolicyTrial{Candidate: trial.Candidate, Arm: v1alpha1.RolloutArmCanary},
	}}
	w.play(25, 3, 3)
	w.refresh()
	w.edit(handOff)
	w.pass()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	r := w.rollout()
	if r.Candidate.Name == trial.Candidate || r.Canary != nil || r.Control != nil || len(r.Replicas) > 0 {
		t.Errorf("the new candidate has the name or the counts of the one before: %+v", r)
	}
	if e, _ := w.governs(old); e.RunLock.BusyRetry.Fixed || !e.RunLock.Wait.Poll {
		t.Errorf("a run of the canary of before has %+v; want the baseline", e.RunLock)
	}
	if diff := cmp.Diff([]string{"Superseded", "CanaryRuns"}, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	w.play(25, 3, 3)
	w.refresh()
	if r := w.rollout(); r.Canary.Runs != 25 || r.Control.Runs != 25 {
		t.Errorf("%d and %d runs count for the new candidate; want 25 of each arm", r.Canary.Runs, r.Control.Runs)
	}
}

// mutation: a candidate of a policy that does not govern the class makes this fail.
func TestTwoPoliciesForOneClassTryOneCandidate(t *testing.T) {
	w := newWorld(t)
	w.canaried()
	younger := w.get(polled).DeepCopy()
	younger.ObjectMeta = metav1.ObjectMeta{Name: "younger"}
	younger.Spec.WorkloadClasses = []string{polled}
	if err := w.client.Create(t.Context(), younger); err != nil {
		t.Fatal(err)
	}
	w.pass()
	younger = w.get("younger")
	handOff(younger)
	if err := w.client.Update(t.Context(), younger); err != nil {
		t.Fatal(err)
	}
	w.edit(fixed)
	w.pass()
	for _, name := range []string{polled, "younger"} {
		if r := w.status(name).Rollout; r.Phase != "Progressing" {
			t.Fatalf("%s is %s", name, r.Phase)
		}
	}
	for _, arm := range []rollout.Arm{rollout.Canary, rollout.Control, rollout.Rest} {
		e, trial := w.governs(w.runIn(arm))
		if e.Name != polled || trial.Candidate != w.rollout().Candidate.Name || trial.Arm != arm || !e.RunLock.Wait.Poll {
			t.Errorf("a run in %q is governed by %s, %+v", arm, e.Name, trial)
		}
	}
	for range 2 {
		w.play(60, 3, 3)
		w.refresh()
	}
	w.is(rollout.Progressing, 50, v1alpha1.ReasonCanaryRuns)
	w.anHourLater()
	if r := w.status("younger").Rollout; r.Phase != "RolledBack" || r.Reason != v1alpha1.ReasonInsufficientData || r.Canary != nil {
		t.Errorf("the policy that governs no run is %s, %s: %s", r.Phase, r.Reason, r.Message)
	}
}

func TestAClassWithoutTraffic(t *testing.T) {
	w := trying(t, fixed)
	w.refresh()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	w.anHourLater()
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonInsufficientData)

	w = trying(t, fixed)
	w.edit(func(p *v1alpha1.LockPolicy) { p.Spec.Rollout.OnInsufficientData = v1alpha1.OnInsufficientDataHold })
	for range 3 {
		w.anHourLater()
		w.is(rollout.Holding, 20, v1alpha1.ReasonInsufficientData)
	}
	if policy.InForce(w.get(polled)).RunLock.BusyRetry.Fixed {
		t.Error("what is held is in force for all")
	}
}

// mutation: counts of a process that never wrote them make this fail.
func TestAReplicaThatNeverReports(t *testing.T) {
	w := trying(t, handOff)
	silent := w.r
	for range 20 {
		w.r = silent
		w.play(40, 9, 1)
		w.restart() // another process, whose counts are its own
		w.play(40, 3, 3)
		w.refresh()
	}
	w.is(rollout.Promoted, 0, v1alpha1.ReasonAllStepsPassed)

	w = trying(t, handOff)
	w.play(1000, 3, 3)
	w.restart()
	w.refresh()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	w.anHourLater()
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonInsufficientData)
}

// Two operators whose clocks are apart decide in turn.
func TestClocksApart(t *testing.T) {
	for name, test := range map[string]struct {
		apart  time.Duration
		played int
		phase  rollout.Phase
		reason string
	}{
		"by half a step, and there is evidence":      {30 * time.Minute, 20, rollout.Promoted, v1alpha1.ReasonAllStepsPassed},
		"by half a step, and there is none":          {30 * time.Minute, 0, rollout.Progressing, v1alpha1.ReasonCanaryRuns},
		"by a day, so a step is over when it begins": {24 * time.Hour, 0, rollout.RolledBack, v1alpha1.ReasonInsufficientData},
	} {
		t.Run(name, func(t *testing.T) {
			w := trying(t, handOff)
			here := w.r
			w.restart()
			ahead := w.r
			for range 20 {
				for _, w.r = range []*Reconciler{here, ahead} {
					w.r.Clock = clocktesting.NewFakePassiveClock(w.clock.Now())
					if w.r == ahead {
						w.r.Clock = clocktesting.NewFakePassiveClock(w.clock.Now().Add(test.apart))
					}
					w.play(test.played, 3, 3)
					w.refresh()
				}
			}
			r := w.rollout()
			if r.Phase != v1alpha1.RolloutPhase(test.phase) || r.Reason != test.reason {
				t.Errorf("%s, %s: %s", r.Phase, r.Reason, r.Message)
			}
		})
	}
}

// A policy that was deleted and made again, with the same edit, has another candidate.
//
// mutation: a revision that is named for its content alone makes this fail.
func TestCountsOfADeletedPolicyDoNotCount(t *testing.T) {
	w := trying(t, fixed)
	before := w.rollout().Candidate.Name
	w.play(60, 9, 2)
	if err := w.client.Delete(t.Context(), w.get(polled)); err != nil {
		t.Fatal(err)
	}
	w.pass0()
	w.canaried()
	w.edit(fixed)
	w.pass()
	w.refresh()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	if r := w.rollout(); r.Candidate.Name == before || r.Canary != nil {
		t.Errorf("candidate %s counts %+v; that of the deleted policy was %s", r.Candidate.Name, r.Canary, before)
	}
}

// Limits of admission are shared by both arms, so an edit of them is in force at once, and says so.
//
// mutation: an edit of other fields that begins a rollout, or waits for one, makes this fail.
func TestAnEditOfAdmissionIsInForceAtOnce(t *testing.T) {
	w := trying(t, fixed)
	name := w.rollout().Candidate.Name
	w.edit(func(p *v1alpha1.LockPolicy) { p.Spec.Admission.MaxConcurrentRuns = new(int32(7)) })
	w.pass()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	for _, arm := range []rollout.Arm{rollout.Canary, rollout.Control, rollout.Rest} {
		if e, _ := w.governs(w.runIn(arm)); e.Admission.Limit("any") != 7 || e.RunLock.BusyRetry.Fixed != (arm == rollout.Canary) {
			t.Errorf("a run in %q has the limit %d, fixed %v", arm, e.Admission.Limit("any"), e.RunLock.BusyRetry.Fixed)
		}
	}
	if r := w.rollout(); r.Candidate.Name != name {
		t.Errorf("candidate %s became %s", name, r.Candidate.Name)
	}
	if diff := cmp.Diff([]string{"InForce"}, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Whatever somebody writes into status.rollout, if the API server takes it: the operator goes on,
// and a candidate that is worse is in force for no run in the end.
//
// mutation: counts that are added as they are, votes that are sought under a name that is not in
// status, a hash of a name that is taken for that of its content, and a revision that is none
// because its name has no hash make this fail.
func TestGarbageInStatus(t *testing.T) {
	huge := func(n int64) *v1alpha1.RolloutCounts {
		return &v1alpha1.RolloutCounts{Runs: n, Ended: n, Contended: n, Waits: []int64{n}, Latencies: []int64{n}}
	}
	for name, spoil := range map[string]func(*v1alpha1.LockPolicyRolloutStatus){
		"counts whose sum overflows": func(r *v1alpha1.LockPolicyRolloutStatus) {
			for _, name := range []string{"a", "b", "c", "d"} {
				r.Replicas = append(r.Replicas, v1alpha1.RolloutReplica{Name: name, Canary: huge(1 << 62), Control: huge(1 << 62), RestRuns: 1 << 62})
			}
		},
		"counts that take long to judge": func(r *v1alpha1.LockPolicyRolloutStatus) {
			r.Replicas = append(r.Replicas, v1alpha1.RolloutReplica{Name: "a", Canary: huge(1 << 61), Control: huge(1 << 61)})
		},
		"a tally that was never counted": func(r *v1alpha1.LockPolicyRolloutStatus) { r.Canary, r.Control = huge(1<<62), huge(1<<62) },
		"as many replicas as there may be": func(r *v1alpha1.LockPolicyRolloutStatus) {
			for i := len(r.Replicas); i < maxReplicas; i++ {
				r.Replicas = append(r.Replicas, v1alpha1.RolloutReplica{Name: fmt.Sprint("gone/", i)})
			}
		},
		"a threshold of votes that never were": func(r *v1alpha1.LockPolicyRolloutStatus) {
			r.Wait = &v1alpha1.RolloutThreshold{Bucket: 14, CanaryAbove: 1000, CanaryAsked: 1000}
		},
		"no candidate":                     func(r *v1alpha1.LockPolicyRolloutStatus) { r.Candidate = nil },
		"a candidate of another name":      func(r *v1alpha1.LockPolicyRolloutStatus) { r.Candidate.Name = "something else-7-8" },
		"a candidate of other content":     func(r *v1alpha1.LockPolicyRolloutStatus) { r.Candidate.RunLock.TTLSeconds = 77 },
		"a candidate that is the baseline": func(r *v1alpha1.LockPolicyRolloutStatus) { r.Candidate = r.Baseline.DeepCopy() },
		"a baseline without a hash":        func(r *v1alpha1.LockPolicyRolloutStatus) { r.Baseline.Name = "-3" },
		"a step that began in 1970":        func(r *v1alpha1.LockPolicyRolloutStatus) { r.ChangedAt = metav1.NewTime(time.Unix(0, 0)) },
		"a step that begins in a century":  func(r *v1alpha1.LockPolicyRolloutStatus) { r.ChangedAt.Time = r.ChangedAt.AddDate(100, 0, 0) },
		"a percentage of no step":          func(r *v1alpha1.LockPolicyRolloutStatus) { r.Percent = 37 },
		"no percentage":                    func(r *v1alpha1.LockPolicyRolloutStatus) { r.Percent = 0 },
		"a step that began with all runs":  func(r *v1alpha1.LockPolicyRolloutStatus) { r.StepCanary, r.StepControl = 1<<62, 1<<62 },
		"a phase that does not fit":        func(r *v1alpha1.LockPolicyRolloutStatus) { r.Phase = "Stable" },
		"a verdict that was never passed":  func(r *v1alpha1.LockPolicyRolloutStatus) { r.Verdict = "Pass" },
	} {
		t.Run(name, func(t *testing.T) {
			w := trying(t, fixed)
			w.play(10, 3, 3)
			w.refresh()
			p := w.get(polled)
			spoil(p.Status.Rollout)
			if err := w.client.Status().Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			for range 4 {
				w.play(60, 9, 3)
				w.refresh()
			}
			w.anHourLater()
			if took := time.Since(begin); took > time.Minute {
				t.Errorf("judging took %s", took)
			}
			r := w.rollout()
			if policy.InForce(w.get(polled)).RunLock.BusyRetry.Fixed || r.Phase == "Promoted" {
				t.Errorf("the candidate is in force: %s, %s: %s", r.Phase, r.Reason, r.Message)
			}
			if r.Candidate == nil || !policy.Same(r.Candidate.RunLock, w.get(polled).Spec.RunLock) {
				t.Errorf("the candidate is %+v, and not what spec says", r.Candidate)
			}
			if r.Reason == v1alpha1.ReasonInsufficientData && name != "a step that began in 1970" {
				t.Errorf("the votes of 240 runs did not count: %s", r.Message)
			}
		})
	}
}

// mutation: a revision that is named and labelled for a policy whatever the length of its name
// makes this fail.
func TestPoliciesWithLongNamesRollOut(t *testing.T) {
	for name, policyName := range map[string]string{
		"as long as a label":      strings.Repeat("x", 63),
		"longer than a label":     strings.Repeat("x", 64),
		"as long as a name":       strings.Repeat("y", 253),
		"a dot where it is cut":   strings.Repeat("z", 53) + "." + strings.Repeat("z", 20),
		"another that is cut so":  strings.Repeat("x", 65),
		"a hyphen where it is so": strings.Repeat("z", 52) + "-z." + strings.Repeat("z", 20),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyName}, Spec: v1alpha1.LockPolicySpec{
				WorkloadClasses: []string{polled}, Rollout: &v1alpha1.LockPolicyRollout{Strategy: v1alpha1.RolloutStrategyCanary},
			}}
			if err := w.client.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			w.pass()
			for range maxRevisions + 3 {
				p = w.get(policyName)
				p.Spec.RunLock.TTLSeconds++
				if err := w.client.Update(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				w.pass()
			}
			if r := w.status(policyName).Rollout; r.Phase != "Progressing" || r.Candidate.RunLock.TTLSeconds != p.Spec.RunLock.TTLSeconds {
				t.Errorf("%s of %+v", r.Phase, r.Candidate)
			}
			var kept appsv1.ControllerRevisionList
			if err := w.client.List(t.Context(), &kept, client.MatchingLabels{policy.LabelRevisions: policy.RevisionsLabel(p.Name)}); err != nil {
				t.Fatal(err)
			}
			if n := len(kept.Items); n < maxRevisions || n > maxRevisions+1 { // and the baseline
				t.Errorf("%d revisions are kept; want %d, and the baseline", n, maxRevisions)
			}
		})
	}
}

// mutation: the figures of a policy that is gone make this fail: its alert would go on. So do
// figures that are away while a status is written or after a conflict, and those of a replica that
// does not decide.
func TestMetricsOfRollouts(t *testing.T) {
	w := trying(t, fixed)
	reg := prometheus.NewRegistry()
	w.r.RegisterMetrics(reg)
	expect := func(series string) {
		t.Helper()
		if err := testutil.GatherAndCompare(reg, strings.NewReader(series)); err != nil {
			t.Error(err)
		}
	}
	figures := func(phase, reason string, percent int) string {
		return fmt.Sprintf(`
# HELP syncopate_rollout_percent Part of the runs, in percent, that have the candidate of a LockPolicy.
# TYPE syncopate_rollout_percent gauge
syncopate_rollout_percent{policy="polled"} %d
# HELP syncopate_rollout_phase 1 for the phase of each LockPolicy's rollout, and its reason.
# TYPE syncopate_rollout_phase gauge
syncopate_rollout_phase{phase=%q,policy="polled",reason=%q} 1
`, percent, phase, reason)
	}
	w.pass()
	expect(figures("Progressing", "CanaryRuns", 20))
	w.play(60, 9, 2)
	w.beforeWrite = func(client.Object) {
		w.beforeWrite = nil
		expect(figures("Progressing", "CanaryRuns", 20))
		w.edit(func(p *v1alpha1.LockPolicy) { p.Labels = map[string]string{"who": "other"} })
	}
	w.clock.SetTime(w.clock.Now().Add(refreshEvery))
	w.pass()
	expect(figures("Progressing", "CanaryRuns", 20)) // the write met another
	w.pass()
	expect(figures("RolledBack", "BusyRunsWorse", 0))
	w.r.Elected = func() bool { return false }
	w.pass()
	expect("")
	w.r.Elected = nil
	w.pass()
	expect(figures("RolledBack", "BusyRunsWorse", 0))
	if err := w.client.Delete(t.Context(), w.get(polled)); err != nil {
		t.Fatal(err)
	}
	w.pass0()
	expect("")
}

// pass0 is a pass when there is no policy.
func (w *world) pass0() {
	w.t.Helper()
	if _, err := w.try(); err != nil {
		w.t.Fatal(err)
	}
}
