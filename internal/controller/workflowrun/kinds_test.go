// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/liveness"
)

func approvalStep(name string, deps ...string) v1alpha1.Step {
	return v1alpha1.Step{Name: name, DependsOn: deps, Approval: &v1alpha1.Approval{Message: "go on?"}}
}

func delayStep(name string, seconds int32, deps ...string) v1alpha1.Step {
	return v1alpha1.Step{Name: name, DependsOn: deps, Delay: &v1alpha1.Delay{Seconds: &seconds}}
}

// allKinds is a run with a step of each kind, clean-up and outputs.
func allKinds() ([]v1alpha1.Step, func(*v1alpha1.WorkflowRunSpec)) {
	steps := []v1alpha1.Step{step("draft"), approvalStep("review", "draft"), delayStep("cool-down", 2, "review"), step("publish", "cool-down")}
	return steps, func(spec *v1alpha1.WorkflowRunSpec) {
		spec.Finally = []v1alpha1.Step{step("notify")}
		spec.Outputs = &runtime.RawExtension{Raw: []byte(`{"by":"${steps.review.approval.approver}","job":"${steps.publish.output.job}"}`)}
	}
}

// decide creates a decision about a step that asks for one.
func (w *world) decide(ctx context.Context, run *v1alpha1.WorkflowRun, step string, decision v1alpha1.ApprovalDecision) {
	GinkgoHelper()
	Expect(w.client.Create(ctx, &v1alpha1.StepApproval{
		ObjectMeta: metav1.ObjectMeta{GenerateName: run.Name + "-", Namespace: run.Namespace},
		Spec: v1alpha1.StepApprovalSpec{
			Run: run.Name, RunUID: string(run.UID), Step: step, Decision: decision, Approver: "ann", Comment: "well done",
		},
	})).To(Succeed())
}

func stepOf(run *v1alpha1.WorkflowRun, name string) v1alpha1.StepStatus {
	if !run.Unwritten() {
		for _, s := range run.Status.Steps {
			if s.Name == name {
				return s
			}
		}
	}
	return v1alpha1.StepStatus{}
}

func inPhase(name string, phase v1alpha1.StepPhase) func(*v1alpha1.WorkflowRun) bool {
	return func(run *v1alpha1.WorkflowRun) bool { return stepOf(run, name).Phase == phase }
}

// Mutations that make specs below fail:
//   - signals.go observe that does nothing: decisions are not seen.
//   - end.go finish that always ends: notify never runs.
var _ = Describe("steps of every kind", func() {
	for nth := 1; nth <= 7; nth++ {
		for _, place := range []string{"status/before", "status/after"} {
			It(fmt.Sprintf("are recovered from a crash at %s, for the %d. time", place, nth), matrix, func(ctx SpecContext) {
				w := newWorld(ctx, withWindow(tinyWindow))
				steps, adjust := allKinds()
				run := w.create(ctx, steps, adjust)
				w.decide(ctx, run, "review", v1alpha1.Approve)
				first := w.newReplica(ctx, "first")
				first.killAt(place, nth)
				first.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
					w.work(ctx)
					return lifecycle.Finished(now)
				})
				w.dropLock(ctx, run)
				end := w.newReplica(ctx, "second").finish(ctx, run)
				Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
				Expect(w.jobsStored(ctx)).To(Equal(3))
				Expect(string(end.Status.Outputs.Raw)).To(MatchJSON(fmt.Sprintf(`{"by":"ann","job":%q}`, stepOf(end, "publish").JobID)))
				Expect(stepOf(end, "review").Approval.Comment).To(Equal("well done"))
				delay := stepOf(end, "cool-down")
				Expect(delay.CompletedAt.Time).NotTo(BeTemporally("<", delay.DelayedUntil.Time))
			}, NodeTimeout(2*patience))
		}
	}

	It("wait without writes until somebody decides; a rejection ends the run after its clean-up", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		steps, adjust := allKinds()
		run := w.create(ctx, steps, adjust)
		waiting := r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			w.work(ctx)
			return inPhase("review", v1alpha1.StepWaiting)(now)
		})
		Expect(reasonOf(waiting, v1alpha1.ConditionSucceeded)).To(Equal(v1alpha1.ReasonWaitingForApproval))
		for range 5 {
			r.turn(ctx, run)
			w.clock.Step(lookAgain)
		}
		Expect(w.get(ctx, run).ResourceVersion).To(Equal(waiting.ResourceVersion))
		w.decide(ctx, run, "review", v1alpha1.Reject)
		end := r.finish(ctx, run)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunFailed))
		Expect(stepOf(end, "review").Error.Code).To(Equal(facts.CodeRejected))
		Expect(stepOf(end, "notify").Phase).To(Equal(v1alpha1.StepSucceeded))
	}, NodeTimeout(2*patience))
})

