// SPDX-License-Identifier: Apache-2.0

package trials

import (
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/rollout"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func aPart(arm rollout.Arm) Part {
	return Part{Policy: "shared", Trial: policy.Trial{Candidate: "4f2a-2", Arm: arm}, Ballots: ballot.NewBox(nil, nil)}
}

// mutation: votes of this process that replace those of others, or of a candidate of before that
// count for this one, make this fail.
func TestVotesAreTheLargestOfAllProcesses(t *testing.T) {
	waits := leases.Votes{BusyTries: 3, Wait: time.Second}
	result := func(ago time.Duration) []lifecycle.Result {
		return []lifecycle.Result{{PublishedAt: epoch.Add(-ago)}}
	}
	pinned := func(candidate string) *v1alpha1.WorkflowRun {
		return &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Policy: &v1alpha1.PolicyReference{
			Name: "shared", Trial: &v1alpha1.PolicyTrial{
				Candidate: candidate, Arm: "Canary", BusyTries: 1, LongestWaitMillis: 5000, LongestLatencyMillis: 40,
			},
		}}}
	}
	for name, test := range map[string]struct {
		run     *v1alpha1.WorkflowRun
		waits   leases.Votes
		results []lifecycle.Result
		want    v1alpha1.PolicyTrial
	}{
		"the first":                    {&v1alpha1.WorkflowRun{}, waits, nil, v1alpha1.PolicyTrial{BusyTries: 3, LongestWaitMillis: 1000}},
		"with a result in hand":        {&v1alpha1.WorkflowRun{}, leases.Votes{}, result(30 * time.Millisecond), v1alpha1.PolicyTrial{LongestLatencyMillis: 30}},
		"of a clock that is ahead":     {&v1alpha1.WorkflowRun{}, leases.Votes{}, result(-time.Hour), v1alpha1.PolicyTrial{LongestLatencyMillis: 1}},
		"beside those of others":       {pinned("4f2a-2"), waits, nil, v1alpha1.PolicyTrial{BusyTries: 3, LongestWaitMillis: 5000, LongestLatencyMillis: 40}},
		"a result that was faster":     {pinned("4f2a-2"), waits, result(30 * time.Millisecond), v1alpha1.PolicyTrial{BusyTries: 3, LongestWaitMillis: 5000, LongestLatencyMillis: 40}},
		"a result that was slower":     {pinned("4f2a-2"), waits, result(1500 * time.Millisecond), v1alpha1.PolicyTrial{BusyTries: 3, LongestWaitMillis: 5000, LongestLatencyMillis: 1500}},
		"of a candidate of before":     {pinned("77aa-1"), waits, nil, v1alpha1.PolicyTrial{BusyTries: 3, LongestWaitMillis: 1000}},
		"without a wait and a result":  {&v1alpha1.WorkflowRun{}, leases.Votes{}, nil, v1alpha1.PolicyTrial{}},
		"two results, the slower last": {&v1alpha1.WorkflowRun{}, leases.Votes{}, append(result(time.Second), result(2*time.Second)...), v1alpha1.PolicyTrial{LongestLatencyMillis: 2000}},
	} {
		t.Run(name, func(t *testing.T) {
			test.want.Candidate, test.want.Arm = "4f2a-2", "Canary"
			if diff := cmp.Diff(&test.want, aPart(rollout.Canary).Votes(test.run, test.waits, test.results, epoch)); diff != "" {
				t.Errorf("votes (-want +got):\n%s", diff)
			}
			if got := aPart(rollout.Rest).Votes(test.run, test.waits, test.results, epoch); got != nil {
				t.Errorf("a run in no arm votes %+v", got)
			}
		})
	}
}

