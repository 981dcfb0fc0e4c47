// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// running starts something that runs until its context ends, and waits for its end when the
// spec is over.
func running(ctx context.Context, start func(context.Context) error) {
	ctx, cancel := context.WithCancel(log.IntoContext(context.WithoutCancel(ctx), GinkgoLogr))
	done := make(chan error, 1)
	go func() { done <- start(ctx) }()
	DeferCleanup(func() {
		cancel()
		Eventually(done).WithTimeout(patience).Should(Receive(BeNil()))
	})
}

// Mutations that make specs below fail:
//   - consumer.go Consumer that takes a DriftError for a failure: nothing is consumed.
//   - consumer.go Consumer that gives up at the first error: nothing is consumed.
//   - orphans.go Start that does not sort: the result stays parked.
var _ = Describe("the helpers of the controller", func() {
	It("consume results although streams have other settings than configured", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r", func(r *replica) { r.quiet = true })
		s, err := w.js.Stream(ctx, w.names.ResultsStream())
		Expect(err).NotTo(HaveOccurred())
		config := s.CachedInfo().Config
		config.MaxAge = 48 * time.Hour
		_, err = w.js.UpdateStream(ctx, config)
		Expect(err).NotTo(HaveOccurred())
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		r.inFlight(ctx, run, 1)
		running(ctx, results.NewConsumer(r.bus.Conn, r.bus.Results, r.router).Start)
		w.work(ctx)
		until(ctx, "the result comes", func() bool { return len(r.Batches.Inbox.Waiting(run.UID)) == 1 })
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))

	It("wait for NATS, make its streams, and consume", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r", withClock(clock.RealClock{}), func(r *replica) { r.quiet = true })
		for _, name := range []string{w.names.JobsStream(), w.names.ResultsStream(), w.names.ControlStream(), w.names.DeadLettersStream()} {
			Expect(w.js.DeleteStream(ctx, name)).To(Succeed())
		}
		w.nats.Shutdown()
		running(ctx, results.NewConsumer(r.bus.Conn, r.bus.Results, r.router).Start)
		w.restartNATS(ctx)
		id := protocol.JobID{RunUID: "11111111-2222-3333-4444-555555555555", Step: "a", Item: protocol.NoItem, Attempt: 1}
		w.say(ctx, id, succeeded(id))
		until(ctx, "the result comes", func() bool {
			return r.router.Orphans().Backlog().Results == 1
		})
		_, err := w.js.Stream(ctx, w.names.JobsStream())
		Expect(err).NotTo(HaveOccurred())
	}, NodeTimeout(2*patience))

	It("look after orphan results as time goes on", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		d := &fakeDelivery{}
		r.router.Route(ctx, &results.Pending{Fact: lifecycle.Result{ID: protocol.JobID{RunUID: string(run.UID)}}, Since: w.clock.Now(), Delivery: d})
		r.informer().Create(ctx, event.CreateEvent{Object: run}, newQueue())
		running(ctx, r.router.Orphans().Start)
		until(ctx, "the result is delivered", func() bool {
			w.clock.Step(results.OrphanTick)
			return len(r.Batches.Inbox.Waiting(run.UID)) == 1
		})
	}, NodeTimeout(patience))
})
