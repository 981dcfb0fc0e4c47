// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch/backlog"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// heavy is a step whose job has 30 KiB of input, for workers of a topic.
func heavy(name, topic string, after ...string) v1alpha1.Step {
	return v1alpha1.Step{Name: name, DependsOn: after, Job: &v1alpha1.Job{Topic: topic, Input: &runtime.RawExtension{Raw: []byte(large(30 << 10))}}}
}

// boundJobs gives the stream of jobs a limit, as an administrator does, and has a replica look.
func (w *world) boundJobs(ctx SpecContext, r *replica, bytes int64) {
	s, err := w.js.Stream(ctx, w.names.JobsStream())
	Expect(err).NotTo(HaveOccurred())
	config := s.CachedInfo().Config
	config.MaxBytes = bytes
	_, err = w.js.UpdateStream(ctx, config)
	Expect(err).NotTo(HaveOccurred())
	Expect(r.bus.EnsureStreams(ctx)).To(Succeed())
}

// floodOf creates runs in a namespace of their own whose jobs nobody takes, and has them dispatch
// what they can.
func (w *world) floodOf(ctx SpecContext, r *replica, runs, steps int) []*v1alpha1.WorkflowRun {
	ns := createNamespace(w.client, corev1.Namespace{})
	var flood []*v1alpha1.WorkflowRun
	for range runs {
		run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{GenerateName: "flood-", Namespace: ns}}
		for i := range steps {
			run.Spec.Steps = append(run.Spec.Steps, heavy(fmt.Sprint("s", i), "away"))
		}
		Expect(w.client.Create(ctx, run)).To(Succeed())
		flood = append(flood, run)
		for range 5 {
			r.turn(ctx, run)
		}
	}
	return flood
}

var _ = Describe("The share of the stream of jobs", func() {
	// mutations: Publish or recoverOne without hold, Find without found, a refusal that is an error
	// or no refusal for the gate, a pass without Tidy or without comeAgainForRoom.
	It("leaves room for the jobs of other namespaces, and for fences", func(ctx SpecContext) {
		w := newWorld(ctx)
		a := w.newReplica(ctx, "a")
		w.boundJobs(ctx, a, 1<<20)
		flood := w.floodOf(ctx, a, 5, 8) // 1,200 KiB

		held := w.jobsQueued(ctx)
		Expect(held).To(And(BeNumerically(">=", 12), BeNumerically("<=", 14)), "a half of 7/8")
		last := w.get(ctx, flood[4])
		Expect(reasonOf(last, v1alpha1.ConditionSucceeded)).To(Equal(v1alpha1.ReasonWaitingForRoom))
		Expect(messageOf(last, v1alpha1.ConditionSucceeded)).To(HavePrefix("The share of NATS for jobs of one run or namespace is used up since "))
		Expect(a.mustPass(ctx, flood[4]).RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", jobPatience)))
		Expect(a.counter("syncopate_job_share_refusals_total")).To(BeNumerically(">", 0))

		run := w.create(ctx, []v1alpha1.Step{heavy("a", topic), heavy("b", topic)})
		a.finish(ctx, run)
		Expect(a.counter("syncopate_job_share_bytes")).To(BeNumerically("<", float64((held+1)*(32<<10))), "what is done holds nothing")

		next := w.create(ctx, []v1alpha1.Step{heavy("a", topic), step("b", "a")})
		a.inFlight(ctx, next, 1)
		a.kill(ctx)
		w.redis.FlushAll() // its locks are over
		w.clock.Step(time.Minute)
		b := w.newReplica(ctx, "b")
		b.finish(ctx, next)
		Expect(w.get(ctx, next).Status.Lock.Holder).To(Equal("b"))
		for _, run := range flood {
			for range 5 {
				b.turn(ctx, run)
			}
		}
		Expect(w.jobsQueued(ctx)).To(Equal(held), "it is known what is there")
		for _, r := range []*replica{a, b} {
			Expect(r.counter("syncopate_nats_refusals_total", "stream", "jobs")).To(BeZero())
		}
		Expect(b.counter("syncopate_job_fences_total")).To(BeNumerically(">", 0))

		for _, run := range flood {
			b.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
				for _, t := range w.takeOf(ctx, "away") {
					t.succeed(ctx)
				}
				return lifecycle.Finished(now)
			})
		}
		Expect(b.counter("syncopate_job_share_bytes")).To(BeZero(), "nothing leaks")
	}, NodeTimeout(3*patience))

	// mutation: act that gives back what was answered only after it published.
	It("is there for the next step as soon as the one before is answered", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		w.boundJobs(ctx, r, 100<<10) // of 87 KiB a run has a third, and always one job
		run := w.create(ctx, []v1alpha1.Step{heavy("a", topic), heavy("b", topic, "a")})
		r.inFlight(ctx, run, 1)
		w.work(ctx)
		r.pumpAll(ctx, 1)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Steps[0].Phase).To(Equal(v1alpha1.StepSucceeded))
		Expect(w.jobsQueued(ctx)).To(Equal(1))
		Expect(r.counter("syncopate_job_share_refusals_total")).To(BeZero())
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))

	// mutation: leave or forget without the Dispatcher, or cleanDeleted without it.
	It("is given back by runs that are handed over or deleted", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		w.boundJobs(ctx, r, 1<<20)
		runs := w.floodOf(ctx, r, 2, 2)
		one := r.counter("syncopate_job_share_bytes") / 2
		Expect(one).To(BeNumerically(">", 60<<10))

		Expect(w.client.Delete(ctx, runs[0])).To(Succeed())
		r.Index.Remove(runs[0], true)
		r.mustPass(ctx, runs[0])
		Expect(r.counter("syncopate_job_share_bytes")).To(Equal(one))
		(&Handover{Runs: r.Reconciler, Feeds: r.bus.Results, Router: r.router}).leave(ctx, []int{protocol.Partition(string(runs[1].UID))}, nil, func([]int) {})
		Expect(r.counter("syncopate_job_share_bytes")).To(BeZero())
	}, NodeTimeout(2*patience))
})