// mutation: a vote with each write, or an abandoned lock counted again when it recovers, makes this
// fail.
func TestARunIsCountedOnce(t *testing.T) {
	p, run, refused := aPart(rollout.Control), &v1alpha1.WorkflowRun{}, false
	write := func(waits leases.Votes, change func(*v1alpha1.WorkflowRunStatus)) {
		next := run.DeepCopy()
		if next.Status == nil {
			next.Status = &v1alpha1.WorkflowRunStatus{}
		}
		next.Status.Fence = new(int64(1))
		next.Status.Policy = &v1alpha1.PolicyReference{Name: "shared", Trial: p.Votes(run, waits, nil, epoch)}
		change(next.Status)
		p.Count(run, next, false)
		run = next
	}
	abandoned := func(status metav1.ConditionStatus, reason string) func(*v1alpha1.WorkflowRunStatus) {
		return func(st *v1alpha1.WorkflowRunStatus) {
			st.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionRunLockAbandoned, Status: status, Reason: reason}}
		}
	}
	write(leases.Votes{}, abandoned(metav1.ConditionFalse, v1alpha1.ReasonNotAbandoned))
	write(leases.Votes{}, abandoned(metav1.ConditionTrue, v1alpha1.ReasonOwnershipLost))
	write(leases.Votes{}, abandoned(metav1.ConditionFalse, v1alpha1.ReasonRecovered))
	write(leases.Votes{}, abandoned(metav1.ConditionTrue, v1alpha1.ReasonOwnershipLost))
	p.CountFenceRefused(&refused)
	p.CountFenceRefused(&refused)
	end := func(st *v1alpha1.WorkflowRunStatus) {
		st.Phase, st.CompletedAt = v1alpha1.RunSucceeded, &metav1.Time{Time: epoch}
	}
	write(leases.Votes{BusyTries: 2}, end)
	write(leases.Votes{BusyTries: 2}, end)
	got := p.Ballots.Of(ballot.Entry{Policy: "shared", Candidate: "4f2a-2"})
	want := rollout.Counts{Runs: 1, Ended: 1, Contended: 1, Busy: 1, Abandoned: 1, FenceRefused: 1}
	want.Waits.Add(0)
	if diff := cmp.Diff(rollout.Tally{Control: want}, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// A run that waits for its first lock began, whether it ever has it or not.
//
// mutation: a begin that is counted by the fence alone, or once more with the first fence,
// makes this fail.
func TestARunThatWaitsForItsFirstLockIsCounted(t *testing.T) {
	for arm, want := range map[rollout.Arm]rollout.Tally{
		rollout.Canary: {Canary: rollout.Counts{Runs: 1}}, rollout.Control: {Control: rollout.Counts{Runs: 1}}, rollout.Rest: {Rest: 1},
	} {
		p, fresh := aPart(arm), &v1alpha1.WorkflowRun{}
		waits := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{
			Policy: &v1alpha1.PolicyReference{Name: "shared", Trial: p.Votes(fresh, leases.Votes{}, nil, epoch)},
		}}
		had := waits.DeepCopy()
		had.Status.Fence = new(int64(1))
		for _, write := range [][2]*v1alpha1.WorkflowRun{{fresh, waits}, {waits, waits}, {waits, had}} {
			p.Count(write[0], write[1], false)
			if got := p.Ballots.Of(ballot.Entry{Policy: "shared", Candidate: "4f2a-2"}); got != want {
				t.Errorf("arm %q: counted as %+v; want %+v", arm, got, want)
			}
		}
	}
}

func TestARunInNoArmIsCountedWhenItBegins(t *testing.T) {
	p := aPart(rollout.Rest)
	begun := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Fence: new(int64(1))}}
	p.Count(&v1alpha1.WorkflowRun{}, begun, false)
	p.Count(begun, begun, false)
	p.CountFenceRefused(new(bool))
	if got := p.Ballots.Of(ballot.Entry{Policy: "shared", Candidate: "4f2a-2"}); got != (rollout.Tally{Rest: 1}) {
		t.Errorf("a run in no arm is counted as %+v", got)
	}
	none := Part{Ballots: ballot.NewBox(nil, nil)}
	none.Count(&v1alpha1.WorkflowRun{}, begun, false)
	if got := none.Ballots.Of(ballot.Entry{}); got != (rollout.Tally{}) {
		t.Errorf("a run without a rollout is counted as %+v", got)
	}
}

