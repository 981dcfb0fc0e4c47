// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// Mutations that make specs below fail:
//   - observe.go observeTenant that passes no labels or annotations on: wrong tenants.
//   - act.go record called in refused passes, too: events twice.
//   - finished.go finished without withdraw: workers of a cancelled run are never told.
//   - setup.go informer that wakes on every update: the queue is not empty after a status write.
var _ = Describe("a run", func() {
	It("without a label belongs to the tenant that is named like its namespace", func(ctx SpecContext) {
		w := newWorld(ctx)
		run := w.create(ctx, diamond())
		Expect(w.newReplica(ctx, "r").finish(ctx, run).Status.Tenant).To(Equal(w.ns))
	}, NodeTimeout(2*patience))

	labelled := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{v1alpha1.LabelTenant: "acme"},
		Annotations: map[string]string{v1alpha1.AnnotationAllowedTenants: "globex, initech"},
	}}
	for name, c := range map[string]struct {
		asked, want, reason string
	}{
		"belongs to the tenant of its namespace's label":                   {"", "acme", v1alpha1.ReasonSucceeded},
		"belongs to the tenant that it names, if the namespace may do so":  {"initech", "initech", v1alpha1.ReasonSucceeded},
		"ends as TenantNotAllowed, with nothing dispatched, if it may not": {"hooli", "hooli", v1alpha1.ReasonTenantNotAllowed},
	} {
		It(name, func(ctx SpecContext) {
			w := newWorld(ctx, withNamespace(labelled))
			run := w.create(ctx, diamond(), func(s *v1alpha1.WorkflowRunSpec) { s.Tenant = c.asked })
			end := w.newReplica(ctx, "r").finish(ctx, run)
			Expect(end.Status.Tenant).To(Equal(c.want))
			Expect(reason(end, v1alpha1.ConditionSucceeded)).To(Equal(c.reason))
			if c.reason != v1alpha1.ReasonSucceeded {
				Expect(w.jobsStored(ctx)).To(BeZero())
			}
		}, NodeTimeout(2*patience))
	}

	It("stays suspended until it is resumed; running jobs finish", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond(), func(s *v1alpha1.WorkflowRunSpec) { s.Suspend = true })
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSuspended))
		Expect(w.jobsStored(ctx)).To(BeZero())
		w.patch(ctx, run, `{"spec":{"suspend":false}}`)
		r.inFlight(ctx, run, 2)
		w.patch(ctx, run, `{"spec":{"suspend":true}}`)
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			w.work(ctx)
			return now.Status.Progress == "2/3"
		})
		r.turn(ctx, run)
		Expect(w.jobsStored(ctx)).To(Equal(2))
		w.patch(ctx, run, `{"spec":{"suspend":false}}`)
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))

	It("retries a failed attempt under a new number, after its backoff, and fails when there were too many", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		s := step("s")
		s.Retry = v1alpha1.Retry{MaxFailures: 2, Backoff: v1alpha1.Backoff{InitialMillis: new(int64(2000)), JitterPercent: new(int32(0))}}
		run := w.create(ctx, []v1alpha1.Step{s})
		r.inFlight(ctx, run, 1)
		for attempt := 1; attempt <= 2; attempt++ {
			w.takeAll(ctx, 1)[0].say(ctx, `{"status":"Failed","error":{"code":"Broken","message":"no luck"}}`)
			r.pumpAll(ctx, 1)
			w.clock.Step(time.Second)
			wait := r.mustPass(ctx, run).RequeueAfter
			if attempt == 1 {
				Expect(wait).To(BeNumerically("~", 2*time.Second, 100*time.Millisecond))
				w.clock.Step(wait)
				r.mustPass(ctx, run)
			}
		}
		end := w.get(ctx, run)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunFailed))
		Expect(end.Status.Steps[0].Attempt).To(BeEquivalentTo(2))
		Expect(meta.FindStatusCondition(end.Status.Conditions, v1alpha1.ConditionSucceeded).Message).To(ContainSubstring("step s failed: Broken: no luck"))
		Expect(w.jobsStored(ctx)).To(Equal(2))
	}, NodeTimeout(2*patience))

	It("keeps the bytes of an unusable result as a dead letter, says so, and goes on", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		r.inFlight(ctx, run, 2)
		w.takeAll(ctx, 2)[0].say(ctx, `this is no JSON`)
		r.pumpAll(ctx, 1)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(reason(w.get(ctx, run), v1alpha1.ConditionDeadLettered)).To(Equal(v1alpha1.ReasonResultRejected))
		Expect(w.messages(ctx, w.names.DeadLettersStream())).To(Equal(1))
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		r.drive(ctx, run, finished)
	}, NodeTimeout(2*patience))

	It("that is cancelled while NATS does not answer tells its workers later", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		r.inFlight(ctx, run, 2)
		w.takeAll(ctx, 2)
		r.hook = func(_ context.Context, at string) error {
			if strings.HasPrefix(at, "withdraw") || strings.HasPrefix(at, "cancel") {
				return errTest
			}
			return nil
		}
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunCancelled), "the end does not wait for NATS")
		Expect(r.mustPass(ctx, run).RequeueAfter).To(Equal(actRetryDelay))
		Expect(w.messages(ctx, w.names.ControlStream())).To(BeZero())
		r.hook = nil
		r.mustPass(ctx, run)
		Expect(w.messages(ctx, w.names.ControlStream())).To(Equal(1))
		Expect(w.jobsQueued(ctx)).To(BeZero())
		r.mustPass(ctx, run)
		Expect(w.messages(ctx, w.names.ControlStream())).To(Equal(1), "told once")
	}, NodeTimeout(2*patience))

	It("tells each transition once, whatever fails in between, and is counted by phase", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		r.registry.MustRegister(results.NewPhaseCounts(r.Index, r.Driven.Drives))
		run := w.create(ctx, []v1alpha1.Step{step("a"), step("b", "a")})
		r.hook = times(2, "publish/after", func(context.Context) error { return errTest })
		r.finish(ctx, run)
		r.mustPass(ctx, run)
		Expect(r.recorder.reasons()).To(Equal([]string{
			"Admitted", "StepDispatched", "StepSucceeded", "StepDispatched", "StepSucceeded", "Succeeded",
		}))
		Expect(r.counter("syncopate_runs", "phase", "Succeeded")).To(BeEquivalentTo(1))
		Expect(r.counter("syncopate_job_recoveries_total", "outcome", "Queued")).To(BeEquivalentTo(2))
		Expect(r.counter("syncopate_results_total", "outcome", "applied")).To(BeEquivalentTo(2))
		Expect(r.counter("syncopate_status_writes_total", "outcome", "accepted")).To(BeEquivalentTo(3))
		Expect(r.counter("syncopate_status_writes_total", "outcome", "refused")).To(BeZero())
	}, NodeTimeout(2*patience))

	// Mutations that make this fail: tell that writes all, or looks only at the flag, or only at
	// the annotation; writes that are counted in each act, or before the event of the end.
	DescribeTable("tells by events what people asked for, and counts what it wrote", func(ctx SpecContext, flag bool, annotation string, want []string) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		r.StepEvents = flag
		run := w.create(ctx, twoSteps())
		if annotation != "" {
			run.Annotations = map[string]string{v1alpha1.AnnotationStepEvents: annotation}
			Expect(w.client.Update(ctx, run)).To(Succeed())
		}
		r.finish(ctx, run)
		r.mustPass(ctx, run)
		Expect(r.recorder.reasons()).To(Equal(want))
		Expect(r.counter("syncopate_run_writes", "kind", "status")).To(BeEquivalentTo(3), "admission with the first step, the second, the end")
		Expect(r.counter("syncopate_run_writes", "kind", "event")).To(BeEquivalentTo(len(want)))
		Expect(r.counter("syncopate_run_writes", "kind", "child")).To(BeZero())
	},
		Entry("as shipped: its begin and its end", NodeTimeout(2*patience), false, "", []string{"Admitted", "Succeeded"}),
		Entry("steps, for this run", NodeTimeout(2*patience), false, "true", []string{"Admitted", "StepDispatched", "StepSucceeded", "StepDispatched", "StepSucceeded", "Succeeded"}),
		Entry("steps, for all but this run", NodeTimeout(2*patience), true, "false", []string{"Admitted", "Succeeded"}),
		Entry("as the flag says, where the annotation makes no sense", NodeTimeout(2*patience), true, "perhaps", []string{"Admitted", "StepDispatched", "StepSucceeded", "StepDispatched", "StepSucceeded", "Succeeded"}),
	)

	// Mutation that makes this fail: lifecycle.Decide without endDeleted.
	It("that is being deleted, and that somebody keeps, is woken and runs nothing more", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond(), func(s *v1alpha1.WorkflowRunSpec) { s.Finally = []v1alpha1.Step{step("tidy")} })
		w.patch(ctx, run, `{"metadata":{"finalizers":["example.org/keep"]}}`)
		was := r.inFlight(ctx, run, 2)
		Expect(w.client.Delete(ctx, run)).To(Succeed())
		q := newQueue()
		r.informer().Update(ctx, event.UpdateEvent{ObjectOld: was, ObjectNew: w.get(ctx, run)}, q)
		Expect(q.Len()).To(Equal(1))
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		end := w.get(ctx, run)
		Expect(endOf(end)).To(Equal("Cancelled/Terminated"))
		Expect(messageOf(end, v1alpha1.ConditionSucceeded)).To(ContainSubstring("the run is being deleted"))
		Expect(stepOf(end, "tidy").Phase).To(Equal(v1alpha1.StepCancelled))
		Expect(w.jobsStored(ctx)).To(Equal(2))
		Expect(w.jobsQueued(ctx)).To(BeZero())
		w.patch(ctx, run, `{"metadata":{"finalizers":null}}`)
	}, NodeTimeout(2*patience))

	It("is woken by a change of its spec, and not by its own status", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, diamond())
		r.mustPass(ctx, run)
		written := w.get(ctx, run)
		q := newQueue()
		r.informer().Update(ctx, event.UpdateEvent{ObjectOld: run, ObjectNew: written}, q)
		Expect(q.Len()).To(BeZero())
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		r.informer().Update(ctx, event.UpdateEvent{ObjectOld: written, ObjectNew: w.get(ctx, run)}, q)
		Expect(q.Len()).To(Equal(1))
		r.drive(ctx, run, finished)
	}, NodeTimeout(2*patience))
})

