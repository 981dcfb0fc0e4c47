// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/templates"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/quota/locks"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// workflow creates a Workflow of this world.
func (w *world) workflow(ctx context.Context, name string, spec v1alpha1.WorkflowSpec) *v1alpha1.Workflow {
	GinkgoHelper()
	wf := &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, Spec: spec}
	Expect(w.client.Create(ctx, wf)).To(Succeed())
	return wf
}

// follow creates a run that follows a Workflow, with inputs as JSON.
func (w *world) following(ctx context.Context, workflow, inputs string) *v1alpha1.WorkflowRun {
	GinkgoHelper()
	return w.create(ctx, nil, func(s *v1alpha1.WorkflowRunSpec) {
		s.WorkflowRef = &v1alpha1.WorkflowReference{Name: workflow}
		if inputs != "" {
			s.Inputs = &runtime.RawExtension{Raw: []byte(inputs)}
		}
	})
}

// change gives a Workflow another template.
func (w *world) change(ctx context.Context, wf *v1alpha1.Workflow, t v1alpha1.WorkflowTemplate) {
	GinkgoHelper()
	wf.Spec.Template = t
	Expect(w.client.Update(ctx, wf)).To(Succeed())
}

func revisionOf(wf *v1alpha1.Workflow) string {
	GinkgoHelper()
	_, revision, err := template.Encode(&wf.Spec)
	Expect(err).NotTo(HaveOccurred())
	return revision
}

// effective is a run with the steps that it follows.
func (w *world) effective(ctx context.Context, run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	GinkgoHelper()
	if run.Spec.WorkflowRef == nil || run.Status == nil || run.Status.Workflow == nil {
		return run
	}
	store := revisions.Store{Live: w.client, Client: w.client}
	c, _, err := store.Load(ctx, run.Namespace, *run.Status.Workflow)
	if errors.Is(err, revisions.ErrGone) {
		under := run.DeepCopy()
		under.Status.CompletedAt = nil
		run.Spec.Steps = lifecycle.WithoutTemplate(under).Spec.Steps
		return run
	}
	Expect(err).NotTo(HaveOccurred())
	inputs, _ := c.Inputs(run.Spec.Inputs)
	return c.Effective(run, inputs)
}

func (w *world) deleteRevision(ctx context.Context, workflow, revision string) {
	GinkgoHelper()
	Expect(w.client.Delete(ctx, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.ns, Name: template.ObjectName(workflow, revision),
	}})).To(Succeed())
}

// abandoned is a run that follows a Workflow, has two jobs in flight, and is driven by nobody.
func (w *world) abandoned(ctx context.Context) (*v1alpha1.Workflow, *v1alpha1.WorkflowRun) {
	GinkgoHelper()
	wf := w.workflow(ctx, "report", templateOf(diamond()...))
	a := w.newReplica(ctx, "a")
	run := w.following(ctx, "report", "")
	a.inFlight(ctx, run, 2)
	a.kill(ctx)
	w.dropLock(ctx, run)
	return wf, run
}

// withoutItsRevision is an abandoned run whose revision was deleted in the middle of it; its
// Workflow is there.
func (w *world) withoutItsRevision(ctx context.Context) (*v1alpha1.Workflow, *v1alpha1.WorkflowRun) {
	GinkgoHelper()
	wf, run := w.abandoned(ctx)
	w.deleteRevision(ctx, "report", revisionOf(wf))
	return wf, run
}

// inTheWay has another object under the name of a revision, which is refused then.
func (w *world) inTheWay(ctx context.Context, wf *v1alpha1.Workflow) {
	GinkgoHelper()
	Expect(w.client.Create(ctx, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: template.ObjectName("report", revisionOf(wf))}, Data: runtime.RawExtension{Raw: []byte(`{}`)},
	})).To(Succeed())
}

func templateOf(steps ...v1alpha1.Step) v1alpha1.WorkflowSpec {
	return v1alpha1.WorkflowSpec{Template: v1alpha1.WorkflowTemplate{Steps: steps}}
}

// reads is a step whose input is that of the run.
func reads(name string, deps ...string) v1alpha1.Step {
	s := step(name, deps...)
	s.Job.Input = &runtime.RawExtension{Raw: []byte(`{"region":"${inputs.region}"}`)}
	return s
}