// A result that is none is its worker's doing, whatever the policy. One that could not be processed
// is the operator's, but for one that does not fit into an object which its tenant fills.
//
// mutation: a dead letter that counts though there was no room for it, or a condition that is
// looked at without its reason makes this fail: a worker takes each edit back.
func TestAResultThatAWorkerSpoiltStrikesNobody(t *testing.T) {
	const no, rejected, exhausted = v1alpha1.ReasonNoDeadLetters, v1alpha1.ReasonResultRejected, v1alpha1.ReasonDeliveriesExhausted
	const noRoom = "exhausted, as the object has no room"
	for name, test := range map[string]struct {
		reasons []string
		struck  int64
	}{
		"spoilt":                            {[]string{no, rejected, rejected}, 0},
		"not processed":                     {[]string{no, exhausted, exhausted}, 1},
		"spoilt, and another not processed": {[]string{no, rejected, exhausted}, 1},
		"not processed, from the begin":     {[]string{exhausted}, 1},
		"no room in the object":             {[]string{no, noRoom, exhausted}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, run, told := aPart(rollout.Canary), &v1alpha1.WorkflowRun{}, int64(0)
			p.Log = funcr.New(func(string, string) { told++ }, funcr.Options{})
			for _, reason := range test.reasons {
				c := metav1.Condition{Type: v1alpha1.ConditionDeadLettered, Status: metav1.ConditionTrue, Reason: reason}
				switch reason {
				case no:
					c.Status = metav1.ConditionFalse
				case noRoom:
					c.Reason = exhausted
				}
				next := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Conditions: []metav1.Condition{c}}}
				p.Count(run, next, reason == noRoom)
				run = next
			}
			got := p.Ballots.Of(ballot.Entry{Policy: "shared", Candidate: "4f2a-2"})
			if got.Canary.DeadLettered != test.struck || told != test.struck {
				t.Errorf("%d dead letters are counted, and %d told; want %d", got.Canary.DeadLettered, told, test.struck)
			}
		})
	}
}

// A run of which another result is put aside, after one that its worker spoilt, is still one run.
//
// mutation: a rejected result that takes the place of one that could not be processed makes
// this fail.
func TestADeadLetterStrikesOnceWhateverFollows(t *testing.T) {
	p, run := aPart(rollout.Canary), &v1alpha1.WorkflowRun{}
	run.UID, run.Generation, run.CreationTimestamp = "u-1", 1, metav1.Time{Time: epoch}
	for _, name := range []string{"a", "b", "c"} {
		run.Spec.Steps = append(run.Spec.Steps, v1alpha1.Step{
			Name: name, Job: &v1alpha1.Job{Topic: "t"}, TimeoutSeconds: 60, StartTimeoutSeconds: 600, Retry: v1alpha1.Retry{MaxFailures: 3},
		})
	}
	run.Spec.MaxParallelSteps = 3
	job := func(step string) protocol.JobID {
		return protocol.JobID{RunUID: "u-1", Step: step, Item: protocol.NoItem, Attempt: 1}
	}
	dead := func(step string) []lifecycle.DeadLetter {
		return []lifecycle.DeadLetter{{ID: job(step), Failures: 5, Cause: "denied"}}
	}
	lock := lifecycle.Lock{State: lifecycle.LockHeld, LeaseID: "l", Holder: "operator-0", Fence: 1, AcquiredAt: epoch}
	now := epoch
	for i, in := range []lifecycle.Input{
		{}, {DeadLetters: dead("a")}, {Results: []lifecycle.Result{{ID: job("b"), Rejected: "no JSON"}}}, {DeadLetters: dead("c")},
	} {
		now = now.Add(time.Second)
		in.Run, in.Now, in.Lock, in.Gate = run, now, lock, lifecycle.Gate{State: lifecycle.GateOpen}
		in.Tenant, in.Permits = lifecycle.Tenant{Name: "acme", Allowed: true}, lifecycle.Permits{AnyClass: true, AnyTopic: true}
		in.Answers, in.SignalsAsOf = lifecycle.Answers{AsOf: now}, now
		d := lifecycle.Decide(in)
		next := run.DeepCopy()
		next.Status = &d.Status
		if c := conditionOf(next, v1alpha1.ConditionDeadLettered); c == nil || (c.Status == metav1.ConditionTrue) != (i > 0) {
			t.Fatalf("decision %d: %+v", i, c)
		}
		p.Count(run, next, false)
		run = next
	}
	if s := run.Status.Steps[1]; s.Error == nil || s.Error.Code != v1alpha1.ReasonResultRejected {
		t.Fatalf("step b: %+v", s)
	}
	if got := p.Ballots.Of(ballot.Entry{Policy: "shared", Candidate: "4f2a-2"}).Canary.DeadLettered; got != 1 {
		t.Errorf("it counts as %d runs", got)
	}
}
