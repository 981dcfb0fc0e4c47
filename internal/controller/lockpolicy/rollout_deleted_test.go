// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/rollout"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

// begins is a run that began in an arm of the candidate, and ended if it is said when.
func (w *world) begins(arm rollout.Arm, candidate string, ended *metav1.Time) *v1alpha1.WorkflowRun {
	w.t.Helper()
	w.r.Ballots.Began(ballot.Entry{Policy: polled, Candidate: candidate}, arm)
	st := &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Fence: new(int64(1)), CompletedAt: ended, Policy: &v1alpha1.PolicyReference{
		Name: polled, Trial: &v1alpha1.PolicyTrial{Candidate: candidate, Arm: v1alpha1.RolloutArm(arm)},
	}}
	if ended != nil {
		st.Phase = v1alpha1.RunSucceeded
	}
	return w.run(polled, st)
}

// spares lets runs of both arms begin and end: half of the control's are contended, and none of the
// canary's.
func (w *world) spares(n int) {
	r := w.get(polled).Status.Rollout
	e := ballot.Entry{Policy: polled, Candidate: r.Candidate.Name}
	for i := range n {
		for arm, v := range map[rollout.Arm]ballot.Vote{
			rollout.Canary: {}, rollout.Control: {BusyTries: i % 2, Wait: time.Duration(i%2) * 500 * time.Millisecond},
		} {
			v.Latency = time.Second
			w.r.Ballots.Began(e, arm)
			w.r.Ballots.Ended(e, arm, v)
		}
		w.rest(e.Candidate)
	}
}

// rest are the runs in neither arm that begin, of 20 percent, while one of each begins.
func (w *world) rest(candidate string) {
	for range 3 {
		w.r.Ballots.Began(ballot.Entry{Policy: polled, Candidate: candidate}, rollout.Rest)
	}
}

// A run that is deleted before its end is under way no more. Those that are there and did not end
// are, whichever process counted them; another candidate's are not.
//
// mutation: runs under way that are what began and did not end as far as is counted, those that
// ended, those of other candidates, and those of any arm taken for the canary's make this fail.
func TestARunThatWasDeletedIsNotUnderWay(t *testing.T) {
	w := trying(t, handOff)
	name, now := w.rollout().Candidate.Name, metav1.NewTime(time.Unix(1_700_000_000, 0))
	w.spares(40)
	for range 40 { // they were deleted
		for _, arm := range []rollout.Arm{rollout.Canary, rollout.Control} {
			w.r.Ballots.Began(ballot.Entry{Policy: polled, Candidate: name}, arm)
		}
		w.rest(name)
	}
	w.begins(rollout.Canary, name, nil)
	w.begins(rollout.Canary, name, nil)
	w.begins(rollout.Control, name, nil)
	w.begins(rollout.Control, name, &now)
	w.begins(rollout.Control, "77aa-1", nil)
	w.refresh()
	want := rollout.UnderWay{Known: true, Canary: 2, Control: 1}
	if got := w.r.underWayOf(polled, w.get(polled).Status.Rollout); got != want {
		t.Errorf("under way: %+v; want %+v", got, want)
	}
	w.spares(60)
	w.refresh()
	w.is(rollout.Progressing, 50, v1alpha1.ReasonCanaryRuns)
}

// Runs that began since the last refresh are under way, too.
//
// mutation: runs that are looked at in refreshes only make this fail: the step passes.
func TestRunsAreLookedAtInEachDecision(t *testing.T) {
	w := trying(t, handOff)
	name := w.rollout().Candidate.Name
	w.spares(40)
	w.refresh()
	for range 40 {
		w.begins(rollout.Canary, name, nil)
		w.begins(rollout.Control, name, nil)
		w.rest(name)
	}
	w.spares(60)
	w.pass()
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
	if r := w.rollout(); r.Canary == nil || r.Canary.Runs != 140 {
		t.Errorf("counted: %+v", r.Canary)
	}
}
