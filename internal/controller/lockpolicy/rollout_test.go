// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/rollout"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

const polled = "polled"

// canaried is a policy with jitter whose edits are tried on 20, then on 50 percent of the runs.
func (w *world) canaried() {
	w.t.Helper()
	p := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: polled}, Spec: v1alpha1.LockPolicySpec{
		WorkloadClasses: []string{polled},
		RunLock:         v1alpha1.RunLockPolicy{Wait: v1alpha1.LockWait{Mode: v1alpha1.WaitModePoll}},
		Admission:       v1alpha1.AdmissionPolicy{MaxConcurrentRuns: new(int32(3)), Strategy: v1alpha1.AdmissionStrategyLock},
		Rollout: &v1alpha1.LockPolicyRollout{
			Strategy: v1alpha1.RolloutStrategyCanary, StepsPercent: []int32{20, 50}, MinContendedRuns: 30,
		},
	}}
	if err := w.client.Create(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
	w.pass()
	w.is(rollout.Stable, 0, v1alpha1.ReasonInForce)
}

func (w *world) edit(change func(*v1alpha1.LockPolicy)) {
	w.t.Helper()
	p := w.get(polled)
	change(p)
	if err := w.client.Update(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
}

func fixed(p *v1alpha1.LockPolicy) { p.Spec.RunLock.BusyRetry.Mode = v1alpha1.JitterModeFixed }

func handOff(p *v1alpha1.LockPolicy) { p.Spec.RunLock.Wait.Mode = v1alpha1.WaitModeHandOff }

func (w *world) rollout() *v1alpha1.LockPolicyRolloutStatus {
	w.t.Helper()
	r := w.status(polled).Rollout
	if r == nil {
		w.t.Fatal("no rollout")
	}
	return r
}

// is compares where the rollout is.
func (w *world) is(phase rollout.Phase, percent int32, reason string) {
	w.t.Helper()
	r := w.rollout()
	c := meta.FindStatusCondition(w.get(polled).Status.Conditions, v1alpha1.ConditionRolledOut)
	if r.Phase != v1alpha1.RolloutPhase(phase) || r.Percent != percent || r.Reason != reason || c == nil || c.Reason != reason {
		w.t.Fatalf("%s at %d percent, %s: %s; want %s at %d, %s. Condition %+v", r.Phase, r.Percent, r.Reason, r.Message, phase, percent, reason, c)
	}
}

// slower has the lock of a tenant tried every 200 ms, and not every 10.
func slower(p *v1alpha1.LockPolicy) { p.Spec.Admission.Lock.Retry.DelayMillis = 200 }

// play lets runs, or tenant-minutes, of both arms begin and end. Of ten contended ones so many are
// busy.
func (w *world) play(n, busyOfCanary, busyOfControl int) {
	w.t.Helper()
	r := w.get(polled).Status.Rollout
	if r.Candidate == nil || r.Percent == 0 {
		return
	}
	e := ballot.Entry{Policy: polled, Candidate: r.Candidate.Name}
	for i := range n {
		for arm, busy := range map[rollout.Arm]int{rollout.Canary: busyOfCanary, rollout.Control: busyOfControl} {
			tries := 1
			if i%10 < busy {
				tries = 2
			}
			w.r.Ballots.Began(e, arm)
			latency := time.Second
			if r.Unit == v1alpha1.RolloutUnitTenantMinute {
				latency = -1
			}
			w.r.Ballots.Ended(e, arm, ballot.Vote{BusyTries: tries, Wait: 500 * time.Millisecond, Latency: latency})
		}
		for range (100 - 2*r.Percent) / r.Percent {
			w.r.Ballots.Began(e, rollout.Rest)
		}
	}
}

func (w *world) events() (reasons []string) {
	for {
		select {
		case e := <-w.told.Events:
			reasons = append(reasons, strings.Fields(e)[1])
		default:
			return reasons
		}
	}
}

// mutation: a candidate in force before it is promoted, counts that are not added up, or events
// before the write make this fail.
func TestACandidateThatIsNoWorseIsPromoted(t *testing.T) {
	w := newWorld(t)
	w.canaried()
	w.edit(handOff)
	w.pass()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	if policy.InForce(w.get(polled)).RunLock.Wait.Poll == false {
		t.Error("the candidate is in force for runs that are in no canary")
	}
	if w.status(polled).Effective.BusyRetryDelay != "350-650ms" {
		t.Errorf("effective %+v", w.status(polled).Effective)
	}
	var percents []int32
	for range 20 {
		w.play(40, 3, 3)
		w.refresh()
		if p := w.rollout().Percent; !slices.Contains(percents, p) {
			percents = append(percents, p)
		}
	}
	w.is(rollout.Promoted, 0, v1alpha1.ReasonAllStepsPassed)
	if diff := cmp.Diff([]int32{20, 50, 0}, percents); diff != "" {
		t.Errorf("percentages (-want +got):\n%s", diff)
	}
	if policy.InForce(w.get(polled)).RunLock.Wait.Poll {
		t.Error("the promoted candidate is not in force")
	}
	if diff := cmp.Diff([]string{"CanaryRuns", "CanaryRuns", "AllStepsPassed"}, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	before := w.versions()
	w.pass()
	if diff := cmp.Diff(before, w.versions()); diff != "" {
		t.Errorf("a policy at rest is written (-before +after):\n%s", diff)
	}
	var kept appsv1.ControllerRevisionList
	if err := w.client.List(t.Context(), &kept, client.MatchingLabels{policy.LabelRevisions: polled}); err != nil || len(kept.Items) != 2 {
		t.Errorf("%d revisions are kept, %v; want baseline and candidate", len(kept.Items), err)
	}
}

func TestACandidateThatIsWorseIsRolledBack(t *testing.T) {
	w := newWorld(t)
	w.canaried()
	w.edit(fixed)
	w.pass()
	w.play(60, 9, 2)
	w.refresh()
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonBusyRunsWorse)
	if w.get(polled).Spec.RunLock.BusyRetry.Mode != v1alpha1.JitterModeFixed {
		t.Error("spec was changed")
	}
	if policy.InForce(w.get(polled)).RunLock.BusyRetry.Fixed {
		t.Error("what was rolled back is in force")
	}
	name := w.rollout().Candidate.Name
	w.edit(handOff)
	w.pass()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	w.edit(func(p *v1alpha1.LockPolicy) { p.Spec.RunLock.Wait.Mode = v1alpha1.WaitModePoll })
	w.pass()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	if again := w.rollout().Candidate.Name; again == name || !strings.HasPrefix(again, name[:hashLength]) {
		t.Errorf("the same content is tried again as %s; it was %s", again, name)
	}
	var history []string
	for _, h := range w.rollout().History {
		history = append(history, fmt.Sprint(h.Reason, h.Changes))
	}
	if diff := cmp.Diff([]string{"BusyRunsWorse[busyRetry.mode: Jittered -> Fixed]", "Superseded[busyRetry.mode: Jittered -> Fixed wait.mode: Poll -> HandOff]"}, history); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestAStepWithTooFewRunsIsRolledBack(t *testing.T) {
	w := newWorld(t)
	w.canaried()
	w.edit(handOff)
	w.pass()
	w.play(29, 3, 3)
	w.refresh()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	w.pass()
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonInsufficientData)
}

func TestCommandsOfUsers(t *testing.T) {
	w := newWorld(t)
	w.canaried()
	say := func(verb, name string) {
		w.edit(func(p *v1alpha1.LockPolicy) {
			p.Annotations = map[string]string{v1alpha1.AnnotationRollout: verb + " " + name}
		})
		w.pass()
	}
	w.edit(fixed)
	w.pass()
	say("promote", "another-1")
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	name := w.rollout().Candidate.Name
	say("abort", name)
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonAbortedByUser)
	say("promote", name)
	w.is(rollout.Promoted, 0, v1alpha1.ReasonPromotedByUser)
	w.edit(func(p *v1alpha1.LockPolicy) { p.Spec.Rollout.Strategy = v1alpha1.RolloutStrategyImmediate })
	w.edit(handOff)
	w.pass()
	w.is(rollout.Promoted, 0, v1alpha1.ReasonImmediate)
	w.edit(func(p *v1alpha1.LockPolicy) { p.Spec.Rollout = nil })
	w.pass()
	if st := w.status(polled); st.Rollout != nil || meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionRolledOut) != nil {
		t.Errorf("a policy without a rollout has %+v", st)
	}
}

