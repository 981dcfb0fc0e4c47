// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// meanwhile is what happens between a crash and the start of the next process.
type meanwhile func(ctx context.Context, w *world)

func nothing(context.Context, *world) {}

// taken: a worker has the jobs, and no Msg-Id is remembered any more.
func taken(tasks *[]*task) meanwhile {
	return func(ctx context.Context, w *world) {
		*tasks = w.take(ctx)
		w.outliveWindow(ctx)
	}
}

// answered: a worker has done the jobs and they are gone from the queue; then the server forgets
// their Msg-Ids, by a restart and by the end of the window.
func answered(ctx context.Context, w *world) {
	w.work(ctx)
	w.restartNATS(ctx)
	w.outliveWindow(ctx)
}

// The crash points are the places at which something has left the process and the next
// thing has not.
//
// Mutations that make specs below fail:
//   - dispatch.go Recover that publishes like Publish (no look-up): attempts are stored twice when
//     the worker has answered.
//   - reconciler.go underLock that settles results before persist: G1 violations.
//   - dispatch.go Unpublished returns nil: runs hang after a crash between persist and publish.
//   - gc.go obsolete always false: jobs stay after a crash in the middle of a cancel.
var _ = Describe("a crash", func() {
	type point struct {
		place string
		nth   int
		more  bool // also with jobs taken, and done, while nobody was there
	}
	points := []point{
		{"status/before", 1, false}, {"status/after", 1, true}, // before and after persist of the first intent
		{"publish/before", 2, false}, {"publish/after", 1, true}, {"publish/after", 2, false}, // before the publish, before the PubAck is seen
		{"settle/before", 1, true}, {"settle/after", 1, false}, // between results applied and ack; ack sent
		{"status/before", 2, false}, {"status/after", 2, false}, {"publish/before", 3, false}, {"publish/after", 3, true}, // the same with results in hand
		{"status/before", 3, false}, {"status/after", 3, false}, // the end
	}
	recovered := func(ctx context.Context, p point, between meanwhile, tasks *[]*task) {
		w := newWorld(ctx, withWindow(tinyWindow))
		run := w.create(ctx, diamond())
		first := w.newReplica(ctx, "first")
		first.killAt(p.place, p.nth)
		first.drive(ctx, run, func(*v1alpha1.WorkflowRun) bool {
			w.work(ctx)
			return false // until it is dead
		})
		between(ctx, w)
		w.dropLock(ctx, run)

		second := w.newReplica(ctx, "second")
		end := second.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			for _, t := range *tasks {
				t.succeed(ctx)
			}
			*tasks = nil
			w.work(ctx)
			return lifecycle.Finished(now)
		})
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		for _, s := range end.Status.Steps {
			Expect(s.Attempt).To(BeEquivalentTo(1))
			Expect(string(s.Output.Raw)).To(MatchJSON(fmt.Sprintf(`{"z":[1,0,1000,null],"html":"<&>","job":%q}`, s.JobID)))
		}
		Expect(w.jobsStored(ctx)).To(Equal(3), "each attempt is stored exactly once")
		second.drained(ctx, run)
		Expect(w.jobsQueued(ctx)).To(BeZero())
	}
	for _, p := range points {
		name := fmt.Sprintf("at %s, for the %d. time", p.place, p.nth)
		It(name+", is recovered from", matrix, func(ctx SpecContext) {
			recovered(ctx, p, nothing, &[]*task{})
		}, NodeTimeout(2*patience))
		if p.more && p.nth == 1 && p.place != "settle/before" {
			It(name+", is recovered from when the jobs are with a worker and no Msg-Id is remembered", matrix, func(ctx SpecContext) {
				var tasks []*task
				recovered(ctx, p, taken(&tasks), &tasks)
			}, NodeTimeout(2*patience))
		}
		if p.more {
			It(name+", is recovered from when the jobs are done and NATS was restarted", matrix, func(ctx SpecContext) {
				recovered(ctx, p, answered, &[]*task{})
			}, NodeTimeout(2*patience))
		}
	}

	for _, place := range []string{"status/before", "status/after", "withdraw/before", "withdraw/after", "cancel/before", "cancel/after"} {
		It("at "+place+" of a cancel, leaves no job in the queue", matrix, func(ctx SpecContext) {
			w := newWorld(ctx)
			first := w.newReplica(ctx, "first")
			run := w.create(ctx, diamond())
			first.inFlight(ctx, run, 2)
			w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
			first.killAt(place, 1)
			first.drive(ctx, run, func(*v1alpha1.WorkflowRun) bool { return false })
			w.dropLock(ctx, run)
			second := w.newReplica(ctx, "second")
			Expect(second.drive(ctx, run, finished).Status.Phase).To(Equal(v1alpha1.RunCancelled))
			Expect(second.GC.Round(ctx)).To(Succeed())
			Expect(w.jobsQueued(ctx)).To(BeZero())
		}, NodeTimeout(2*patience))
	}

	for place, first := range map[string]string{
		"find/before": "publish/after", "find/after": "publish/after", // NATS has a job
		"recover/before": "publish/before", "recover/after": "publish/before", // it has none
	} {
		It("in the recovery from a crash, at "+place+", is recovered from", matrix, func(ctx SpecContext) {
			w := newWorld(ctx, withWindow(tinyWindow))
			run := w.create(ctx, diamond())
			dies := func(r *replica, at string) {
				r.killAt(at, 1)
				r.drive(ctx, run, func(*v1alpha1.WorkflowRun) bool { return false })
				w.outliveWindow(ctx)
				w.dropLock(ctx, run)
			}
			dies(w.newReplica(ctx, "first"), first)
			dies(w.newReplica(ctx, "second"), place)
			Expect(w.newReplica(ctx, "third").finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
			Expect(w.jobsStored(ctx)).To(Equal(3))
		}, NodeTimeout(2*patience))
	}
})