// deaf has a replica hear of no decision, as if its watch were late.
func (r *replica) deaf() {
	late := interceptor.NewClient(r.w.client, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
	})
	r.Signals = Sources{&Approvals{Client: late, Live: r.Live}}
}

// Mutations that make these fail: lifecycle timeOutWait that does not ask; askSignals that keeps
// what was heard; Ask that reads the cache; decide that asks the object store before it decides on
// what was asked.
var _ = Describe("a decision that was made in time", func() {
	It("counts though the operator has not heard of it; one that was not made does not", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		r.deaf()
		ask := approvalStep("ask")
		ask.Approval.TimeoutSeconds = new(int32(3600))
		run, silent := w.create(ctx, []v1alpha1.Step{ask}), w.create(ctx, []v1alpha1.Step{ask})
		for _, one := range []*v1alpha1.WorkflowRun{run, silent} {
			r.drive(ctx, one, inPhase("ask", v1alpha1.StepWaiting))
		}
		w.decide(ctx, run, "ask", v1alpha1.Approve)
		asked := r.countPlace("census/before")
		w.clock.Step(time.Minute)
		r.mustPass(ctx, run)
		Expect(asked()).To(BeZero(), "nothing is due")

		w.clock.Step(2 * time.Hour)
		r.hook = failing("census/before")
		for range 2 {
			Expect(r.mustPass(ctx, run).RequeueAfter).To(BeNumerically("~", actRetryDelay, actRetryDelay/2), "it does not ask all the time")
			Expect(stepOf(w.get(ctx, run), "ask").Phase).To(Equal(v1alpha1.StepWaiting), "nobody knows")
		}
		asked = r.countPlace("census/before")
		for _, one := range []*v1alpha1.WorkflowRun{run, silent} {
			r.mustPass(ctx, one)
		}
		Expect(asked()).To(BeEquivalentTo(2), "once for each run")
		Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(stepOf(w.get(ctx, run), "ask").Approval.Approver).To(Equal("ann"))
		Expect(stepOf(w.get(ctx, silent), "ask").Error.Code).To(Equal(facts.CodeApprovalTimeout))
	}, NodeTimeout(2*patience))

	// Mutations that make this fail: lifecycle runTimedOut that asks nobody; askSignals that does
	// not note that it cannot ask, which has the run wait for good.
	It("counts by the deadline of its run, too, which waits a minute where nobody can be asked", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		r.deaf()
		var runs [3]*v1alpha1.WorkflowRun
		for i := range runs {
			runs[i] = w.create(ctx, []v1alpha1.Step{approvalStep("ask")}, func(s *v1alpha1.WorkflowRunSpec) { s.ActiveDeadlineSeconds = new(int32(3600)) })
			r.drive(ctx, runs[i], inPhase("ask", v1alpha1.StepWaiting))
		}
		w.decide(ctx, runs[0], "ask", v1alpha1.Approve)
		w.clock.Step(2 * time.Hour)
		for i, want := range []v1alpha1.RunPhase{v1alpha1.RunSucceeded, v1alpha1.RunTimedOut} {
			asked := r.countPlace("census/before")
			r.mustPass(ctx, runs[i])
			Expect(asked()).To(BeEquivalentTo(1))
			Expect(w.get(ctx, runs[i]).Status.Phase).To(Equal(want))
		}

		run := runs[2]
		r.hook = failing("census/before")
		for range 2 {
			Expect(r.mustPass(ctx, run).RequeueAfter).To(BeNumerically("~", actRetryDelay, actRetryDelay/2), "it does not ask all the time")
			Expect(stepOf(w.get(ctx, run), "ask").Phase).To(Equal(v1alpha1.StepWaiting), "nobody knows")
		}
		Expect(messageOf(w.get(ctx, run), v1alpha1.ConditionSucceeded)).To(ContainSubstring("whether somebody decided in time cannot be found out"))
		w.clock.Step(time.Minute)
		r.mustPass(ctx, run)
		end := w.get(ctx, run)
		Expect(reasonOf(end, v1alpha1.ConditionSucceeded)).To(Equal(v1alpha1.ReasonDeadlineExceeded))
		Expect(messageOf(end, v1alpha1.ConditionSucceeded)).To(ContainSubstring("whether somebody decided in time cannot be found out"))
	}, NodeTimeout(2*patience))

	It("does not wait for the object store", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		r.deaf()
		ask, large := approvalStep("ask"), step("large")
		ask.Approval.TimeoutSeconds = new(int32(3600))
		large.TimeoutSeconds, large.StartTimeoutSeconds = 36_000, 36_000
		run := w.create(ctx, []v1alpha1.Step{ask, large})
		r.inFlight(ctx, run, 1)
		w.decide(ctx, run, "ask", v1alpha1.Approve)
		w.clock.Step(2 * time.Hour)
		w.takeAll(ctx, 1)[0].say(ctx, fmt.Sprintf(`{"status":"Succeeded","output":%q}`, strings.Repeat("o", 5000)))
		r.pumpAll(ctx, 1)
		r.hook = failing("store/before")
		r.mustPass(ctx, run)
		Expect(stepOf(w.get(ctx, run), "ask").Phase).To(Equal(v1alpha1.StepSucceeded))
		Expect(stepOf(w.get(ctx, run), "large").Phase).To(Equal(v1alpha1.StepDispatched))
		r.hook = nil
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))
})

