// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// failsAtB is a chain of which a succeeds and b fails, as a run that has ended.
func (w *world) failsAtB(ctx context.Context, r *replica, run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	GinkgoHelper()
	return r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
		for _, t := range w.take(ctx) {
			if t.id.Step == "b" {
				t.say(ctx, `{"status":"Failed","final":true,"error":{"code":"X","message":"once"}}`)
				Expect(t.msg.DoubleAck(ctx)).To(Succeed())
				continue
			}
			t.succeed(ctx)
		}
		return lifecycle.Finished(now)
	})
}

// startingFrom creates a run that does again what another one did not do.
func (w *world) startingFrom(ctx context.Context, was *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	GinkgoHelper()
	return w.create(ctx, was.Spec.Steps, func(s *v1alpha1.WorkflowRunSpec) {
		s.WorkflowRef, s.Inputs = was.Spec.WorkflowRef, was.Spec.Inputs
		s.StartFrom = &v1alpha1.StartFrom{Run: was.Name, UID: string(was.UID)}
	})
}

// abc is a, b, c, where c reads what a gave.
func abc() []v1alpha1.Step {
	c := step("c", "b")
	c.Job.Input = &runtime.RawExtension{Raw: []byte(`{"of":"${steps.a.output.job}"}`)}
	return []v1alpha1.Step{step("a"), step("b", "a"), c}
}

// Mutations that make specs below fail:
//   - observe.go observeOthers without observeOrigin: a is dispatched again.
//   - observe.go observeOrigin that reads from the cache, which has the run without
//     its end: refused.
var _ = Describe("a run that starts from one that failed", func() {
	for _, at := range []string{"", "status/before", "status/after", "publish/before", "publish/after"} {
		It(fmt.Sprintf("does only what that one has not done, whatever crashes (%s)", at), matrix, func(ctx SpecContext) {
			w := newWorld(ctx)
			r := w.newReplica(ctx, "first")
			was := w.failsAtB(ctx, r, w.create(ctx, abc()))
			Expect(endOf(was)).To(Equal("Failed/StepFailed"))
			r.drained(ctx, was)
			before := w.jobsStored(ctx)

			run := w.startingFrom(ctx, was)
			if at != "" {
				r.killAt(at, 1)
				r.drive(ctx, run, func(*v1alpha1.WorkflowRun) bool { return false })
				w.dropLock(ctx, run)
				r = w.newReplica(ctx, "second")
			}
			r.inFlight(ctx, run, 1)
			Expect(w.client.Delete(ctx, was)).To(Succeed())
			end := r.finish(ctx, run)
			Expect(endOf(end)).To(Equal("Succeeded/Succeeded"))
			Expect(end.Status.Steps[0].DoneBy).To(Equal(was.Name))
			Expect(end.Status.Steps[0].Attempt).To(BeZero())
			Expect(end.Status.Steps[0].Output.Raw).To(MatchJSON(was.Status.Steps[0].Output.Raw))
			Expect(w.jobsStored(ctx)-before).To(Equal(2), "b and c")
		}, NodeTimeout(2*patience))
	}

	It("has the revision of that one, or is refused", func(ctx SpecContext) {
		w := newWorld(ctx)
		wf := w.workflow(ctx, "release", templateOf(abc()...))
		r := w.newReplica(ctx, "r")
		was := w.failsAtB(ctx, r, w.following(ctx, "release", ""))
		next := templateOf(abc()...).Template
		next.Steps[2].Name = "other"
		w.change(ctx, wf, next)
		refused := r.drive(ctx, w.startingFrom(ctx, was), lifecycle.Finished)
		Expect(endOf(refused)).To(Equal("Failed/InvalidSpec"))
		Expect(messageOf(refused, v1alpha1.ConditionSucceeded)).To(ContainSubstring("another revision"))

		was.Spec.WorkflowRef.Revision = was.Status.Workflow.Revision
		end := r.finish(ctx, w.startingFrom(ctx, was))
		Expect(endOf(end)).To(Equal("Succeeded/Succeeded"))
		Expect(end.Status.Steps[0].DoneBy).To(Equal(was.Name))
	}, NodeTimeout(2*patience))

	It("is refused if that one goes on, or never was", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		under := w.create(ctx, abc())
		r.inFlight(ctx, under, 1)
		for _, of := range []*v1alpha1.StartFrom{{Run: under.Name, UID: string(under.UID)}, {Run: under.Name, UID: "u0"}, {Run: "gone", UID: "u1"}} {
			run := w.create(ctx, abc(), func(s *v1alpha1.WorkflowRunSpec) { s.StartFrom = of })
			Expect(endOf(r.drive(ctx, run, lifecycle.Finished))).To(Equal("Failed/InvalidSpec"))
		}
	}, NodeTimeout(patience))

	// mutation: observeOrigin that does not look below the run that has ended makes this fail.
	It("is refused while a child of that one is at its clean-up, and not after that", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		sub := w.childStep("sub", `{"workloadClass":"CLASS","steps":[{"name":"ask","approval":{}}],"finally":[{"name":"tidy","job":{"topic":"work"}}]}`)
		was := w.create(ctx, []v1alpha1.Step{step("a"), sub})
		child := r.childOf(ctx, was, "sub")
		r.driveAll(ctx, "the child waits", func() bool { return inPhase("ask", v1alpha1.StepWaiting)(w.get(ctx, child)) })
		w.patch(ctx, was, `{"spec":{"shutdown":"Cancel"}}`)
		r.driveAll(ctx, "the child cleans up", func() bool { return inPhase("tidy", v1alpha1.StepDispatched)(w.get(ctx, child)) })
		Expect(lifecycle.Finished(w.get(ctx, was))).To(BeTrue())

		early := w.startingFrom(ctx, was)
		refused := r.drive(ctx, early, lifecycle.Finished)
		Expect(endOf(refused)).To(Equal("Failed/InvalidSpec"))
		Expect(messageOf(refused, v1alpha1.ConditionSucceeded)).To(ContainSubstring("a child run of it is at its clean-up"))

		r.driveAll(ctx, "the child ends", func() bool { return lifecycle.Finished(w.get(ctx, child)) })
		run := w.startingFrom(ctx, was)
		r.childOf(ctx, run, "sub")
	}, NodeTimeout(2*patience))

	// mutation: readOrigin that believes the first answer ends the run as InvalidSpec.
	It("is not refused for one answer that this one does not exist, which the cache knows", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		was := w.failsAtB(ctx, r, w.create(ctx, abc()))
		run := w.startingFrom(ctx, was)
		r.hook = once("live/before", notFound)
		w.clock.Step(time.Second)
		_, err := r.pass(ctx, run)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%v", err)
		Expect(endOf(r.finish(ctx, run))).To(Equal("Succeeded/Succeeded"))
	}, NodeTimeout(2*patience))
})

