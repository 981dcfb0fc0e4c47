// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/event"

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
	want := rollout.UnderWay{Known: true, Canary: 2, Control: 1, EndedControl: 1}
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

// votes lets runs of an arm begin and end, some contended, some of them busy.
func (w *world) votes(arm rollout.Arm, candidate string, ended, contended, busy int) {
	e := ballot.Entry{Policy: polled, Candidate: candidate}
	for i := range ended {
		v := ballot.Vote{Latency: time.Second}
		if i < contended {
			v.BusyTries, v.Wait = 1, 500*time.Millisecond
		}
		if i < busy {
			v.BusyTries = 2
		}
		w.r.Ballots.Began(e, arm)
		w.r.Ballots.Ended(e, arm, v)
	}
}

// deletes deletes runs, and has the events told to the replica, as its cache does.
func (w *world) deletes(runs ...*v1alpha1.WorkflowRun) {
	w.t.Helper()
	for _, run := range runs {
		if err := w.client.Delete(w.t.Context(), run); err != nil {
			w.t.Fatal(err)
		}
		w.r.deleted.add(event.DeleteEvent{Object: run}, w.clock)
	}
}

// The votes of runs that ended come with the next report of the replica that wrote their end. Until
// then these runs are no deleted ones: those of the control may have voted yes. That is so for runs
// that are deleted as soon as they ended, too. One whose end is not told for so long that its vote
// must be there has none.
//
// mutation: runs that ended and are left out at once, or as they are deleted, that count as long as
// they are there, or for as long again after they were deleted, and those of both arms that make up
// for each other, though counts lack more of the control, make this fail.
func TestVotesThatAreNotReportedYetAreWaitedFor(t *testing.T) {
	for name, deleted := range map[string]int{"the runs are kept": 0, "deleted as they end": 1, "deleted after one look": 2, "deleted after two": 3} {
		t.Run(name, func(t *testing.T) {
			w := trying(t, handOff)
			name := w.rollout().Candidate.Name
			longAgo := metav1.NewTime(w.clock.Now().Add(-time.Hour).Truncate(time.Second)) // by a clock that is behind
			w.votes(rollout.Canary, name, 190, 25, 20)
			w.votes(rollout.Control, name, 190, 15, 3)
			for range 200 {
				w.rest(name)
			}
			var runs []*v1alpha1.WorkflowRun
			for i := range 10 {
				runs = append(runs, w.begins(rollout.Control, name, &longAgo), w.begins(rollout.Canary, name, &longAgo))
				if i < 8 {
					w.r.Ballots.Ended(ballot.Entry{Policy: polled, Candidate: name}, rollout.Canary, ballot.Vote{Latency: time.Second})
				}
			}
			for look := 1; look <= 3; look++ {
				w.clock.SetTime(w.clock.Now().Add(refreshEvery))
				if look == deleted {
					w.deletes(runs...)
				}
				w.pass()
				w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns)
				none := strings.Contains(w.rollout().Message, "2 runs of the canary and 10 of the control have no vote")
				if none != (look == 3) {
					t.Errorf("look %d: %s", look, w.rollout().Message)
				}
			}
		})
	}
}

// What was under way until it was deleted never votes, unless nobody saw its last state.
//
// mutation: a delete of any run that counts, one that never does, an event without the last state
// that counts by what is known of it, and runs that are kept for ever make this fail.
func TestOfDeletedRunsThoseThatEndedMayHaveAVote(t *testing.T) {
	w := trying(t, handOff)
	name, now := w.rollout().Candidate.Name, metav1.NewTime(time.Unix(1_700_000_000, 0))
	w.deletes(w.begins(rollout.Canary, name, nil))
	w.deletes(w.begins(rollout.Control, name, &now))
	w.deletes(w.begins(rollout.Control, "77aa-1", &now))
	w.deletes(w.run(polled, nil))
	unseen := w.begins(rollout.Canary, name, nil)
	w.deletes(unseen)
	w.r.deleted.add(event.DeleteEvent{Object: unseen, DeleteStateUnknown: true}, w.clock)
	w.pass()
	want := rollout.UnderWay{Known: true, EndedCanary: 1, EndedControl: 1}
	if got := w.r.underWayOf(polled, w.get(polled).Status.Rollout); got != want {
		t.Errorf("under way: %+v; want %+v", got, want)
	}
	w.clock.SetTime(w.clock.Now().Add(reportedAfter))
	w.deletes(w.begins(rollout.Canary, name, &now))
	if kept := len(w.r.deleted.runs); kept != 1 {
		t.Errorf("%d deleted runs are kept; want 1", kept)
	}
}

// A namespace with very many runs is deleted in a moment.
//
// mutation: add that keeps all of them makes this fail.
func TestDeletedRunsHaveABound(t *testing.T) {
	t.Parallel()
	run := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{
		CompletedAt: &metav1.Time{Time: time.Unix(1_700_000_000, 0)}, Phase: v1alpha1.RunSucceeded,
		Policy: &v1alpha1.PolicyReference{Trial: &v1alpha1.PolicyTrial{}},
	}}
	var d deletes
	clk := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	for i := range mostDeletes + 2 {
		run.UID = types.UID(strconv.Itoa(i))
		d.add(event.DeleteEvent{Object: run}, clk)
	}
	if len(d.runs) != mostDeletes || d.runs[0].run != "2" {
		t.Errorf("%d are kept, the first is %s", len(d.runs), d.runs[0].run)
	}
}