var _ = Describe("bad input", func() {
	raw := func(s string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(s)} }
	with := func(change func(*v1alpha1.Step)) []v1alpha1.Step {
		s := step("b")
		change(&s)
		return []v1alpha1.Step{step("a"), s}
	}
	big := fmt.Sprintf(`{"x":%q}`, strings.Repeat("y", 70_000))

	for name, c := range map[string]struct {
		spec v1alpha1.WorkflowRunSpec
		want string
	}{
		"no step":              {v1alpha1.WorkflowRunSpec{}, "exactly one source of steps is needed"},
		"a duplicate name":     {v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{step("a"), step("a")}}, "spec.steps: Invalid value"},
		"an invalid topic":     {v1alpha1.WorkflowRunSpec{Steps: with(func(s *v1alpha1.Step) { s.Job.Topic = "No Topic" })}, "spec.steps[1].job.topic"},
		"too many steps":       {v1alpha1.WorkflowRunSpec{Steps: make201()}, "spec.steps: Too many"},
		"an invalid step name": {v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{step("A_b")}}, "spec.steps[0].name"},
	} {
		It(name+" is refused at apply, with field and reason", func(ctx SpecContext) {
			run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{GenerateName: "bad-", Namespace: "default"}, Spec: c.spec}
			Expect(suite.client.Create(ctx, run)).To(MatchError(ContainSubstring(c.want)))
		}, NodeTimeout(patience))
	}

	It("that the schema cannot see ends the run as InvalidSpec with field and reason, and nothing is dispatched", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		for want, spec := range map[string]v1alpha1.WorkflowRunSpec{
			`spec.steps[1].dependsOn[0]: there is no step "ghost"`:          {Steps: with(func(s *v1alpha1.Step) { s.DependsOn = []string{"ghost"} })},
			`spec.steps[1].dependsOn[0]: step "b" depends on itself`:        {Steps: with(func(s *v1alpha1.Step) { s.DependsOn = []string{"b"} })},
			`spec.steps: cycle, each step depends on the next: a -> b -> a`: {Steps: []v1alpha1.Step{step("a", "b"), step("b", "a")}},
			`spec.steps[1].when: `:                                  {Steps: with(func(s *v1alpha1.Step) { s.When = "inputs.x ==" })},
			`spec.steps[1].job.input: `:                             {Steps: with(func(s *v1alpha1.Step) { s.Job.Input = raw(`{"a":"${1 +}"}`) })},
			`spec.inputs: 70008 bytes, more than 65536`:             {Steps: diamond(), Inputs: raw(big)},
			`spec.steps[1].job.input: 70008 bytes, more than 65536`: {Steps: with(func(s *v1alpha1.Step) { s.Job.Input = raw(big) })},
		} {
			run := w.create(ctx, spec.Steps, func(s *v1alpha1.WorkflowRunSpec) { s.Inputs = spec.Inputs })
			r.mustPass(ctx, run)
			end := w.get(ctx, run)
			Expect(lifecycle.Finished(end)).To(BeTrue())
			Expect(end.Status.Phase).To(Equal(v1alpha1.RunFailed))
			c := meta.FindStatusCondition(end.Status.Conditions, v1alpha1.ConditionSucceeded)
			Expect(c.Reason).To(Equal(v1alpha1.ReasonInvalidSpec))
			Expect(c.Message).To(ContainSubstring(want))
		}
		Expect(w.jobsStored(ctx)).To(BeZero())
	}, NodeTimeout(2*patience))
})

func make201() []v1alpha1.Step {
	steps := make([]v1alpha1.Step, 201)
	for i := range steps {
		steps[i] = step(fmt.Sprintf("s%d", i))
	}
	return steps
}