// likeClientGo refuses names as client-go does: before it asks anybody, so it is not that they are
// not found.
type likeClientGo struct{ client.Reader }

func (likeClientGo) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	if problems := content.IsPathSegmentName(key.Name); len(problems) > 0 {
		return fmt.Errorf("invalid resource name %q: %v", key.Name, problems)
	}
	return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), key.Name)
}

// knowsNone is a cache without objects.
type knowsNone struct{ client.Client }

func (knowsNone) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(runsResource, key.Name)
}

// The schema refuses such a name, but knows objects from before it did.
// mutation: observeOrigin that asks for any name makes this fail.
func TestARunThatStartsFromANameThatIsNoneIsRefused(t *testing.T) {
	for _, name := range []string{"a/b", "..", "%", "gone"} {
		p := &pass{r: &Reconciler{Live: likeClientGo{}, Client: knowsNone{}}, run: aRun("1"), mem: &memory{}}
		p.run.Status = nil
		p.run.Spec.Steps = abc()
		p.run.Spec.StartFrom = &v1alpha1.StartFrom{Run: name, UID: "u0"}
		p.spec = p.run.Spec
		if err := observeOrigin(t.Context(), p); err != nil || !strings.Contains(p.origin.Problem, "does not exist") {
			t.Errorf("%q: %q, %v", name, p.origin.Problem, err)
		}
	}
}
