// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// refusingAnswer refuses writes in which an attempt is over.
func refusingAnswer(id protocol.JobID) func(*v1alpha1.WorkflowRun) error {
	return func(run *v1alpha1.WorkflowRun) error {
		if lifecycle.Over(run, id) {
			return refused()
		}
		return nil
	}
}

// redrive publishes the only dead letter again, as an administrator does.
func (w *world) redrive(ctx context.Context) {
	GinkgoHelper()
	d, err := deadletters.Open(ctx, bus.Config{URL: w.nats.URL()})
	Expect(err).NotTo(HaveOccurred())
	defer d.Close()
	letters, _, err := d.List(ctx, deadletters.Filter{}, 10)
	Expect(err).NotTo(HaveOccurred())
	Expect(letters).To(HaveLen(1))
	Expect(d.Redrive(ctx, letters[0].Sequence, false)).To(Succeed())
}

// Mutations that make specs below fail:
//   - batch.go settle that holds nothing back: 2 jobs, not 1, are stored after a change of leader.
//   - dispatch.go Unpublished with InFlight: the same.
var _ = Describe("an attempt whose answer became a dead letter", func() {
	var (
		w     *world
		first *replica
	)
	once := func(ctx context.Context) {
		w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{Delivery: v1alpha1.DeliveryPolicy{MaxDeliveries: 1, MaxDelaySeconds: 1}})
	}
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx, withWindow(tinyWindow))
		first = w.newReplica(ctx, "first")
		once(ctx)
	}, NodeTimeout(patience))

	// leads makes a replica the next leader: it knows of no attempt, and gets to know all that
	// are in flight.
	leads := func(ctx context.Context, run *v1alpha1.WorkflowRun, n int) *replica {
		first.kill(ctx)
		w.outliveWindow(ctx)
		w.dropLock(ctx, run)
		next := w.newReplica(ctx, "next")
		next.inFlight(ctx, run, n)
		return next
	}
	putAside := func(ctx context.Context, run *v1alpha1.WorkflowRun) {
		until(ctx, "it is put aside", func() bool {
			first.turn(ctx, run)
			return w.messages(ctx, w.names.DeadLettersStream()) == 1 && w.messages(ctx, w.names.ResultsStream()) == 0
		})
	}

	It("is not given to another worker by the next leader; the answer counts when it is redriven", func(ctx SpecContext) {
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		first.inFlight(ctx, run, 1)
		t := w.takeAll(ctx, 1)[0]
		first.refuse = refusingAnswer(t.id)
		t.succeed(ctx)
		putAside(ctx, run)

		next := leads(ctx, run, 1)
		Expect(w.jobsStored(ctx)).To(Equal(1), "the attempt was given to workers once")
		w.redrive(ctx)
		end := next.finish(ctx, run)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(end.Status.Steps[0].Attempt).To(BeEquivalentTo(1))
		Expect(w.jobsStored(ctx)).To(Equal(1))
	}, NodeTimeout(2*patience))

	It("is not given to another worker by the next leader, also if it is that of an item; the others go on", func(ctx SpecContext) {
		run := w.createFanOut(ctx, 4, 3)
		first.inFlight(ctx, run, 3)
		tasks := w.takeAll(ctx, 3)
		first.refuse = refusingAnswer(tasks[1].id)
		tasks[1].succeed(ctx)
		putAside(ctx, run)

		next := leads(ctx, run, 3)
		Expect(w.jobsStored(ctx)).To(Equal(3), "each attempt was given to workers once")
		tasks[0].succeed(ctx)
		tasks[2].succeed(ctx)
		next.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			w.work(ctx)
			return now.Status.Steps[0].ForEach.Succeeded == 3
		})
		Expect(lifecycle.InFlight(w.get(ctx, run))).To(ConsistOf(tasks[1].id))
		w.redrive(ctx)
		end := next.finish(ctx, run)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(w.jobsStored(ctx)).To(Equal(5), "four items, and the step after them")
	}, NodeTimeout(2*patience))

	for _, place := range []string{"status/before", "status/after", "settle/before", "settle/after"} {
		It(fmt.Sprintf("is not given to another worker after a crash at %s, and its answer is not lost", place), matrix, func(ctx SpecContext) {
			run := w.create(ctx, []v1alpha1.Step{step("a")})
			first.inFlight(ctx, run, 1)
			t := w.takeAll(ctx, 1)[0]
			given := false
			first.refuse = func(now *v1alpha1.WorkflowRun) error {
				err := refusingAnswer(t.id)(now)
				if err != nil {
					first.killAt(place, 1)
					given = true
				}
				return err
			}
			t.succeed(ctx)
			first.drive(ctx, run, func(*v1alpha1.WorkflowRun) bool { return false })
			Expect(given).To(BeTrue())

			next := leads(ctx, run, 1)
			if w.messages(ctx, w.names.DeadLettersStream()) > 0 {
				Expect(w.get(ctx, run).Status.Steps[0].DeadLetter).To(Equal(v1alpha1.DeadLetterExhausted))
				w.redrive(ctx)
			}
			end := next.finish(ctx, run)
			Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
			Expect(end.Status.Steps[0].Attempt).To(BeEquivalentTo(1))
			Expect(w.jobsStored(ctx)).To(Equal(1))
		}, NodeTimeout(2*patience))
	}

	It("has its answer stay in the queue while no status says so", func(ctx SpecContext) {
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		first.inFlight(ctx, run, 1)
		t := w.takeAll(ctx, 1)[0]
		first.refuse = func(now *v1alpha1.WorkflowRun) error { // the status as it is would be taken
			if a := now.Status.Steps[0]; a.Phase == v1alpha1.StepSucceeded || a.DeadLetter != "" {
				return refused()
			}
			return nil
		}
		t.succeed(ctx)
		until(ctx, "it was refused, and so was the write that says so", func() bool {
			first.turn(ctx, run)
			return first.counter("syncopate_status_writes_total", "outcome", "refused") == 2
		})
		Expect(w.messages(ctx, w.names.DeadLettersStream())).To(BeZero())
		Expect(w.messages(ctx, w.names.ResultsStream())).To(Equal(1))
		first.refuse = nil
		w.clock.Step(lookAgain)
		putAside(ctx, run)
		Expect(w.get(ctx, run).Status.Steps[0].DeadLetter).To(Equal(v1alpha1.DeadLetterExhausted))
		w.redrive(ctx)
		Expect(first.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))
})
