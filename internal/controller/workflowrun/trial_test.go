// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/trials"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// mutation: a write without the waits for the lock, or without the latency of results that it
// applies, makes this fail.
func TestVotesRideAlongWithTheWrites(t *testing.T) {
	clock := clocktesting.NewFakeClock(epoch.Add(time.Minute))
	p := &pass{
		r: &Reconciler{Clock: clock}, run: aRun("1"), mem: &memory{}, observed: observed{
			policy: policy.Effective{Name: "shared", Generation: 2},
			trial:  trials.Part{Policy: "shared", Trial: policy.Trial{Candidate: "4f2a-2", Arm: rollout.Canary}},
		},
	}
	inbox, at := results.NewInbox(10, 1<<20), clock.Now().Add(-1500*time.Millisecond)
	if !inbox.Put("ns", p.run.UID, &results.Pending{Fact: lifecycle.Result{PublishedAt: at}, Since: at, Delivery: &fakeDelivery{}}) {
		t.Fatal("no room for the result")
	}
	p.batch = (&results.Batches{Inbox: inbox, Clock: clock}).Of(p.run, 0, false)
	p.batch.TakeAll()
	p.mem.lock.Votes = leases.Votes{BusyTries: 3, Wait: time.Second}
	want := &v1alpha1.PolicyReference{Name: "shared", Generation: 2, Trial: &v1alpha1.PolicyTrial{
		Candidate: "4f2a-2", Arm: "Canary", BusyTries: 3, LongestWaitMillis: 1000, LongestLatencyMillis: 1500,
	}}
	if diff := cmp.Diff(want, p.policyReference(lifecycle.Lock{})); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	p.policy.Name = ""
	if ref := p.policyReference(lifecycle.Lock{}); ref != nil {
		t.Errorf("without a policy %+v", ref)
	}
}
