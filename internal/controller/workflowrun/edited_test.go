// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

var _ = Describe("a run that somebody edits all the time", func() {
	// The cache is behind by an edit in each pass, as the watch is where edits come faster than it
	// tells of them. A pass that decides by what the cache has is always too late.
	//
	// mutations: observe without readAfterWait; readAfterWait that does not forget the wait.
	It("is read live once after each wait for conflicts, and written then", func(ctx SpecContext) {
		w, r, run, other := resultWaits(ctx)
		edits, reads := 0, 0
		r.cached = func(now *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
			if now.UID != run.UID {
				return nil
			}
			edits++
			w.patch(ctx, run, fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, edits))
			return now.DeepCopy()
		}
		var readsAtPut []int // of each write: how many live reads its pass had made before it
		r.hook = func(_ context.Context, at string) error {
			switch at {
			case "live/after":
				reads++
			case "status/before":
				readsAtPut = append(readsAtPut, reads)
			}
			return nil
		}
		m := r.memories.peek(client.ObjectKeyFromObject(run))
		for n := 0; m.conflicts.until.IsZero(); n++ {
			Expect(n).To(BeNumerically("<", 20), "passes until it waits for a moment without edits")
			w.clock.Step(max(refreshDelay, r.mustPass(ctx, run).RequeueAfter))
		}
		reads, readsAtPut = 0, nil
		w.clock.Step(refreshDelay << mostConflicts)
		r.mustPass(ctx, run)
		Expect(readsAtPut).To(Equal([]int{1}))
		Expect(m.conflicts).To(Equal(conflicts{}), "the write was taken")
		Expect(stepOf(w.get(ctx, run), other.id.Step).Phase).NotTo(Equal(v1alpha1.StepSucceeded))
		Expect(w.get(ctx, run).Status.Progress).To(HavePrefix("1/"))
		reads = 0
		w.clock.Step(lookAgain)
		r.mustPass(ctx, run)
		Expect(reads).To(BeZero(), "a pass without conflicts reads nothing live")
		m.conflicts.until = w.clock.Now()
		for range 3 { // with nothing to write
			r.mustPass(ctx, run)
		}
		Expect(reads).To(Equal(1), "one read for each wait")
		r.cached, r.hook = nil, nil
		other.succeed(ctx)
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))
})