// The matrix: whatever a run is doing, and whatever its user wishes, it ends, and
// leaves nothing behind.
var _ = Describe("a wish of the user", matrix, func() {
	type state struct {
		name    string
		reached func(*v1alpha1.WorkflowRun) bool
		adjust  func(*v1alpha1.WorkflowRunSpec)
		work    bool // workers work until then
	}
	states := []state{
		{name: "not looked at yet"},
		{name: "suspended before its admission", adjust: func(s *v1alpha1.WorkflowRunSpec) { s.Suspend = true }, reached: func(run *v1alpha1.WorkflowRun) bool {
			return !run.Unwritten() && run.Status.Phase == v1alpha1.RunSuspended
		}},
		{name: "with a job in the queue", reached: inPhase("draft", v1alpha1.StepDispatched)},
		{name: "backing off", reached: inPhase("draft", v1alpha1.StepBackingOff)},
		{name: "with a job at work", reached: inPhase("draft", v1alpha1.StepRunning)},
		{name: "waiting for an approval", reached: inPhase("review", v1alpha1.StepWaiting), work: true},
		{name: "delayed", reached: inPhase("cool-down", v1alpha1.StepDelayed), work: true},
		{name: "cleaning up", reached: inPhase("notify", v1alpha1.StepDispatched), work: true},
	}
	verbs := map[string]struct {
		patch string
		want  v1alpha1.RunPhase // for a run that is cleaning up: as announced, but for Terminate
	}{
		"suspend and resume": {`{"spec":{"suspend":true}}`, v1alpha1.RunSucceeded},
		"cancel":             {`{"spec":{"shutdown":"Cancel"}}`, v1alpha1.RunCancelled},
		"terminate":          {`{"spec":{"shutdown":"Terminate"}}`, v1alpha1.RunCancelled},
		"delete":             {"", ""},
	}
	reach := func(ctx context.Context, w *world, r *replica, s state) (run *v1alpha1.WorkflowRun, atWork []*task) {
		steps, adjust := allKinds()
		steps[0].Retry = v1alpha1.Retry{MaxFailures: 3, Backoff: v1alpha1.Backoff{InitialMillis: new(int64(3_600_000)), MaxMillis: new(int64(3_600_000))}}
		run = w.create(ctx, steps, adjust, func(spec *v1alpha1.WorkflowRunSpec) {
			if s.adjust != nil {
				s.adjust(spec)
			}
		})
		if s.reached == nil {
			return run, nil
		}
		if s.name != "waiting for an approval" {
			w.decide(ctx, run, "review", v1alpha1.Approve)
		}
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			if s.reached(now) {
				return true
			}
			switch {
			case s.work:
				w.work(ctx)
			case s.name == "with a job at work":
				for _, t := range w.take(ctx) {
					t.say(ctx, `{"status":"Started"}`)
					atWork = append(atWork, t)
				}
			case s.name == "backing off":
				for _, t := range w.take(ctx) {
					t.say(ctx, `{"status":"Failed","error":{"code":"E"}}`)
					Expect(t.msg.DoubleAck(ctx)).To(Succeed())
				}
			}
			return false
		})
		return run, atWork
	}
	for _, s := range states {
		for verb, v := range verbs {
			inModes(fmt.Sprintf("to %s a run that is %s is granted, and nothing is left", verb, s.name), func(ctx SpecContext, m mode) {
				w := newWorld(ctx)
				r := m.replica(ctx, w, "r")
				run, atWork := reach(ctx, w, r, s)
				if v.patch == "" {
					last := w.get(ctx, run)
					Expect(w.client.Delete(ctx, run)).To(Succeed())
					r.Index.Remove(last, true)
					r.turn(ctx, run)
				} else {
					w.patch(ctx, run, v.patch)
					for range 3 {
						r.turn(ctx, run)
					}
				}
				for _, t := range atWork {
					t.succeed(ctx) // in time after a resume, else too late
				}
				want := v.want
				if verb == "suspend and resume" {
					w.patch(ctx, run, `{"spec":{"suspend":false}}`)
					if s.name == "backing off" {
						w.clock.Step(2 * time.Hour) // an hour, and its jitter
					}
					if stepOf(w.get(ctx, run), "review").Phase == v1alpha1.StepWaiting || s.reached == nil {
						w.decide(ctx, run, "review", v1alpha1.Approve)
					}
				}
				if s.name == "cleaning up" && verb == "cancel" {
					want = v1alpha1.RunSucceeded
				}
				if want != "" {
					end := r.finish(ctx, run)
					Expect(end.Status.Phase).To(Equal(want))
					r.drained(ctx, run)
				}
				Expect(r.GC.Round(ctx)).To(Succeed())
				Expect(w.jobsQueued(ctx)).To(BeZero())
				until(ctx, "the lock is free", func() bool { w.clock.Step(time.Second); return !w.locked(ctx, run) })
			})
		}
	}
})

