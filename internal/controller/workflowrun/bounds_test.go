// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"maps"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// longest notes how long what a replica asks for at places may take at most, from now on.
func (r *replica) longest(fail func(place string) error) func() map[string]time.Duration {
	var mu sync.Mutex
	most := map[string]time.Duration{}
	r.hook = func(ctx context.Context, at string) error {
		mu.Lock()
		defer mu.Unlock()
		left := 24 * time.Hour
		if end, bounded := ctx.Deadline(); bounded {
			left = time.Until(end)
		}
		most[at] = max(most[at], left)
		return fail(at)
	}
	return func() map[string]time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(most)
	}
}

// A server may take a request and never answer. The pass has its run, its lock and its place at a
// desk until then, and what it does next needs time, too.
//
// Mutations that make it fail: underLock without passTimeout, recoverJobs without recoverTimeout,
// lookUpJobs without lookUpTimeout.
var _ = Describe("a server that never answers", func() {
	It("keeps a pass for some seconds, and leaves it time for its other effects", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		failed := false
		most := r.longest(func(at string) error {
			if at == "publish/before" && !failed {
				failed = true
				return errTest // so that the next pass recovers
			}
			return nil
		})
		r.inFlight(ctx, run, 1)
		r.drive(ctx, run, func(*v1alpha1.WorkflowRun) bool { return w.messages(ctx, w.names.JobsStream()) > 0 })
		for range 4 { // it looks for what it knew to be there the time before
			r.mustPass(ctx, run)
			w.clock.Step(6 * time.Minute)
		}
		for place, bound := range map[string]time.Duration{
			"status/before": 8 * time.Second, "recover/before": 4 * time.Second, "gone/before": 2 * time.Second,
		} {
			Expect(most()).To(HaveKey(place))
			Expect(most()[place]).To(BeNumerically("<=", bound), place)
		}
	}, NodeTimeout(2*patience))

	// mutation: withoutLock without passTimeout.
	It("keeps a pass that has no lock for some seconds, too", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		r.inFlight(ctx, run, 1)
		w.dropLock(ctx, run)
		r.Leases.Cache.Drop(ctx, run.UID)
		most := r.longest(func(at string) error {
			if at == "acquire/before" {
				return errTest
			}
			return nil
		})
		w.patch(ctx, run, `{"spec":{"shutdown":"Terminate"}}`)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunCancelled))
		for _, place := range []string{"acquire/before", "status/before", "withdraw/before"} {
			Expect(most()).To(HaveKey(place))
		}
		for _, place := range []string{"status/before", "withdraw/before"} {
			Expect(most()[place]).To(BeNumerically("<=", passTimeout), place)
		}
	}, NodeTimeout(2*patience))

	// What is read before a pass has a lock keeps nobody from it.
	//
	// mutation: decideWithin without decideTimeout.
	It("about an output keeps the lock for some seconds", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a"), step("b")})
		r.inFlight(ctx, run, 2)
		for _, t := range w.takeAll(ctx, 2) {
			if t.id.Step == "a" {
				t.say(ctx, w.upload(ctx, t.id, large(100<<10)))
			} else {
				t.succeed(ctx) // so that there is something to write
			}
		}
		r.pumpAll(ctx, 2)
		var left []time.Duration
		r.hook = func(ctx context.Context, at string) error {
			if at != "read/before" {
				return nil
			}
			if end, bounded := ctx.Deadline(); bounded {
				left = append(left, time.Until(end))
			}
			return errTest
		}
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return stepOf(now, "b").Phase == v1alpha1.StepSucceeded })
		Expect(left).NotTo(BeEmpty())
		Expect(left).To(HaveEach(BeNumerically("<=", 8*time.Second)))
	}, NodeTimeout(2*patience))
})
