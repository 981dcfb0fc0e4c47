// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/rollout"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

// tries has a candidate tried on half of the runs of this world, the others are the control.
func (w *world) tries(candidate string) {
	p := &w.policies[0]
	p.Spec.Rollout = &v1alpha1.LockPolicyRollout{Strategy: v1alpha1.RolloutStrategyCanary}
	p.Status = &v1alpha1.LockPolicyStatus{Rollout: &v1alpha1.LockPolicyRolloutStatus{
		Phase: "Progressing", Percent: 50,
		Baseline:  v1alpha1.RolloutRevision{Name: "old-1", Generation: 1, RunLock: p.Spec.RunLock},
		Candidate: &v1alpha1.RolloutRevision{Name: candidate, Generation: 2, RunLock: p.Spec.RunLock},
	}}
}

var _ = Describe("a run under a policy that rolls out", func() {
	counting := func(r *replica) { r.Ballots = ballot.NewBox(nil, nil) }

	// mutation: an arm drawn anew with each write, or a vote with each write, makes this fail.
	It("keeps its arm from its first write to its end, though another candidate comes, and votes once, for its own", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, quick())
		w.tries("4f2a-2")
		a := w.newReplica(ctx, "a", counting)
		run := w.create(ctx, twoSteps())
		now := a.inFlight(ctx, run, 1)
		arm := rollout.ArmOf(string(now.UID), "4f2a-2", 50)
		Expect(now.Status.Policy.Trial).To(HaveValue(And(HaveField("Candidate", "4f2a-2"), HaveField("Arm", BeEquivalentTo(arm)))))

		w.tries("77aa-3")
		now = a.finish(ctx, run)
		Expect(now.Status.Policy.Trial).To(HaveValue(And(
			HaveField("Candidate", "4f2a-2"), HaveField("Arm", BeEquivalentTo(arm)), HaveField("LongestLatencyMillis", BeNumerically(">", 0)),
		)))
		a.turn(ctx, run)
		of := func(candidate string) rollout.Tally {
			e := ballot.Entry{Policy: w.ns, Candidate: candidate}
			return a.Ballots.Of(e)
		}
		tally := of("4f2a-2")
		mine := map[rollout.Arm]rollout.Counts{rollout.Canary: tally.Canary, rollout.Control: tally.Control}[arm]
		Expect(mine).To(And(HaveField("Runs", BeEquivalentTo(1)), HaveField("Ended", BeEquivalentTo(1))))
		Expect(tally.Canary.Ended + tally.Control.Ended).To(BeEquivalentTo(1))
		Expect(of("77aa-3")).To(BeZero())
	}, NodeTimeout(2*patience))

	// mutation: runAhead that does not note the part of the run makes this fail: what is kept has a
	// fence, and no arm.
	It("is counted as begun though it is in neither arm, and its first write comes after it began", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.coalesced(ctx)
		r := w.newReplica(ctx, "r", here, counting)
		run := w.create(ctx, chainOf(2))
		candidate := "4f2a-2"
		for n := 3; rollout.ArmOf(string(run.UID), candidate, 5) != rollout.Rest; n++ {
			candidate = fmt.Sprint("4f2a-", n)
		}
		w.tries(candidate)
		w.policies[0].Status.Rollout.Percent = 5
		r.rush(ctx, run, 2)
		Expect(r.lags(run)).To(BeTrue(), "it began ahead of its status")
		Expect(r.Ballots.Of(ballot.Entry{Policy: w.ns, Candidate: candidate}).Rest).To(BeZero(), "nothing is written")
		w.policies[0].Status.Rollout.Percent = 50 // it stays where it began
		Expect(r.finish(ctx, run).Status.Policy.Trial).To(BeNil())
		Expect(r.Ballots.Of(ballot.Entry{Policy: w.ns, Candidate: candidate})).To(Equal(rollout.Tally{Rest: 1}))
	}, NodeTimeout(2*patience))

	// mutation: an end without the lock that votes with the waits that got it only makes this fail.
	It("votes with the wait that its deadline ends: it had no lock, which is worse than to get it late", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, brief())
		w.tries("4f2a-2")
		r := w.newReplica(ctx, "r", counting)
		run := w.create(ctx, twoSteps(), func(s *v1alpha1.WorkflowRunSpec) { s.ActiveDeadlineSeconds = new(int32(60)) })
		arm := rollout.ArmOf(string(run.UID), "4f2a-2", 50)
		r.inFlight(ctx, run, 1)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run) // the lease lingers no more
		w.takeLock(ctx, run)
		for _, t := range w.takeAll(ctx, 1) {
			t.succeed(ctx)
			r.pumpAll(ctx, 1)
		}
		const tries = 3
		for range tries {
			r.mustPass(ctx, run)
			w.clock.Step(2 * time.Second)
		}
		Expect(w.get(ctx, run).Status.Policy.Trial).To(HaveValue(HaveField("BusyTries", BeZero())), "nothing is written for that")
		w.clock.Step(time.Minute)
		r.mustPass(ctx, run)
		now := w.get(ctx, run)
		Expect(lifecycle.Finished(now)).To(BeTrue())
		Expect(now.Status.Policy.Trial).To(HaveValue(And(
			HaveField("BusyTries", BeEquivalentTo(tries+1)), HaveField("LongestWaitMillis", BeEquivalentTo(66_000)),
		)))
		tally := r.Ballots.Of(ballot.Entry{Policy: w.ns, Candidate: "4f2a-2"})
		Expect(map[rollout.Arm]rollout.Counts{rollout.Canary: tally.Canary, rollout.Control: tally.Control}[arm]).To(And(
			HaveField("Ended", BeEquivalentTo(1)), HaveField("Contended", BeEquivalentTo(1)), HaveField("Busy", BeEquivalentTo(1)),
		))
	}, NodeTimeout(2*patience))

	// mutation: a begin that is counted by the fence alone, and an arm that is drawn again with the
	// first fence, make this fail.
	It("counts as begun when it says that it waits for its first lock, and keeps its arm", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, brief())
		r := w.newReplica(ctx, "r", counting)
		run := w.create(ctx, twoSteps())
		candidate := "4f2a-2"
		for n := 3; rollout.ArmOf(string(run.UID), candidate, 50) != rollout.Canary; n++ {
			candidate = fmt.Sprint("4f2a-", n)
		}
		w.tries(candidate)
		w.takeLock(ctx, run)
		now := r.drive(ctx, run, saysBusy)
		Expect(now.Status.Fence).To(BeNil(), "it never had its lock")
		Expect(r.Ballots.Of(ballot.Entry{Policy: w.ns, Candidate: candidate})).To(Equal(rollout.Tally{Canary: rollout.Counts{Runs: 1}}))

		w.tries("77aa-3")
		w.dropLock(ctx, run)
		Expect(r.finish(ctx, run).Status.Policy.Trial).To(HaveValue(And(HaveField("Candidate", candidate), HaveField("BusyTries", BeNumerically(">", 0)))))
		Expect(r.Ballots.Of(ballot.Entry{Policy: w.ns, Candidate: candidate}).Canary).To(And(
			HaveField("Runs", BeEquivalentTo(1)), HaveField("Ended", BeEquivalentTo(1)), HaveField("Contended", BeEquivalentTo(1)),
		))
	}, NodeTimeout(2*patience))

	// mutation: a watch that wakes runs for edits of spec only, or not for another candidate, makes
	// this fail.
	It("is looked at when the candidate is taken back, or replaced: it may keep a lease under it", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, forRun(v1alpha1.RenewalFailureFence))
		w.tries("4f2a-2")
		r := w.newReplica(ctx, "r", counting)
		run := w.create(ctx, twoSteps())
		r.inFlight(ctx, run, 1)
		q, was := newQueue(), w.policies[0].DeepCopy()
		w.policies[0].Status.Rollout.Canary = &v1alpha1.RolloutCounts{Runs: 1}
		r.policyWatch().Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: &w.policies[0]}, q)
		Expect(q.Len()).To(BeZero(), "only counts changed")
		w.policies[0].Status.Rollout.Candidate.Name = "77aa-3"
		r.policyWatch().Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: &w.policies[0]}, q)
		Expect(q.Len()).To(Equal(1), "another candidate is tried")
		q, was = newQueue(), w.policies[0].DeepCopy()
		w.policies[0].Status.Rollout.Phase = "RolledBack"
		r.policyWatch().Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: &w.policies[0]}, q)
		Expect(q.Len()).To(Equal(1))
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))
})