// Counts that go back, by a hand or by a bug, are no evidence.
func TestCountsThatGoBackPromoteNothing(t *testing.T) {
	w := newWorld(t)
	w.canaried()
	w.edit(handOff)
	w.pass()
	w.play(20, 3, 3)
	w.refresh()
	p := w.get(polled)
	p.Status.Rollout.Replicas[0].Canary.Ended -= 5
	if err := w.client.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.refresh()
	w.is(rollout.RolledBack, 0, v1alpha1.ReasonSampleRatioMismatch)
}

var errKilled = errors.New("killed")

// The operator dies before and after each of its writes, and another goes on: the rollout ends as
// it would, and on its way there is one candidate at most, and no step back.
//
// mutation: counts added to those that are stored, instead of kept by process; and a status that
// names a revision before it is kept make this fail.
func TestKilledAtEachWrite(t *testing.T) {
	for what, edit := range map[string]func(*v1alpha1.LockPolicy){"runLock": handOff, "admission": slower} {
		for _, bad := range []bool{false, true} {
			for _, after := range []bool{false, true} {
				for at := 1; ; at++ {
					if !killedAt(t, edit, bad, after, at) {
						t.Logf("%s, bad %v, after %v: %d writes", what, bad, after, at-1)
						break
					}
				}
			}
		}
	}
}