// Mutation that makes "waits for its Workflow" fail as ClassNotAllowed: observe.go observeTenant
// that reads no namespace once the tenant is pinned.
var _ = Describe("a run that follows a Workflow", func() {
	It("carries no steps, reads its inputs with their defaults, and pins what it follows", func(ctx SpecContext) {
		w := newWorld(ctx)
		spec := templateOf(reads("a"), step("b", "a"))
		spec.Parameters = []v1alpha1.Parameter{{Name: "region", Default: &runtime.RawExtension{Raw: []byte(`"eu"`)}}}
		spec.Template.Outputs = &runtime.RawExtension{Raw: []byte(`{"region":"${inputs.region}"}`)}
		wf := w.workflow(ctx, "report", spec)
		r := w.newReplica(ctx, "r")
		run := w.following(ctx, "report", "")
		r.inFlight(ctx, run, 1)
		Expect(r.memories.peek(client.ObjectKeyFromObject(run)).last.Spec.Steps).To(BeEmpty(), "what this process remembers is what is stored")
		end := r.finish(ctx, run)
		Expect(endOf(end)).To(Equal("Succeeded/Succeeded"))
		Expect(end.Spec.Steps).To(BeEmpty())
		Expect(end.Spec.Inputs).To(BeNil())
		Expect(end.Status.Workflow).To(Equal(&v1alpha1.WorkflowRevision{Name: "report", Revision: revisionOf(wf)}))
		Expect(end.Status.MinWriterVersion).To(Equal(v1alpha1.WorkflowVersion))
		Expect(end.Status.Progress).To(Equal("2/2"))
		Expect(string(end.Status.Outputs.Raw)).To(MatchJSON(`{"region":"eu"}`))
	}, NodeTimeout(patience))

	It("keeps its revision, though the Workflow changes five times while many runs are under way and are retried by two operators", func(ctx SpecContext) {
		w := newWorld(ctx)
		spec := templateOf(step("s0"), step("z", "s0"))
		spec.Template.Steps[0].Retry = v1alpha1.Retry{Backoff: v1alpha1.Backoff{InitialMillis: new(int64), MaxMillis: new(int64), JitterPercent: new(int32)}}
		w.policy(ctx, brief())
		wf := w.workflow(ctx, "report", spec)
		a, b := w.newReplica(ctx, "a"), w.newReplica(ctx, "b")
		n := 10
		if many, err := strconv.Atoi(os.Getenv("TEMPLATE_RUNS")); err == nil {
			n = many // TEMPLATE_RUNS=200 go test ./internal/controller/workflowrun -ginkgo.focus ...
		}
		want := map[types.UID]string{}
		for version := range 5 {
			for range n / 5 {
				run := w.following(ctx, "report", "")
				a.turn(ctx, run)
				want[run.UID] = fmt.Sprint("s", version)
			}
			next := *wf.Spec.Template.DeepCopy()
			next.Steps[0].Name, next.Steps[1].DependsOn = fmt.Sprint("s", version+1), []string{fmt.Sprint("s", version+1)}
			w.change(ctx, wf, next)
		}
		failed := map[types.UID]bool{}
		untilWithin(ctx, time.Duration(max(1, n/25))*patience, "all runs end", func() bool {
			all, over := w.all(ctx), true
			for i := range all {
				if lifecycle.Finished(&all[i]) {
					continue
				}
				a.turn(ctx, &all[i])
				b.turn(ctx, &all[i])
				over = false
			}
			for _, t := range w.take(ctx) {
				if uid := types.UID(t.id.RunUID); !failed[uid] {
					failed[uid] = true
					t.say(ctx, `{"status":"Failed","error":{"code":"X","message":"once"}}`)
					Expect(t.msg.DoubleAck(ctx)).To(Succeed())
					continue
				}
				t.succeed(ctx)
			}
			w.clock.Step(time.Second)
			return over
		})
		for _, run := range w.all(ctx) {
			Expect(endOf(&run)).To(Equal("Succeeded/Succeeded"))
			Expect(run.Status.Steps[0].Name).To(Equal(want[run.UID]))
			Expect(run.Status.Steps[0].Attempt).To(BeEquivalentTo(2))
		}
	}, NodeTimeout(10*patience))

	It("is smaller than a run with the same 20 steps of its own, in every write and event of the watch", func(ctx SpecContext) {
		w := newWorld(ctx)
		var steps []v1alpha1.Step
		for i := range 20 {
			s := step(fmt.Sprint("collect-", i))
			if i > 0 {
				s.DependsOn = []string{fmt.Sprint("collect-", i-1)}
			}
			s.Job.Input = &runtime.RawExtension{Raw: []byte(`{"region":"${inputs.region}","bucket":"reports","format":"parquet","since":"2026-01-01"}`)}
			s.TimeoutSeconds, s.Retry.MaxFailures = 600, 5
			steps = append(steps, s)
		}
		spec := templateOf(steps...)
		spec.Parameters = []v1alpha1.Parameter{{Name: "region"}}
		w.workflow(ctx, "report", spec)
		r := w.newReplica(ctx, "r")
		sizes := func(run *v1alpha1.WorkflowRun) (first, last int) {
			r.inFlight(ctx, run, 1)
			first = r.memories.peek(client.ObjectKeyFromObject(run)).lastWriteBytes
			stored, err := json.Marshal(r.finish(ctx, run))
			Expect(err).NotTo(HaveOccurred())
			return first, len(stored)
		}
		first, last := sizes(w.following(ctx, "report", `{"region":"eu"}`))
		inlineFirst, inlineLast := sizes(w.create(ctx, steps, func(s *v1alpha1.WorkflowRunSpec) {
			s.Inputs = &runtime.RawExtension{Raw: []byte(`{"region":"eu"}`)}
		}))
		AddReportEntry("bytes", fmt.Sprintf("first write %d, inline %d; the run at its end %d, inline %d", first, inlineFirst, last, inlineLast))
		Expect(float64(first)).To(BeNumerically("<=", 0.7*float64(inlineFirst)))
		Expect(float64(last)).To(BeNumerically("<=", 0.7*float64(inlineLast)))
	}, NodeTimeout(2*patience))

	It("goes on when its Workflow is deleted, also in another process", func(ctx SpecContext) {
		w := newWorld(ctx)
		wf := w.workflow(ctx, "report", templateOf(diamond()...))
		a := w.newReplica(ctx, "a")
		run := w.following(ctx, "report", "")
		a.inFlight(ctx, run, 2)
		Expect(w.client.Delete(ctx, wf)).To(Succeed())
		a.kill(ctx)
		w.dropLock(ctx, run)
		b := w.newReplica(ctx, "b")
		Expect(endOf(b.finish(ctx, run))).To(Equal("Succeeded/Succeeded"))
		Expect(w.jobsStored(ctx)).To(Equal(3))
	}, NodeTimeout(patience))

	It("never begins before its revision is stored, also where runs may be ahead of their status", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{Checkpoint: v1alpha1.CheckpointPolicy{Mode: v1alpha1.CheckpointCoalesced, MaxDelayMillis: longest}})
		w.workflow(ctx, "report", templateOf(chainOf(5)...))
		r := w.newReplica(ctx, "r", here)
		run := w.following(ctx, "report", "")
		until(ctx, "a job is stored", func() bool {
			r.turn(ctx, run)
			return w.jobsStored(ctx) > 0
		})
		Expect(w.get(ctx, run).Status.Workflow).NotTo(BeNil())
		w.clock.Step(time.Second)
		r.rush(ctx, run, 5)
		Expect(r.writes()).To(BeNumerically("<=", 2), "after that it is ahead as others are")
		Expect(endOf(r.finish(ctx, run))).To(Equal("Succeeded/Succeeded"))
		Expect(w.jobsStored(ctx)).To(Equal(5))
	}, NodeTimeout(patience))

	It("is refused with the field, before anything is dispatched", func(ctx SpecContext) {
		w := newWorld(ctx)
		spec := templateOf(reads("a"))
		spec.Parameters = []v1alpha1.Parameter{{Name: "region", Required: true, Enum: []string{"eu"}}, {Name: "n", Type: v1alpha1.ParameterInteger}}
		w.workflow(ctx, "report", spec)
		r := w.newReplica(ctx, "r")
		for inputs, message := range map[string]string{
			``:                          "spec.inputs.region: Workflow report requires this string",
			`{"region":"mars"}`:         `spec.inputs.region: "mars" is not one of eu`,
			`{"region":"eu","n":"1"}`:   "spec.inputs.n: is of type string",
			`{"region":"eu","extra":1}`: "spec.inputs.extra: Workflow report has no such parameter",
		} {
			end := r.finish(ctx, w.following(ctx, "report", inputs))
			Expect(endOf(end)).To(Equal("Failed/InvalidSpec"))
			Expect(messageOf(end, v1alpha1.ConditionSucceeded)).To(ContainSubstring(message))
		}
		Expect(w.jobsQueued(ctx)).To(BeZero())
	}, NodeTimeout(patience))

	// mutation: patterns that are compiled without a charge.
	It("says that the patterns of its Workflow are too large, or its text for them", func(ctx SpecContext) {
		w := newWorld(ctx)
		spec := templateOf(reads("a"))
		spec.Parameters = []v1alpha1.Parameter{{Name: "region", Pattern: strings.Repeat(".{999}", 42)}}
		w.workflow(ctx, "large", spec)
		spec.Parameters = []v1alpha1.Parameter{{Name: "region", Pattern: strings.Repeat(".{999}", 5) + "z"}}
		w.workflow(ctx, "slow", spec)
		r := w.newReplica(ctx, "r")
		for workflow, message := range map[string]string{
			"large": "spec.parameters[0].pattern: too large: all patterns together may have some 40,000 states",
			"slow":  "spec.inputs.region: takes too long to match its pattern",
		} {
			end := r.finish(ctx, w.following(ctx, workflow, fmt.Sprintf(`{"region":%q}`, strings.Repeat("a", 60<<10)+"z")))
			Expect(endOf(end)).To(Equal("Failed/InvalidSpec"))
			Expect(messageOf(end, v1alpha1.ConditionSucceeded)).To(ContainSubstring(message))
		}
		Expect(w.jobsQueued(ctx)).To(BeZero())
	}, NodeTimeout(patience))

	It("waits for its Workflow for a minute, and is woken by it", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		late, never := w.following(ctx, "late", ""), w.following(ctx, "never", "")
		for _, run := range []*v1alpha1.WorkflowRun{late, never} {
			until(ctx, "it says that it waits", func() bool {
				r.turn(ctx, run)
				return reasonOf(w.get(ctx, run), v1alpha1.ConditionAdmitted) == v1alpha1.ReasonWaitingForWorkflow
			})
		}
		Expect(messageOf(w.get(ctx, late), v1alpha1.ConditionAdmitted)).To(ContainSubstring("Workflow late does not exist"))
		wf := w.workflow(ctx, "late", templateOf(step("a")))
		Expect(r.Templates.WaitingFor(client.ObjectKeyFromObject(wf))).To(Equal([]types.NamespacedName{client.ObjectKeyFromObject(late)}))
		Expect(endOf(r.finish(ctx, late))).To(Equal("Succeeded/Succeeded"))
		Expect(r.mustPass(ctx, never).RequeueAfter).To(BeNumerically("<=", time.Minute))
		w.clock.Step(time.Minute)
		Expect(endOf(r.finish(ctx, never))).To(Equal("Failed/WorkflowNotFound"))
		r.turn(ctx, never)
		Expect(r.Templates.WaitingFor(types.NamespacedName{Namespace: w.ns, Name: "never"})).To(BeEmpty())
	}, NodeTimeout(patience))

	It("follows the revision that it names, and none that is gone", func(ctx SpecContext) {
		w := newWorld(ctx)
		wf := w.workflow(ctx, "report", templateOf(step("old")))
		r := w.newReplica(ctx, "r")
		Expect(endOf(r.finish(ctx, w.following(ctx, "report", "")))).To(Equal("Succeeded/Succeeded"))
		old := revisionOf(wf)
		w.change(ctx, wf, v1alpha1.WorkflowTemplate{Steps: []v1alpha1.Step{step("new")}})
		named := func(revision string) *v1alpha1.WorkflowRun {
			return w.create(ctx, nil, func(s *v1alpha1.WorkflowRunSpec) {
				s.WorkflowRef = &v1alpha1.WorkflowReference{Name: "report", Revision: revision}
			})
		}
		Expect(r.finish(ctx, named(old)).Status.Steps[0].Name).To(Equal("old"))
		Expect(r.finish(ctx, named(revisionOf(wf))).Status.Steps[0].Name).To(Equal("new"))
		w.deleteRevision(ctx, "report", old)
		gone := named(old)
		r.turn(ctx, gone)
		w.clock.Step(2 * time.Minute)
		end := r.finish(ctx, gone)
		Expect(endOf(end)).To(Equal("Failed/WorkflowNotFound"))
		Expect(messageOf(end, v1alpha1.ConditionSucceeded)).To(ContainSubstring("has no revision " + old))
	}, NodeTimeout(patience))

	It("follows no revision that is about to be deleted", func(ctx SpecContext) {
		w := newWorld(ctx)
		wf := w.workflow(ctx, "report", templateOf(step("a")))
		retiring := wf.DeepCopy()
		retiring.Status = &v1alpha1.WorkflowStatus{Retiring: []string{revisionOf(wf)}}
		Expect(w.client.Status().Update(ctx, retiring)).To(Succeed())
		r := w.newReplica(ctx, "r")
		run := w.following(ctx, "report", "")
		until(ctx, "it says that it waits", func() bool {
			r.turn(ctx, run)
			return reasonOf(w.get(ctx, run), v1alpha1.ConditionAdmitted) == v1alpha1.ReasonWaitingForWorkflow
		})
		Expect(w.get(ctx, run).Status.Workflow).To(BeNil())
		retiring.Status.Retiring = nil
		Expect(w.client.Status().Update(ctx, retiring)).To(Succeed())
		w.clock.Step(2 * time.Second)
		Expect(endOf(r.finish(ctx, run))).To(Equal("Succeeded/Succeeded"))
	}, NodeTimeout(patience))

	It("ends and says so when its revision was deleted by somebody; one that the Workflow still has is made again", func(ctx SpecContext) {
		w := newWorld(ctx)
		wf, run := w.withoutItsRevision(ctx)
		b := w.newReplica(ctx, "b")
		b.turn(ctx, run)
		Expect(w.effective(ctx, w.get(ctx, run)).Spec.Steps).To(HaveLen(3), "it was made again")
		b.kill(ctx)
		w.dropLock(ctx, run)
		w.deleteRevision(ctx, "report", revisionOf(wf))
		Expect(w.client.Delete(ctx, wf)).To(Succeed())
		c := w.newReplica(ctx, "c")
		until(ctx, "it ends", func() bool {
			c.turn(ctx, run)
			return lifecycle.Finished(w.get(ctx, run))
		})
		end := w.get(ctx, run)
		Expect(endOf(end)).To(Equal("Failed/WorkflowNotFound"))
		Expect(end.Status.Steps).To(HaveLen(3), "what is known of the steps stays")
		Expect(messageOf(end, v1alpha1.ConditionSucceeded)).To(ContainSubstring("was deleted"))
	}, NodeTimeout(patience))

	// mutations: observeTemplate that tells nobody, or each time.
	It("tells people, once, when its revision is gone and is refused", func(ctx SpecContext) {
		w := newWorld(ctx)
		wf, run := w.withoutItsRevision(ctx)
		w.inTheWay(ctx, wf)
		b := w.newReplica(ctx, "b")
		for range 2 {
			w.clock.Step(time.Second)
			_, err := b.pass(ctx, run)
			Expect(err).To(MatchError(ContainSubstring("is in the way")))
		}
		Expect(b.recorder.list()).To(ConsistOf(And(ContainSubstring("Warning "+v1alpha1.ReasonRevisionNotKept), ContainSubstring("is in the way"))))
		w.deleteRevision(ctx, "report", revisionOf(wf))
		Expect(endOf(b.finish(ctx, run))).To(Equal("Succeeded/Succeeded"))
	}, NodeTimeout(patience))

	// mutations: observeTemplate that gives the refusal as an error for good; endUnkept that is not
	// called.
	DescribeTable("ends when it is to end, though its revision is gone and is refused", func(ctx SpecContext, end func(*v1alpha1.WorkflowRun), reason string) {
		w := newWorld(ctx)
		wf, run := w.withoutItsRevision(ctx)
		w.inTheWay(ctx, wf)
		b := w.newReplica(ctx, "b")
		for range 3 {
			_, err := b.pass(ctx, run)
			Expect(err).To(MatchError(ContainSubstring("is in the way")))
			w.clock.Step(20 * time.Second)
		}
		before := w.get(ctx, run)
		Expect(lifecycle.Finished(before)).To(BeFalse(), "it stands still")
		next := before.DeepCopy()
		end(next)
		if next.Spec.Shutdown == "" {
			next.Finalizers = []string{"example.com/held"}
		}
		Expect(w.client.Update(ctx, next)).To(Succeed())
		if next.Spec.Shutdown == "" {
			Expect(w.client.Delete(ctx, next)).To(Succeed())
		}
		until(ctx, "it ends", func() bool {
			b.turn(ctx, run)
			return lifecycle.Finished(w.get(ctx, run))
		})
		now := w.get(ctx, run)
		Expect(endOf(now)).To(Equal(reason))
		Expect(now.Status.Steps).To(HaveLen(3), "what is known of the steps stays")
		Expect(*now.Status.Fence).To(BeNumerically(">", *before.Status.Fence), "as an end without the lock")
		Expect(b.recorder.list()).To(ContainElement(ContainSubstring(v1alpha1.ReasonRevisionNotKept)))
		if len(now.Finalizers) > 0 {
			now.Finalizers = nil
			Expect(w.client.Update(ctx, now)).To(Succeed())
		}
	},
		Entry("it is terminated", func(run *v1alpha1.WorkflowRun) { run.Spec.Shutdown = v1alpha1.ShutdownTerminate }, "Cancelled/Terminated", NodeTimeout(patience)),
		Entry("it is cancelled", func(run *v1alpha1.WorkflowRun) { run.Spec.Shutdown = v1alpha1.ShutdownCancel }, "Cancelled/Cancelled", NodeTimeout(patience)),
		Entry("it is deleted, and somebody holds that up", func(*v1alpha1.WorkflowRun) {}, "Cancelled/Terminated", NodeTimeout(patience)),
	)

	// Its clean-up was over after the 300 seconds of a template that says nothing of it.
	//
	// mutation: stepsEnd that does not look whether the revision is there.
	DescribeTable("ends when it is to end, and not before, though its revision is gone and is refused in its clean-up", func(ctx SpecContext, end func(*v1alpha1.WorkflowRun)) {
		w := newWorld(ctx)
		spec := templateOf(step("a"))
		spec.Template.Finally, spec.Template.FinallyTimeoutSeconds = []v1alpha1.Step{step("tidy")}, 3600
		wf := w.workflow(ctx, "report", spec)
		a := w.newReplica(ctx, "a")
		run := w.following(ctx, "report", "")
		a.inFlight(ctx, run, 1)
		now := w.get(ctx, run)
		now.Spec.Shutdown = v1alpha1.ShutdownCancel
		Expect(w.client.Update(ctx, now)).To(Succeed())
		a.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return now.Status.Ending != nil && len(lifecycle.InFlight(now)) == 1
		})
		a.kill(ctx)
		w.dropLock(ctx, run)
		w.deleteRevision(ctx, "report", revisionOf(wf))
		w.inTheWay(ctx, wf)
		b := w.newReplica(ctx, "b")
		for range 3 {
			w.clock.Step(200 * time.Second)
			_, err := b.pass(ctx, run)
			Expect(err).To(MatchError(ContainSubstring("is in the way")))
		}
		now = w.get(ctx, run)
		Expect(lifecycle.Finished(now)).To(BeFalse(), "it has time for its clean-up")
		now.Finalizers = []string{"example.com/held"}
		end(now)
		Expect(w.client.Update(ctx, now)).To(Succeed())
		if now.Spec.Shutdown == v1alpha1.ShutdownCancel {
			Expect(w.client.Delete(ctx, now)).To(Succeed())
		}
		until(ctx, "it ends", func() bool {
			b.turn(ctx, run)
			return lifecycle.Finished(w.get(ctx, run))
		})
		now = w.get(ctx, run)
		Expect(endOf(now)).To(Equal("Cancelled/Terminated"))
		now.Finalizers = nil
		Expect(w.client.Update(ctx, now)).To(Succeed())
	},
		Entry("it is terminated", func(run *v1alpha1.WorkflowRun) { run.Spec.Shutdown = v1alpha1.ShutdownTerminate }, NodeTimeout(patience)),
		Entry("it is deleted, and somebody holds that up", func(*v1alpha1.WorkflowRun) {}, NodeTimeout(patience)),
	)

	// mutation: lost that believes at once ends the run as WorkflowNotFound.
	It("goes on, though the API server says once that its revision is not there", func(ctx SpecContext) {
		w := newWorld(ctx)
		wf, run := w.abandoned(ctx)
		w.change(ctx, wf, v1alpha1.WorkflowTemplate{Steps: []v1alpha1.Step{step("other")}})
		b := w.newReplica(ctx, "b")
		asked := 0
		live := interceptor.NewClient(w.client, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, is := o.(*appsv1.ControllerRevision); is {
				if asked++; asked == 1 {
					return apierrors.NewNotFound(appsv1.Resource("controllerrevisions"), key.Name)
				}
			}
			return c.Get(ctx, key, o, opts...)
		}})
		b.Templates = templates.New(live, &revisions.Store{Live: live, Client: b.Client, Owner: FieldOwner}, b.Clock, templates.MaxBytes)
		Expect(endOf(b.finish(ctx, run))).To(Equal("Succeeded/Succeeded"))
		Expect(asked).To(BeNumerically(">", 1))
	}, NodeTimeout(patience))

	// mutation: findJobs that gives a refusal back as an error.
	It("is taken back when it is deleted, though its revision is gone and is refused", func(ctx SpecContext) {
		w := newWorld(ctx)
		wf, run := w.withoutItsRevision(ctx)
		w.inTheWay(ctx, wf)
		b := w.newReplica(ctx, "b")
		b.deleteRun(ctx, run)
		b.mustPass(ctx, run)
		Expect(b.Index.TakeDeleted(client.ObjectKeyFromObject(run))).To(BeEmpty())
	}, NodeTimeout(patience))

	// Its tombstone doubted its revision in each pass anew, for as long as the process lived.
	//
	// mutation: findJobs that gives a doubt back as an error.
	It("is taken back when it is deleted, though its revision is gone for good", func(ctx SpecContext) {
		w := newWorld(ctx)
		wf, run := w.withoutItsRevision(ctx)
		w.change(ctx, wf, v1alpha1.WorkflowTemplate{Steps: []v1alpha1.Step{step("other")}})
		b := w.newReplica(ctx, "b")
		b.deleteRun(ctx, run)
		b.mustPass(ctx, run)
		Expect(b.Index.TakeDeleted(client.ObjectKeyFromObject(run))).To(BeEmpty())
	}, NodeTimeout(patience))

	// mutations: cleanDeleted that forgets what is of the name, in each pass; takeBack that gives
	// no slot back where the jobs cannot be found.
	It("gives its slot back, and harms no run of its name, though its revision cannot be read", func(ctx SpecContext) {
		w := newWorld(ctx, withOwnRedis())
		w.limit(ctx, 1)
		w.workflow(ctx, "report", templateOf(diamond()...))
		a := w.newReplica(ctx, "a")
		a.gated(ctx)
		run := w.following(ctx, "report", "")
		a.inFlight(ctx, run, 2)
		a.kill(ctx)
		w.dropLock(ctx, run)
		b := w.newReplica(ctx, "b")
		b.gated(ctx)
		live := interceptor.NewClient(w.client, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, is := o.(*appsv1.ControllerRevision); is {
				return apierrors.NewForbidden(appsv1.Resource("controllerrevisions"), key.Name, errTest)
			}
			return c.Get(ctx, key, o, opts...)
		}})
		b.Templates = templates.New(live, &revisions.Store{Live: live, Client: b.Client, Owner: FieldOwner}, b.Clock, templates.MaxBytes)
		b.deleteRun(ctx, run)
		_, err := b.pass(ctx, run)
		Expect(err).To(MatchError(ContainSubstring(errTest.Error())))
		other := w.create(ctx, []v1alpha1.Step{step("a")})
		Expect(b.finish(ctx, other).Status.Phase).To(Equal(v1alpha1.RunSucceeded), "the slot is free")

		again := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: run.Name}}
		again.Spec.WorkloadClass, again.Spec.WorkflowRef = w.ns, &v1alpha1.WorkflowReference{Name: "nowhere"}
		Expect(w.client.Create(ctx, again)).To(Succeed())
		for range 30 {
			w.clock.Step(5 * time.Second)
			_, _ = b.pass(ctx, again)
		}
		Expect(endOf(w.get(ctx, again))).To(Equal("Failed/WorkflowNotFound"))
		Expect(b.Index.TakeDeleted(client.ObjectKeyFromObject(run))).To(HaveLen(1), "its jobs are looked for still")
	}, NodeTimeout(patience))

	It("leaves no job behind when it is deleted", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.workflow(ctx, "report", templateOf(diamond()...))
		r := w.newReplica(ctx, "r")
		run := w.following(ctx, "report", "")
		r.inFlight(ctx, run, 2)
		Expect(w.jobsQueued(ctx)).To(Equal(2))
		now := w.get(ctx, run)
		Expect(w.client.Delete(ctx, now)).To(Succeed())
		r.Index.Remove(now, true)
		until(ctx, "its jobs are withdrawn", func() bool {
			r.turn(ctx, run)
			return w.jobsQueued(ctx) == 0
		})
	}, NodeTimeout(patience))

	// mutation: findJobs that takes any refusal for the end of its revision.
	It("leaves none behind either where its revision may not be read for a moment", func(ctx SpecContext) {
		w := newWorld(ctx)
		_, run := w.abandoned(ctx)
		b := w.newReplica(ctx, "b")
		refused := false
		live := interceptor.NewClient(w.client, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, is := o.(*appsv1.ControllerRevision); is && !refused {
				refused = true
				return apierrors.NewForbidden(appsv1.Resource("controllerrevisions"), key.Name, errTest)
			}
			return c.Get(ctx, key, o, opts...)
		}})
		b.Templates = templates.New(live, &revisions.Store{Live: live, Client: b.Client, Owner: FieldOwner}, b.Clock, templates.MaxBytes)
		b.deleteRun(ctx, run)
		until(ctx, "its jobs are withdrawn", func() bool {
			w.clock.Step(time.Second)
			_, _ = b.pass(ctx, run)
			return w.jobsQueued(ctx) == 0
		})
		Expect(refused).To(BeTrue())
	}, NodeTimeout(patience))

	It("may be a child, and ends where templates name each other", func(ctx SpecContext) {
		w := newWorld(ctx)
		child := w.childStep("sub", `{"workloadClass":"CLASS","workflowRef":{"name":"pong"}}`)
		w.workflow(ctx, "ping", templateOf(child))
		back := w.childStep("sub", `{"workloadClass":"CLASS","workflowRef":{"name":"ping"}}`)
		w.workflow(ctx, "pong", templateOf(back))
		leaf := templateOf(reads("a"))
		leaf.Parameters = []v1alpha1.Parameter{{Name: "region", Required: true}}
		w.workflow(ctx, "leaf", leaf)
		r := w.newReplica(ctx, "r")

		good := w.childStep("sub", `{"workloadClass":"CLASS","workflowRef":{"name":"leaf"}}`)
		good.Run.Inputs = &runtime.RawExtension{Raw: []byte(`{"region":"eu"}`)}
		bad := w.childStep("sub", `{"workloadClass":"CLASS","workflowRef":{"name":"leaf"}}`)
		both := w.childStep("sub", `{"workflowRef":{"name":"leaf"},"steps":[{"name":"x"}]}`)
		Expect(endOf(r.finishAll(ctx, w.create(ctx, []v1alpha1.Step{good})))).To(Equal("Succeeded/Succeeded"))
		Expect(endOf(r.finishAll(ctx, w.create(ctx, []v1alpha1.Step{bad})))).To(Equal("Failed/StepFailed"))
		end := r.finishAll(ctx, w.create(ctx, []v1alpha1.Step{both}))
		Expect(endOf(end)).To(Equal("Failed/InvalidSpec"))
		Expect(messageOf(end, v1alpha1.ConditionSucceeded)).To(ContainSubstring("spec.steps[0].run.spec: steps, finally"))

		before := len(w.all(ctx))
		Expect(endOf(r.finishAll(ctx, w.following(ctx, "ping", "")))).To(Equal("Failed/StepFailed"))
		Expect(w.all(ctx)).To(HaveLen(before + 5))
	}, NodeTimeout(2*patience))

	It("has the locks of its template", func(ctx SpecContext) {
		w := newWorld(ctx)
		spec := templateOf(step("a"))
		spec.Template.Locks = []v1alpha1.LockRequest{{Mutex: "deploy"}}
		w.workflow(ctx, "report", spec)
		r := w.newReplica(ctx, "r")
		r.locked(ctx)
		run := w.following(ctx, "report", "")
		now := r.inFlight(ctx, run, 1)
		Expect(now.Status.Locks).To(HaveLen(1))
		Expect(now.Status.Locks[0].Name).To(Equal("mutex:" + w.ns + "/deploy"))
		Expect(locks.TicketsOf(now)).To(Equal([]string{string(now.UID), string(now.UID) + "/a"}))
		Expect(endOf(r.finish(ctx, run))).To(Equal("Succeeded/Succeeded"))
	}, NodeTimeout(patience))
})
