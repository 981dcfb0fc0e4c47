// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// fanOut is a step over the list of the inputs, and one that reads its output.
func fanOut(items int, parallel int32, onFailure v1alpha1.ItemFailureAction) ([]v1alpha1.Step, func(*v1alpha1.WorkflowRunSpec)) {
	all := step("all")
	all.ForEach = &v1alpha1.ForEach{Items: "${inputs.list}", MaxParallel: parallel, OnItemFailure: onFailure}
	all.Job.Input = &runtime.RawExtension{Raw: []byte(`{"number":"${item}"}`)}
	count := step("count", "all")
	count.Job.Input = &runtime.RawExtension{Raw: []byte(`{"n":"${size(steps.all.output)}"}`)}
	list := make([]int, items)
	for i := range list {
		list[i] = i
	}
	return []v1alpha1.Step{all, count}, func(spec *v1alpha1.WorkflowRunSpec) {
		text, err := json.Marshal(map[string]any{"list": list})
		Expect(err).NotTo(HaveOccurred())
		spec.Inputs = &runtime.RawExtension{Raw: text}
	}
}

// long is a result whose output is too large for a few of them to be kept in status.
func long(t *task) string {
	return fmt.Sprintf(`{"status":"Succeeded","output":{"job":%q,"pad":%q}}`, t.id, strings.Repeat("x", 1500))
}

