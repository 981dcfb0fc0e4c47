// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Mutations that make this fail:
//   - observe.go refresh that believes a live read of another run of that name: the new run is
//     driven with the old one's memory.
//   - batch.go verdict that acks what is ahead, or has the run read live again and again.
//   - deleted.go cleanDeleted that leaves the inbox alone: the result is never settled.
var _ = Describe("a cache that still has an earlier run of the same name", func() {
	It("makes no result of it stale, and does nothing to the new one; what is left is stale once the cache knows", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		old := w.create(ctx, diamond())
		was := r.inFlight(ctx, old, 2)
		Expect(w.client.Delete(ctx, was)).To(Succeed())
		next := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{WorkloadClass: w.ns, Steps: diamond()}}
		next.Name, next.Namespace = old.Name, old.Namespace
		Expect(w.client.Create(ctx, next)).To(Succeed())
		r.cached = func(*v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun { return was }
		reads := 0
		r.hook = func(_ context.Context, at string) error {
			if at == "live/before" {
				reads++
			}
			return nil
		}

		id := protocol.JobID{RunUID: string(old.UID), Step: "a", Item: protocol.NoItem, Attempt: 2}
		w.say(ctx, id, succeeded(id))
		r.pumpAll(ctx, 1)
		for range 3 {
			r.mustPass(ctx, next)
		}
		Expect(reads).To(Equal(1), "one look at the truth")
		Expect(w.settledWith(old)).To(HaveLen(1))
		Expect(w.settledWith(old)[0].err).To(MatchError(results.ErrAhead))
		Expect(w.get(ctx, next).ResourceVersion).To(Equal(next.ResourceVersion), "the new run is left alone")

		q := newQueue()
		r.informer().Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: next}, q)
		r.cached = nil
		until(ctx, "the result came again and is settled for good", func() bool {
			r.pump(ctx)
			w.clock.Step(results.OrphanPatience)
			_ = r.router.Orphans().Sort(ctx)
			r.mustPass(ctx, next)
			list := w.settledWith(old)
			return list[len(list)-1].err == nil
		})
		Expect(r.counter("syncopate_results_total", "outcome", "stale")).To(BeEquivalentTo(1))
		Expect(w.messages(ctx, w.names.DeadLettersStream())).To(BeZero())
		for _, s := range w.settledWith(old) {
			var a *results.RetryError
			Expect(s.err == nil || errors.As(s.err, &a) && a.Class == bus.ClassAhead).To(BeTrue(), "%v", s)
		}
		Expect(client.ObjectKeyFromObject(r.finish(ctx, next))).To(Equal(client.ObjectKeyFromObject(old)))
	}, NodeTimeout(2*patience))
})