func reasonOf(run *v1alpha1.WorkflowRun, kind string) string {
	if c := meta.FindStatusCondition(run.Status.Conditions, kind); c != nil {
		return c.Reason
	}
	return ""
}

// knownWorkers are crews that know what a spec says.
type knownWorkers struct {
	state map[string]liveness.State

	mu      sync.Mutex
	watched map[types.NamespacedName][]string
}

func (k *knownWorkers) Watch(key types.NamespacedName, topics ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.watched == nil {
		k.watched = map[types.NamespacedName][]string{}
	}
	k.watched[key] = topics
}

func (k *knownWorkers) Forget(key types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.watched, key)
}

func (k *knownWorkers) State(topic string) liveness.State { return k.state[topic] }

// Mutations that make this fail: watchWorkers that is not called; one that does not look at what is
// known already; workersText that is "".
var _ = Describe("workers", func() {
	It("that do not pull are told, and told no more when they do; a finished run is watched no more", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		known := &knownWorkers{state: map[string]liveness.State{topic: {Kind: liveness.NobodyPulls, Since: w.clock.Now()}}}
		r.Liveness = known
		run := w.create(ctx, twoSteps())
		for stepOf(w.get(ctx, run), "a").Phase != v1alpha1.StepDispatched {
			Expect(stepOf(w.get(ctx, run), "a").Phase).To(BeEmpty())
			Expect(r.mustPass(ctx, run).RequeueAfter).To(BeNumerically("<=", newsDelay), "what is known already is told soon")
		}
		told := r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return !now.Unwritten() && reasonOf(now, v1alpha1.ConditionSucceeded) == v1alpha1.ReasonWaitingForWorkers
		})
		Expect(meta.FindStatusCondition(told.Status.Conditions, v1alpha1.ConditionSucceeded).Message).To(ContainSubstring("nobody pulls jobs of topic " + topic))
		Expect(known.watched).To(HaveKeyWithValue(client.ObjectKeyFromObject(run), []string{topic}))
		for range 3 {
			r.turn(ctx, run)
		}
		Expect(w.get(ctx, run).ResourceVersion).To(Equal(told.ResourceVersion), "it is told once")
		known.state[topic] = liveness.State{Kind: liveness.Pulling}
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return reasonOf(now, v1alpha1.ConditionSucceeded) == v1alpha1.ReasonRunning
		})
		r.finish(ctx, run)
		r.turn(ctx, run)
		Expect(known.watched).To(BeEmpty())
		known.Watch(client.ObjectKeyFromObject(run), topic) // as if another process had ended it
		r.turn(ctx, run)
		Expect(known.watched).To(BeEmpty())
	}, NodeTimeout(2*patience))
})
