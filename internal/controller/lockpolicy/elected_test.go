// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"context"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// mutation: replicas that do not report, and Elected that is not asked, make this fail.
func TestReplicasReportAndOneDecides(t *testing.T) {
	w := trying(t, handOff)
	decides := w.r
	w.restart()
	reports := w.r
	reports.Elected = func() bool { return false }

	for range 20 {
		w.r = reports
		w.play(40, 3, 3) // all runs are those of the replica that only reports
		w.writes.Store(0)
		w.refresh()
		w.pass() // the next report is not due
		if n := w.writes.Load(); n > 1 {
			t.Errorf("%d writes of a report, want one at most", n)
		}
		w.r = decides
		w.refresh()
	}
	w.is(rollout.Promoted, 0, v1alpha1.ReasonAllStepsPassed)

	w = trying(t, handOff)
	w.r.Elected = func() bool { return false }
	for range 20 {
		w.play(40, 3, 3)
		w.refresh()
	}
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns) // who only reports decides nothing
}

// mutation: a conflict of a report that is an error, or that waits for the next refresh, makes this
// fail.
func TestAReportThatMeetsAnotherWriteComesSoonAgain(t *testing.T) {
	w := trying(t, handOff)
	w.r.Elected = func() bool { return false }
	w.play(10, 3, 3)
	w.beforeWrite = func(client.Object) {
		w.beforeWrite = nil
		w.edit(func(p *v1alpha1.LockPolicy) { p.Labels = map[string]string{"who": "other"} })
	}
	w.refresh()
	w.clock.SetTime(w.clock.Now().Add(conflictPause))
	before := w.writes.Load()
	w.pass()
	if w.writes.Load() == before || len(w.rollout().Replicas) == 0 {
		t.Errorf("the report was not tried again: %+v", w.rollout().Replicas)
	}
}

// With one leader, the others serve the webhook, and have votes of the starts that it
// was asked about.
//
// mutation: a controller that waits for the lead makes this fail.
func TestAStandbyReportsTheVotesOfItsWebhook(t *testing.T) {
	w := trying(t, slower)
	const name = "standby"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(3600)), RenewTime: &metav1.MicroTime{Time: time.Now()}, AcquireTime: &metav1.MicroTime{Time: time.Now()},
	}}
	if err := w.client.Create(t.Context(), lease); client.IgnoreAlreadyExists(err) != nil { // for -count=2
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: server.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionNamespace: "default", LeaderElectionID: name,
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.play(1, 1, 1)
	r := &Reconciler{
		Client: mgr.GetClient(), Live: w.client, Clock: w.clock, Metrics: w.metrics.registry, Ballots: w.r.Ballots, Process: name,
		Elected: func() bool { return false },
	}
	if err := r.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	w.awaitStatus(polled, func(s *v1alpha1.LockPolicyStatus) bool {
		return slices.ContainsFunc(s.Rollout.Replicas, func(r v1alpha1.RolloutReplica) bool { return r.Name == name && r.Canary.Ended == 1 })
	})
}
