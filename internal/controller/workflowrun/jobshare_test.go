// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch/backlog"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/outputs"
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

	// mutations: unfenced that takes it for an error, or waits beyond FencePatience; Take that
	// counts fences as jobs.
	It("keeps a new owner waiting whose fences find no room, at a pace, and that is no error", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, brief())
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		run := w.create(ctx, diamond())
		before := a.inFlight(ctx, run, 2)
		w.dropLock(ctx, run)
		w.boundJobs(ctx, b, 1<<20)
		b.Dispatch.Backlog.Fences().Found(w.ns, protocol.JobID{RunUID: "other", Step: "a", Item: protocol.NoItem, Attempt: 1}, 1<<20)
		var told []string
		logger := log.IntoContext(ctx, funcr.New(func(_, args string) { told = append(told, args) }, funcr.Options{}))
		pass := func() time.Duration {
			GinkgoHelper()
			result, err := b.Reconcile(logger, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(run)})
			Expect(err).NotTo(HaveOccurred())
			return result.RequeueAfter
		}
		w.clock.Step(OthersPatience)
		Expect(pass()).To(Equal(jobPatience))
		for range 10_000 { // as many other runs of the namespace wait
			b.Dispatch.TryAfter(w.ns, w.clock.Now())
		}
		w.clock.Step(jobPatience)
		Expect(pass()).To(Equal(dispatch.FencePatience - jobPatience))
		Expect(told).NotTo(ContainElement(ContainSubstring(`"error"=`)))
		Expect(b.counter("syncopate_job_share_refusals_total")).To(BeZero(), "no job was kept back")
		Expect(w.get(ctx, run).ResourceVersion).To(Equal(before.ResourceVersion))

		w.clock.Step(dispatch.FencePatience - jobPatience)
		Expect(w.finishBoth(ctx, run, a, b).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))

	// mutations: leave or cleanDeleted without the Dispatcher; withdraw that does not give it back.
	It("is given back by runs that are handed over or deleted, and by jobs that are withdrawn", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		w.boundJobs(ctx, r, 1<<20)
		runs := w.floodOf(ctx, r, 3, 2)
		one := r.counter("syncopate_job_share_bytes") / 3
		Expect(one).To(BeNumerically(">", 60<<10))

		w.patch(ctx, runs[2], `{"spec":{"shutdown":"Cancel"}}`)
		w.clock.Step(time.Second)
		r.mustPass(ctx, runs[2])
		Expect(w.get(ctx, runs[2]).Status.Phase).To(Equal(v1alpha1.RunCancelled))
		Expect(r.counter("syncopate_job_share_bytes")).To(Equal(2 * one))

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

// noFenceFor is a pass over a run of namespace team, whose fences find no room in their share.
func noFenceFor(t *testing.T) (d *dispatch.Dispatcher, s *dispatch.Session) {
	t.Helper()
	if d, s = lackingRoom(t, true, false); !s.OnlyShare() {
		t.Fatal("it is not its share that has no room")
	}
	return d, s
}

// lackingRoom is such a pass whose fences find no room in their share, whose jobs have no consumer,
// or both.
func lackingRoom(t *testing.T, share, topic bool) (d *dispatch.Dispatcher, s *dispatch.Session) {
	t.Helper()
	id := protocol.JobID{RunUID: "other", Step: "a", Item: protocol.NoItem, Attempt: 1}
	room := backlog.New(func() backlog.Stream { return backlog.Stream{Limit: 800} }, func() (int, int) { return 64, 64 })
	room.Fences().Found("team", id, 1000)
	d = &dispatch.Dispatcher{Backlog: room, Jobs: crowdedQueue{}}
	s = d.Session(&dispatch.State{}, 0)
	id.RunUID = "run"
	job := []lifecycle.Job{{ID: id, Topic: "t"}}
	if topic {
		if err := s.Publish(t.Context(), &v1alpha1.WorkflowRun{}, crowdedQueue{}, job); !errors.Is(err, jobs.ErrTooManyTopics) {
			t.Fatalf("it is published: %v", err)
		}
	}
	if share {
		if err := s.Fence(t.Context(), &v1alpha1.WorkflowRun{}, "", job, 1); err == nil {
			t.Fatal("there is room")
		}
	}
	return d, s
}

// A thousand runs of a namespace wait for their share.
//
// mutation: comeAgainForRoom without TryAfter.
func TestRunsThatWaitForTheirShareComeAtAPace(t *testing.T) {
	now := time.Unix(1000, 0)
	d, s := noFenceFor(t)
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

// One of them has results, and a pass for each, which say nothing new of its share.
//
// mutations: comeAgainForRoom that asks for another time in each pass, or that keeps one which has
// come; one that lets a run whose jobs NATS itself refuses wait for its share.
func TestARunThatWaitsForItsShareHasOnePlaceInThePace(t *testing.T) {
	now := time.Unix(1000, 0)
	d, s := noFenceFor(t)
	busy, other := &memory{noRoom: noRoom{since: now, jobs: true}}, &memory{noRoom: noRoom{since: now, jobs: true}}
	try := func(m *memory, s *dispatch.Session, now time.Time) time.Duration {
		p := &pass{r: &Reconciler{Clock: clocktesting.NewFakeClock(now), Dispatch: d}, mem: m, jobs: s}
		comeAgainForRoom(p, now)
		return p.later.Sub(now)
	}
	for i := range 1000 {
		after := time.Duration(i) * time.Millisecond
		if wait := try(busy, s, now.Add(after)); wait != jobPatience-after {
			t.Fatalf("after %s it comes in %s", after, wait)
		}
	}
	if wait := try(other, s, now.Add(time.Second)); wait != jobPatience {
		t.Errorf("the other run comes after %s", wait)
	}
	if wait := try(busy, s, now.Add(jobPatience)); wait != jobPatience {
		t.Errorf("after its next try it comes in %s", wait)
	}
	busy.noRoom.tryAt = now.Add(time.Minute)
	if wait := try(busy, d.Session(&dispatch.State{}, 0), now); wait != time.Minute {
		t.Errorf("a pass that tries nothing has the next one come in %s", wait)
	}
	busy.noRoom.tryAt = now.Add(time.Hour)
	if wait := try(busy, s, now); wait > 2*jobPatience {
		t.Errorf("after a clock was set back it comes in %s", wait)
	}
	busy.noRoom.tryAt = now.Add(time.Minute)
	d.Jobs = fullQueue{}
	full := d.Session(&dispatch.State{}, 0)
	if err := full.Publish(t.Context(), &v1alpha1.WorkflowRun{}, fullQueue{}, []lifecycle.Job{{ID: protocol.JobID{RunUID: "run"}}}); !errors.Is(err, bus.ErrNoRoom) {
		t.Fatalf("it is published: %v", err)
	}
	if wait := try(busy, full, now); wait != jobPatience {
		t.Errorf("what NATS itself refused is tried again in %s", wait)
	}
}

// A run waits for its share, with one job on a topic that has no consumer.
//
// mutation: OnlyShare that is false where a topic has no consumer, too.
func TestATopicWithoutAConsumerTakesNoRunOutOfThePace(t *testing.T) {
	now := time.Unix(1000, 0)
	d, s := lackingRoom(t, true, true)
	p := &pass{r: &Reconciler{Clock: clocktesting.NewFakeClock(now), Dispatch: d}, mem: &memory{noRoom: noRoom{since: now, jobs: true, tryAt: now.Add(time.Minute)}}, jobs: s}
	if comeAgainForRoom(p, now); !p.later.Equal(now.Add(time.Minute)) {
		t.Errorf("it tries again in %s", p.later.Sub(now))
	}
}

// A run that lacks something for hours tells what that is now, and not what it was once. Two that
// take turns are told as one.
//
// mutations: noteRoom without follow; a follow that has no patience, does not see what is told, or
// takes one of several; lacksOf without outputs.
func TestARunTellsWhatHasNoRoomNow(t *testing.T) {
	clock, m := clocktesting.NewFakeClock(time.Unix(1000, 0)), &memory{}
	began := clock.Now()
	look := func(when string, share, topic bool, output error, want lifecycle.Lack, since time.Time) {
		t.Helper()
		d, s := lackingRoom(t, share, topic)
		noteRoom(&pass{r: &Reconciler{Clock: clock, Dispatch: d}, mem: m, run: &v1alpha1.WorkflowRun{}, jobs: s, outputs: &outputs.Session{Lacking: output}})
		if m.noRoom.lack != want || !m.noRoom.since.Equal(since) {
			t.Errorf("%s: lack %d since %s, want %d since %s", when, m.noRoom.lack, m.noRoom.since.Sub(began), want, since.Sub(began))
		}
	}
	const share, topic = lifecycle.LackShare, lifecycle.LackTopic
	look("at first", true, false, nil, share, began)
	clock.Step(time.Hour)
	look("both, after an hour", true, true, nil, share, began)
	look("at once the topic alone", false, true, nil, share, began)
	clock.Step(lackPatience - 1)
	look("the topic alone, for a while", false, true, nil, share, began)
	clock.Step(1)
	look("the topic, and an output", false, true, bus.ErrNoRoom, lifecycle.LackNATS, clock.Now())
	m.noRoom.outputs = false
	clock.Step(lackPatience)
	look("the topic alone", false, true, nil, topic, clock.Now())
	changed := clock.Now()
	look("its share, just after that", true, false, nil, topic, changed)
	clock.Step(lackPatience)
	look("its share, and an output", true, false, bus.ErrNoRoom, lifecycle.LackNATS, clock.Now())
	m.noRoom.outputs = false
	clock.Step(lackPatience)
	look("its share alone", true, false, nil, share, clock.Now())
}

// crowdedQueue has no consumer for topics, and is a lease that is held.
type crowdedQueue struct{ *jobs.Queue }

func (crowdedQueue) Publish(context.Context, jobs.Job) error { return jobs.ErrTooManyTopics }
func (crowdedQueue) Err() error                              { return nil }

// fullQueue has no room for jobs, and is a lease that is held.
type fullQueue struct{ *jobs.Queue }

func (fullQueue) Publish(context.Context, jobs.Job) error { return bus.ErrNoRoom }
func (fullQueue) Err() error                              { return nil }