// A run whose jobs were kept back has no error after which a pass would come by itself.
//
// mutation: comeAgainForRoom without jobPatience.
func TestJobsThatWereKeptBackAreTriedAgainSoon(t *testing.T) {
	now := time.Unix(1000, 0)
	p := &pass{
		r: &Reconciler{Clock: clocktesting.NewFakeClock(now)}, mem: &memory{noRoom: noRoom{since: now, jobs: true}},
		jobs: (&dispatch.Dispatcher{}).Session(&dispatch.State{}, 0),
	}
	if comeAgainForRoom(p, now); !p.later.Equal(now.Add(5 * time.Second)) {
		t.Errorf("the next pass comes at %s", p.later)
	}
}

// A thousand runs of a namespace wait for their share.
//
// mutation: comeAgainForRoom without TryAfter.
func TestRunsThatWaitForTheirShareComeAtAPace(t *testing.T) {
	now := time.Unix(1000, 0)
	id := protocol.JobID{RunUID: "other", Step: "a", Item: protocol.NoItem, Attempt: 1}
	room := backlog.New(func() backlog.Stream { return backlog.Stream{Limit: 800} }, func() (int, int) { return 64, 64 })
	room.Fences().Found("team", id, 1000)
	d := &dispatch.Dispatcher{Backlog: room}
	s := d.Session(&dispatch.State{}, 0)
	id.RunUID = "run"
	if err := s.Fence(t.Context(), &v1alpha1.WorkflowRun{}, "", []lifecycle.Job{{ID: id, Topic: "t"}}, 1); err == nil || !s.OnlyShare() {
		t.Fatalf("there is room: %v", err)
	}
	var last time.Time
	for range 1000 {
		p := &pass{r: &Reconciler{Clock: clocktesting.NewFakeClock(now), Dispatch: d}, mem: &memory{noRoom: noRoom{since: now, jobs: true}}, jobs: s}
		comeAgainForRoom(p, now)
		last = p.later
	}
	if wait := last.Sub(now); wait < 9*time.Second || wait > 11*time.Second {
		t.Errorf("the last of them comes after %s", wait)
	}
}