// Mutations that make specs below fail:
//   - act.go recoverJobs that does nothing: items hang after a crash between persist and publish.
//   - outputs: names.go Of without OutputRefs: objects stay when the list is put together.
//   - decide.go tooEarly that is always zero: more objects are stored than writes are made.
//   - reconciler.go withoutLock without TakeAll: a result that waits for others does not count in
//     an end without the lock.
var _ = Describe("a step for each item", func() {
	type point struct {
		place string
		nth   int
	}
	points := []point{{"publish/after", 2}, {"publish/before", 4}, {"store/before", 1}, {"store/after", 1}, {"store/after", 2}, {"settle/before", 3}, {"drop/before", 1}}
	for nth := 1; nth <= 6; nth++ {
		points = append(points, point{"status/before", nth}, point{"status/after", nth})
	}
	for _, p := range points {
		It(fmt.Sprintf("is recovered from a crash at %s, for the %d. time", p.place, p.nth), matrix, func(ctx SpecContext) {
			w := newWorld(ctx, withWindow(tinyWindow))
			run := w.createFanOut(ctx, 8, 3)
			answer := func() {
				for _, t := range w.take(ctx) {
					t.say(ctx, long(t))
					Expect(t.msg.DoubleAck(ctx)).To(Succeed())
				}
			}
			first := w.newReplica(ctx, "first")
			first.killAt(p.place, p.nth)
			first.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
				answer()
				return lifecycle.Finished(now)
			})
			w.outliveWindow(ctx)
			w.dropLock(ctx, run)
			second := w.newReplica(ctx, "second")
			end := second.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
				answer()
				return lifecycle.Finished(now)
			})
			Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
			Expect(w.jobsStored(ctx)).To(Equal(9), "each item, and the step after them, is stored once")
			second.drained(ctx, run)
			ref := stepOf(end, "all").OutputRef
			Expect(ref).NotTo(BeNil())
			store, err := w.js.ObjectStore(ctx, w.names.PayloadsBucket())
			Expect(err).NotTo(HaveOccurred())
			text, err := store.GetBytes(ctx, ref.Name)
			Expect(err).NotTo(HaveOccurred())
			var list []struct{ Job string }
			Expect(json.Unmarshal(text, &list)).To(Succeed())
			Expect(list).To(HaveLen(8))
			for i, item := range list {
				Expect(item.Job).To(Equal(fmt.Sprintf("%s/all/%d/1", run.UID, i)))
			}
		}, NodeTimeout(2*patience))
	}

	It("of a thousand items takes few writes, few takes of the lock and little room; nothing but its output is left", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.createFanOut(ctx, 1000, 1000)
		largest := 0
		var tasks []*task
		end := r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			largest = max(largest, statusBytes(now))
			tasks = append(tasks, w.take(ctx)...)
			n := min(len(tasks), 60)
			for _, t := range tasks[:n] {
				t.succeed(ctx)
			}
			tasks = tasks[n:]
			return lifecycle.Finished(now)
		})
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(stepOf(end, "all").ForEach.Succeeded).To(BeEquivalentTo(1000))
		Expect(r.counter("syncopate_status_writes_total")).To(BeNumerically("<=", 60))
		Expect(r.counter("syncopate_run_lock_acquisitions_total")).To(BeNumerically("<=", 60))
		Expect(largest).To(BeNumerically("<", 32<<10))
		Expect(w.objects(ctx)).To(ConsistOf(stepOf(end, "all").OutputRef.Name))
		GinkgoWriter.Printf("writes %v, largest status %d bytes\n", r.counter("syncopate_status_writes_total"), largest)
	}, NodeTimeout(4*patience))

	// The matrix of kinds_test.go for items: whatever they are doing, a wish of the user ends, and
	// leaves nothing behind.
	states := map[string]string{
		"with jobs in the queue": ``,
		"with jobs at work":      `{"status":"Started"}`,
		"backing off":            `{"status":"Retry","retryAfterMillis":4000,"error":{"code":"Busy"}}`,
		"some of them failed":    `{"status":"Failed","final":true,"error":{"code":"E"}}`,
	}
	verbs := map[string]v1alpha1.RunPhase{
		`{"spec":{"suspend":true}}`: v1alpha1.RunSucceeded, `{"spec":{"shutdown":"Cancel"}}`: v1alpha1.RunCancelled,
		`{"spec":{"shutdown":"Terminate"}}`: v1alpha1.RunCancelled, "delete": "",
	}
	for name, said := range states {
		for verb, want := range verbs {
			inModes(fmt.Sprintf("%s answers to %s, and nothing is left", name, verb), func(ctx SpecContext, m mode) {
				w := newWorld(ctx)
				r := m.replica(ctx, w, "r")
				steps, inputs := fanOut(12, 6, v1alpha1.Collect)
				run := w.create(ctx, steps, inputs)
				r.inFlight(ctx, run, 6)
				atWork := w.takeAll(ctx, 6)
				for _, t := range atWork[:3] {
					if said != "" {
						t.say(ctx, said)
					}
				}
				if said != "" {
					r.pumpAll(ctx, 3)
					w.clock.Step(pacing.ItemStartedPatience)
					r.mustPass(ctx, run)
				}
				if want == "" {
					last := w.get(ctx, run)
					Expect(w.client.Delete(ctx, run)).To(Succeed())
					r.Index.Remove(last, true)
					r.turn(ctx, run)
				} else {
					w.patch(ctx, run, verb)
					for range 3 {
						r.turn(ctx, run)
					}
				}
				for _, t := range atWork {
					t.succeed(ctx) // in time after a resume, else too late
				}
				if want == v1alpha1.RunSucceeded {
					Expect(stepOf(w.get(ctx, run), "all").ForEach.Begun).To(BeEquivalentTo(min(12, 6+3*btoi(name == "some of them failed"))), "nothing begins while it is suspended")
					w.patch(ctx, run, `{"spec":{"suspend":false}}`)
				}
				if want != "" {
					Expect(r.finish(ctx, run).Status.Phase).To(Equal(want))
					r.drained(ctx, run)
				}
				Expect(r.GC.Round(ctx)).To(Succeed())
				Expect(w.jobsQueued(ctx)).To(BeZero())
				until(ctx, "the lock is free", func() bool { w.clock.Step(time.Second); return !w.locked(ctx, run) })
			})
		}
	}

	It("that is cancelled leaves no job in the queue, and its workers are told", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.createFanOut(ctx, 300, 200)
		r.inFlight(ctx, run, 200)
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		Expect(r.drive(ctx, run, finished).Status.Phase).To(Equal(v1alpha1.RunCancelled))
		Expect(w.jobsQueued(ctx)).To(BeZero())
	}, NodeTimeout(2*patience))

	for end, lead := range map[string]time.Duration{"is cancelled": 0, "is cancelled while another has its lock": 0, "times out": time.Hour - 80*time.Millisecond} {
		It("has results that wait for others counted when it "+end, func(ctx SpecContext) {
			w := newWorld(ctx)
			w.policy(ctx, brief()) // a lease that lingers would be taken again, whoever has the lock
			r := w.newReplica(ctx, "r")
			run := w.createFanOut(ctx, 40, 40)
			r.inFlight(ctx, run, 40)
			w.clock.Step(lead)
			w.takeAll(ctx, 40)[7].succeed(ctx)
			r.pumpAll(ctx, 1)
			w.clock.Step(pacing.ItemPatience / 2)
			r.mustPass(ctx, run)
			Expect(stepOf(w.get(ctx, run), "all").ForEach.Succeeded).To(BeZero(), "it waits for others")
			w.clock.Step(pacing.ItemPatience / 3)
			if strings.Contains(end, "another") {
				w.takeLock(ctx, run)
			}
			if lead == 0 {
				w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
			}
			r.mustPass(ctx, run)
			now := stepOf(w.get(ctx, run), "all").ForEach
			Expect(now.Succeeded).To(BeEquivalentTo(1))
			Expect(now.Groups == nil || now.Groups[0].Phase == v1alpha1.StepBackingOff).To(BeTrue(), "it was cancelled, or timed out")
		}, NodeTimeout(2*patience))
	}

	It("has jobs of ended items taken back by the garbage collector, and no others", func(ctx SpecContext) {
		w := newWorld(ctx)
		first := w.newReplica(ctx, "first")
		run := w.createFanOut(ctx, 4, 4)
		first.inFlight(ctx, run, 4)
		tasks := w.takeAll(ctx, 4)
		tasks[0].say(ctx, `{"status":"Failed","final":true,"error":{"code":"E"}}`)
		first.killAt("withdraw/before", 1)
		first.drive(ctx, run, func(*v1alpha1.WorkflowRun) bool { return false })
		w.dropLock(ctx, run)
		second := w.newReplica(ctx, "second")
		Expect(second.drive(ctx, run, finished).Status.Phase).To(Equal(v1alpha1.RunFailed))
		Expect(second.GC.Round(ctx)).To(Succeed())
		Expect(w.jobsQueued(ctx)).To(BeZero())
	}, NodeTimeout(2*patience))

	DescribeTable("is refused by the API server when it cannot be meant", func(ctx SpecContext, adjust func(*v1alpha1.Step), want string) {
		w := newWorld(ctx)
		steps, inputs := fanOut(2, 2, "")
		adjust(&steps[0])
		run := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{Steps: steps}}
		inputs(&run.Spec)
		run.GenerateName, run.Namespace = "run-", w.ns
		Expect(w.client.Create(ctx, run, client.DryRunAll)).To(MatchError(ContainSubstring(want)))
	},
		Entry("without a job", func(s *v1alpha1.Step) { s.Job, s.Delay = nil, &v1alpha1.Delay{Seconds: new(int32(1))} }, "forEach needs a job"),
		Entry("with too many at a time", func(s *v1alpha1.Step) { s.ForEach.MaxParallel = 1001 }, "maxParallel"),
		Entry("with an unknown action", func(s *v1alpha1.Step) { s.ForEach.OnItemFailure = "Ignore" }, "onItemFailure"),
	)
})

// createFanOut makes a run with a step for each of some items.
func (w *world) createFanOut(ctx SpecContext, items int, parallel int32) *v1alpha1.WorkflowRun {
	steps, inputs := fanOut(items, parallel, v1alpha1.FailStep)
	return w.create(ctx, steps, inputs)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func statusBytes(run *v1alpha1.WorkflowRun) int {
	text, err := json.Marshal(run.Status)
	Expect(err).NotTo(HaveOccurred())
	return len(text)
}

// mutations: a pass that looks only at what all runs have together, or only at its own, makes this
// fail.
func TestAPassKnowsTheListsOfItsLastDecision(t *testing.T) {
	run := &v1alpha1.WorkflowRun{}
	run.UID = "u"
	before, now := map[string][]any{"all": {1}}, map[string][]any{"all": {2}}
	p := &pass{r: &Reconciler{}, run: run}
	p.r.lists.keep("", run.UID, before)
	if !sameLists(knownLists(p), before) {
		t.Error("those of the last pass are not known")
	}
	p.lists = now
	p.r.lists.forget(run.UID)
	if !sameLists(knownLists(p), now) {
		t.Error("those of the last decision are not known, since there was no room for them")
	}
}