// killedAt plays a rollout with a kill at one write, and says whether there was such a write.
func killedAt(t *testing.T, edit func(*v1alpha1.LockPolicy), bad, after bool, at int) (killed bool) {
	t.Helper()
	w := newWorld(t)
	w.canaried()
	w.edit(edit)
	writes := 0
	w.crash = func(done bool) error {
		if done != after {
			return nil
		}
		if writes++; writes != at {
			return nil
		}
		killed = true
		return errKilled
	}
	last := int32(0)
	for range 25 {
		w.clock.SetTime(w.clock.Now().Add(refreshEvery))
		if _, err := w.try(); errors.Is(err, errKilled) {
			w.restart()
		} else if err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		r := w.get(polled).Status.Rollout
		if r.Phase == "Promoted" || r.Phase == "RolledBack" {
			break
		}
		if r.Percent < last {
			t.Fatalf("from %d percent to %d", last, r.Percent)
		}
		last = r.Percent
		busy := 3
		if bad {
			busy = 9
		}
		if r.Candidate != nil {
			w.play(25, busy, 3)
		}
	}
	w.crash = nil
	where := fmt.Sprintf("killed at write %d, after it: %v", at, after)
	r := w.get(polled).Status.Rollout
	want := v1alpha1.RolloutPhase("Promoted")
	if bad {
		want = "RolledBack"
	}
	if r.Phase != want {
		t.Fatalf("%s: %s at %d percent, %s: %s", where, r.Phase, r.Percent, r.Reason, r.Message)
	}
	for _, rev := range []string{r.Baseline.Name, r.Candidate.Name} {
		key := client.ObjectKey{Namespace: "default", Name: polled + "-" + rev}
		if err := w.client.Get(t.Context(), key, &appsv1.ControllerRevision{}); err != nil {
			t.Fatalf("%s: %v", where, err)
		}
	}
	return killed
}
