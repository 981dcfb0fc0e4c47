// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/payloads"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// childStep is a step that is a child run. CLASS in its spec is the class of the world.
func (w *world) childStep(name, spec string, deps ...string) v1alpha1.Step {
	return v1alpha1.Step{Name: name, DependsOn: deps, Run: &v1alpha1.ChildRun{
		Spec: runtime.RawExtension{Raw: []byte(strings.ReplaceAll(spec, "CLASS", w.ns))},
	}}
}

// draws is a child with a job whose input is made of the child's inputs, and an output.
const draws = `{"workloadClass":"CLASS","steps":[{"name":"draw","job":{"topic":"work","input":{"n":"${inputs.n}"}}}],
	"outputs":{"job":"${steps.draw.output.job}","n":"${inputs.n}"}}`

// parentOf is a run with a step, then a child that is given the step's output, then a step that
// reads what the child returned.
func (w *world) parentOf(spec string) []v1alpha1.Step {
	sub := w.childStep("sub", spec, "first")
	sub.Run.Inputs = &runtime.RawExtension{Raw: []byte(`{"n":"${steps.first.output.job}"}`)}
	last := step("last", "sub")
	last.Job.Input = &runtime.RawExtension{Raw: []byte(`{"got":"${steps.sub.output.job}"}`)}
	return []v1alpha1.Step{step("first"), sub, last}
}

// all are the runs of the world.
func (w *world) all(ctx context.Context) []v1alpha1.WorkflowRun {
	GinkgoHelper()
	var list v1alpha1.WorkflowRunList
	Expect(w.client.List(ctx, &list, client.InNamespace(w.ns))).To(Succeed())
	return list.Items
}

// childOf waits until the child of a step exists.
func (r *replica) childOf(ctx context.Context, run *v1alpha1.WorkflowRun, step string) *v1alpha1.WorkflowRun {
	GinkgoHelper()
	child := &v1alpha1.WorkflowRun{}
	r.driveAll(ctx, "the child is confirmed", func() bool {
		ref := stepOf(r.w.get(ctx, run), step).ChildRun
		return ref != nil && ref.UID != "" && r.w.client.Get(ctx, client.ObjectKey{Namespace: r.w.ns, Name: ref.Name}, child) == nil
	})
	return child
}

// driveAll makes turns of all runs, with the worker at work, until something is so, or the
// replica is dead.
func (r *replica) driveAll(ctx context.Context, what string, done func() bool) {
	GinkgoHelper()
	until(ctx, what, func() bool {
		runs := r.w.all(ctx)
		for i := range runs {
			r.turn(ctx, &runs[i])
			if r.dead.Load() || done() {
				return true
			}
		}
		r.w.work(ctx)
		return false
	})
}

// finishAll drives all runs to their ends, and returns one of them.
func (r *replica) finishAll(ctx context.Context, run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	GinkgoHelper()
	r.driveAll(ctx, "all runs end", func() bool {
		for _, one := range r.w.all(ctx) {
			if !lifecycle.Finished(&one) {
				return false
			}
		}
		return true
	})
	if r.dead.Load() {
		return nil
	}
	return r.w.get(ctx, run)
}

func endOf(run *v1alpha1.WorkflowRun) string {
	return string(run.Status.Phase) + "/" + reasonOf(run, v1alpha1.ConditionSucceeded)
}

func messageOf(run *v1alpha1.WorkflowRun, kind string) string {
	if c := meta.FindStatusCondition(run.Status.Conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

// Mutations that make specs below fail:
//   - state.go NotYetCreated returns nil: a child is never created after a crash.
//   - create.go checkAdoption without the comparison of owners, or of specs: a foreign run is taken
//     for the child.
//   - create.go unrendered that takes no error for the child's end: the run hangs whose child can
//     never be created.
//   - create.go create without IsAlreadyExists: the run hangs after a crash between creation and
//     confirmation.
//   - children: observe.go Observe without ChildGone: the run hangs when its child is deleted.
//   - parent.go followParent that does nothing: a child outlives its parent.
//   - admission.go admitChild without Named: a forged owner reference gets a free pass.
//   - parent.go asParentWants returns in.Run: a child goes on while its parent is suspended.
//   - metrics.go ended that counts children under way: there are none then.
var _ = Describe("a child run", func() {
	It("runs in the slot of its root, at any depth, with its signature, and passes its outputs up", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.limit(ctx, 1)
		r := w.newReplica(ctx, "r")
		r.gated(ctx)
		middle := `{"workloadClass":"CLASS","steps":[{"name":"deep","run":{"inputs":{"n":"${inputs.n}"},"spec":` + draws + `}}],"outputs":{"job":"${steps.deep.output.job}","n":"${steps.deep.output.n}"}}`
		run := w.create(ctx, w.parentOf(middle))
		w.patch(ctx, run, `{"metadata":{"annotations":{"syncopate.dev/created-by":"ann","other":"x"}}}`)
		end := r.finishAll(ctx, run)
		Expect(endOf(end)).To(Equal("Succeeded/Succeeded"))
		runs := w.all(ctx)
		Expect(runs).To(HaveLen(3))
		var leaf string
		for i := range runs {
			one := &runs[i]
			if one.UID == run.UID {
				continue
			}
			Expect(endOf(one)).To(Equal("Succeeded/Succeeded"))
			Expect(one.Status.Parent.Root).To(Equal(run.Name))
			Expect(one.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationCreatedBy, "ann"))
			Expect(one.Annotations).To(HaveLen(2), "its signature, and its parent")
			Expect(one.Status.Tenant).To(Equal(end.Status.Tenant))
			Expect(messageOf(one, v1alpha1.ConditionAdmitted)).To(ContainSubstring("under the slot of run " + run.Name))
			if s := stepOf(one, "draw"); s.Name != "" {
				leaf = s.JobID
			}
		}
		Expect(string(stepOf(end, "sub").Output.Raw)).To(MatchJSON(fmt.Sprintf(`{"job":%q,"n":%q}`, leaf, stepOf(end, "first").JobID)))
		Expect(stepOf(end, "sub").JobID).To(BeEmpty())
		snapshot, err := store.New(r.redis, store.Options{}).Snapshot(ctx, store.Key{Policy: w.ns, Tenant: w.ns})
		Expect(err).NotTo(HaveOccurred())
		Expect(snapshot.Slots).To(BeEmpty())
		Expect(snapshot.Queue).To(BeEmpty())
	}, NodeTimeout(2*patience))

	It("does not free the slot of its root when it ends, nor take one", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.limit(ctx, 1)
		r := w.newReplica(ctx, "r")
		r.gated(ctx)
		run := w.create(ctx, []v1alpha1.Step{w.childStep("sub", `{"workloadClass":"CLASS","steps":[{"name":"a","job":{"topic":"work"}}]}`), approvalStep("ok", "sub")})
		r.driveAll(ctx, "the child has ended", func() bool { return inPhase("ok", v1alpha1.StepWaiting)(w.get(ctx, run)) })
		next := w.create(ctx, []v1alpha1.Step{step("a")})
		r.drive(ctx, next, withReason(v1alpha1.ReasonTenantAtCapacity))
		snapshot, err := store.New(r.redis, store.Options{}).Snapshot(ctx, store.Key{Policy: w.ns, Tenant: w.ns})
		Expect(err).NotTo(HaveOccurred())
		Expect(snapshot.Slots).To(HaveLen(1))
		Expect(snapshot.Slots[0].UID).To(Equal(string(run.UID)))
		w.decide(ctx, run, "ok", v1alpha1.Approve)
		r.finishAll(ctx, run)
	}, NodeTimeout(2*patience))

	for _, place := range []string{"status/before", "status/after", "create/before", "create/after"} {
		for nth := 1; nth <= 9; nth++ {
			if strings.HasPrefix(place, "create") && nth > 1 {
				break
			}
			It(fmt.Sprintf("is recovered from a crash at %s, for the %d. time", place, nth), matrix, func(ctx SpecContext) {
				w := newWorld(ctx, withWindow(tinyWindow))
				run := w.create(ctx, w.parentOf(draws))
				first := w.newReplica(ctx, "first")
				first.killAt(place, nth)
				first.finishAll(ctx, run)
				for _, one := range w.all(ctx) {
					w.dropLock(ctx, &one)
				}
				second := w.newReplica(ctx, "second")
				end := second.finishAll(ctx, run)
				Expect(endOf(end)).To(Equal("Succeeded/Succeeded"), messageOf(end, v1alpha1.ConditionSucceeded))
				Expect(w.all(ctx)).To(HaveLen(2), "one child")
				Expect(w.jobsStored(ctx)).To(Equal(3))
			}, NodeTimeout(2*patience))
		}
	}

	waits := `{"workloadClass":"CLASS","steps":[{"name":"ask","approval":{}}],"finally":[{"name":"tidy","job":{"topic":"work"}}]}`
	nested := `{"workloadClass":"CLASS","steps":[{"name":"in","run":{"spec":` + waits + `}}]}`
	for verb, c := range map[string]struct {
		patch  string
		parent string
		child  string
		tidy   v1alpha1.StepPhase
	}{
		"cancelled":  {`{"spec":{"shutdown":"Cancel"}}`, "Cancelled/Cancelled", "Cancelled/Cancelled", v1alpha1.StepSucceeded},
		"terminated": {`{"spec":{"shutdown":"Terminate"}}`, "Cancelled/Terminated", "Cancelled/Terminated", v1alpha1.StepCancelled},
		"deleted":    {"", "", "Cancelled/Terminated", v1alpha1.StepCancelled},
	} {
		It("is "+verb+" with its parent, through two levels", func(ctx SpecContext) {
			w := newWorld(ctx)
			r := w.newReplica(ctx, "r")
			run := w.create(ctx, []v1alpha1.Step{w.childStep("sub", nested)})
			child := r.childOf(ctx, run, "sub")
			leaf := r.childOf(ctx, child, "in")
			r.driveAll(ctx, "the leaf waits", func() bool { return inPhase("ask", v1alpha1.StepWaiting)(w.get(ctx, leaf)) })
			if c.patch == "" {
				r.deleteRun(ctx, run)
				r.mustPass(ctx, run)
			} else {
				w.patch(ctx, run, c.patch)
			}
			r.driveAll(ctx, "all end", func() bool { return lifecycle.Finished(w.get(ctx, leaf)) && lifecycle.Finished(w.get(ctx, child)) })
			Expect(endOf(w.get(ctx, child))).To(Equal(c.child))
			Expect(endOf(w.get(ctx, leaf))).To(Equal(c.child))
			Expect(messageOf(w.get(ctx, leaf), v1alpha1.ConditionSucceeded)).To(ContainSubstring("its parent run " + child.Name))
			Expect(stepOf(w.get(ctx, leaf), "tidy").Phase).To(Equal(c.tidy))
			if c.parent != "" {
				Expect(endOf(r.finishAll(ctx, run))).To(Equal(c.parent))
			}
		}, NodeTimeout(2*patience))
	}

	It("is suspended and resumed with its parent, through two levels", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{w.childStep("sub", `{"workloadClass":"CLASS","steps":[{"name":"in","run":{"spec":{"workloadClass":"CLASS",
			"steps":[{"name":"ask","approval":{}},{"name":"job","dependsOn":["ask"],"job":{"topic":"work"}}]}}}]}`)})
		child := r.childOf(ctx, run, "sub")
		leaf := r.childOf(ctx, child, "in")
		r.driveAll(ctx, "the leaf waits", func() bool { return inPhase("ask", v1alpha1.StepWaiting)(w.get(ctx, leaf)) })
		w.patch(ctx, run, `{"spec":{"suspend":true}}`)
		r.driveAll(ctx, "all are suspended", func() bool { return w.get(ctx, leaf).Status.Phase == v1alpha1.RunSuspended })
		Expect(messageOf(w.get(ctx, leaf), v1alpha1.ConditionSucceeded)).To(ContainSubstring("suspended with its parent run " + child.Name))
		w.decide(ctx, leaf, "ask", v1alpha1.Approve)
		r.driveAll(ctx, "the approval counts", func() bool { return inPhase("ask", v1alpha1.StepSucceeded)(w.get(ctx, leaf)) })
		for range 3 {
			for _, one := range w.all(ctx) {
				r.turn(ctx, &one)
			}
		}
		Expect(stepOf(w.get(ctx, leaf), "job").Phase).To(Equal(v1alpha1.StepPending), "no new job while the root is suspended")
		w.patch(ctx, run, `{"spec":{"suspend":false}}`)
		Expect(endOf(r.finishAll(ctx, run))).To(Equal("Succeeded/Succeeded"))
	}, NodeTimeout(2*patience))

	It("that is deleted makes its step fail", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{w.childStep("sub", waits)})
		r.deleteRun(ctx, r.childOf(ctx, run, "sub"))
		end := r.finishAll(ctx, run)
		Expect(endOf(end)).To(Equal("Failed/StepFailed"))
		Expect(stepOf(end, "sub").Error.Code).To(Equal(facts.CodeChildDeleted))
		Expect(w.all(ctx)).To(HaveLen(1), "it is not made anew")
	}, NodeTimeout(2*patience))

	// Mutation that makes this fail: lifecycle.Decide with endDeleted after applyChildren,
	// or without it.
	It("that is deleted as its parent is, and before it, is no failure: nothing more runs", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{w.childStep("sub", waits)})
		w.patch(ctx, run, `{"metadata":{"finalizers":["example.org/keep"]}}`) // kubectl delete --cascade=foreground has one, too
		child := r.childOf(ctx, run, "sub")
		Expect(w.client.Delete(ctx, run)).To(Succeed())
		r.deleteRun(ctx, child)
		Expect(endOf(r.finishAll(ctx, run))).To(Equal("Cancelled/Terminated"))
		w.patch(ctx, run, `{"metadata":{"finalizers":null}}`)
	}, NodeTimeout(2*patience))

	// Mutations that make these fail: expire that does not ask AnyUnderWay; AnyUnderWay that looks
	// at children only.
	for whose, spec := range map[string]string{"a child": waits, "a child of a child": nested} {
		It("keeps the run at the top until its clean-up is over, as "+whose+", whatever ttlSecondsAfterFinished is", func(ctx SpecContext) {
			w := newWorld(ctx)
			r := w.newReplica(ctx, "r")
			run := w.create(ctx, []v1alpha1.Step{w.childStep("sub", spec)}, func(s *v1alpha1.WorkflowRunSpec) {
				s.TTLSecondsAfterFinished = new(int32(1))
			})
			leaf := r.childOf(ctx, run, "sub")
			if spec == nested {
				leaf = r.childOf(ctx, leaf, "in")
			}
			r.driveAll(ctx, "the leaf waits", func() bool { return inPhase("ask", v1alpha1.StepWaiting)(w.get(ctx, leaf)) })
			w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
			r.driveAll(ctx, "the leaf cleans up", func() bool { return inPhase("tidy", v1alpha1.StepDispatched)(w.get(ctx, leaf)) })
			w.clock.Step(time.Minute)
			Expect(r.mustPass(ctx, run).RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", lookAgain)))
			Expect(w.get(ctx, run).Status.Phase).To(Equal(v1alpha1.RunCancelled))
			r.driveAll(ctx, "the leaf ends", func() bool { return lifecycle.Finished(w.get(ctx, leaf)) })
			Expect(stepOf(w.get(ctx, leaf), "tidy").Phase).To(Equal(v1alpha1.StepSucceeded))
			r.mustPass(ctx, run)
			Expect(w.client.Get(ctx, client.ObjectKeyFromObject(run), &v1alpha1.WorkflowRun{})).To(MatchError(apierrors.IsNotFound, "not found"))
		}, NodeTimeout(2*patience))
	}

	// mutation: expire that does not look at the parent, or that looks at it for good.
	It("that has ended is kept until its parent has taken its end, whatever its ttlSecondsAfterFinished is", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{w.childStep("sub", `{"workloadClass":"CLASS","steps":[{"name":"ask","approval":{}}]}`)})
		child := r.childOf(ctx, run, "sub")
		r.driveAll(ctx, "the child waits", func() bool { return inPhase("ask", v1alpha1.StepWaiting)(w.get(ctx, child)) })
		w.patch(ctx, child, `{"spec":{"ttlSecondsAfterFinished":0}}`)
		w.decide(ctx, child, "ask", v1alpha1.Approve)
		r.drive(ctx, child, lifecycle.Finished)
		Expect(r.mustPass(ctx, child).RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", lookAgain)))
		Expect(w.all(ctx)).To(HaveLen(2))
		Expect(endOf(r.drive(ctx, run, lifecycle.Finished))).To(Equal("Succeeded/Succeeded"))
		r.mustPass(ctx, child)
		Expect(w.all(ctx)).To(HaveLen(1))
	}, NodeTimeout(2*patience))

	It("that fails makes its step fail, and its parent go on where that does not matter", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		sub := w.childStep("sub", `{"workloadClass":"CLASS","activeDeadlineSeconds":1,"steps":[{"name":"ask","approval":{}}]}`)
		sub.OnFailure = v1alpha1.FailureContinue
		run := w.create(ctx, []v1alpha1.Step{sub, step("last", "sub")})
		end := r.finishAll(ctx, run)
		Expect(endOf(end)).To(Equal("Succeeded/Succeeded"))
		Expect(stepOf(end, "sub").Error.Code).To(Equal(facts.CodeChildTimedOut))
		Expect(stepOf(end, "sub").Error.Message).To(ContainSubstring("DeadlineExceeded"))
		Expect(r.counter("syncopate_run_writes", "kind", "child")).To(BeEquivalentTo(1), "of both runs that ended")
	}, NodeTimeout(2*patience))

	It("that the API server refuses makes its step fail, with its words", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		r.refuseCreation = func(o client.Object) error { // as a policy does
			return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("WorkflowRun").GroupKind(), o.GetName(), field.ErrorList{
				field.Forbidden(field.NewPath("spec", "steps").Index(0).Child("timeoutSeconds"), "it is to be given"),
			})
		}
		run := w.create(ctx, []v1alpha1.Step{w.childStep("sub", waits)})
		end := r.finishAll(ctx, run)
		Expect(endOf(end)).To(Equal("Failed/StepFailed"))
		Expect(stepOf(end, "sub").Error.Code).To(Equal(facts.CodeInvalidSpec))
		Expect(stepOf(end, "sub").Error.Message).To(ContainSubstring("timeoutSeconds"))
	}, NodeTimeout(2*patience))

	It("that cannot be created now is created later, and the run says why it waits, once", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		tries := 0
		r.refuseCreation = func(client.Object) error {
			tries++
			return fmt.Errorf("exceeded quota, try %d: %w", tries, errQuota)
		}
		run := w.create(ctx, []v1alpha1.Step{w.childStep("sub", waits)})
		waiting := r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return !now.Unwritten() && strings.Contains(messageOf(now, v1alpha1.ConditionSucceeded), "cannot be created now: exceeded quota, try 1")
		})
		r.drive(ctx, run, func(*v1alpha1.WorkflowRun) bool { return tries > 3 })
		Expect(w.get(ctx, run).ResourceVersion).To(Equal(waiting.ResourceVersion), "it is told once")
		r.refuseCreation = nil
		child := r.childOf(ctx, run, "sub")
		w.decide(ctx, child, "ask", v1alpha1.Approve)
		Expect(endOf(r.finishAll(ctx, run))).To(Equal("Succeeded/Succeeded"))
	}, NodeTimeout(2*patience))

	// mutation: children: create.go refused that looks at no name, or asStored without defaults:
	// parent and child wait for each other.
	It("that exists is taken though a quota that it fills refuses all creations", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		r.refuseCreation = func(o client.Object) error {
			if o.GetName() != "" { // no dry run: it is stored, and nobody hears of that
				stored, _ := o.DeepCopyObject().(client.Object)
				Expect(client.IgnoreAlreadyExists(w.client.Create(ctx, stored))).To(Succeed())
			}
			return errQuota
		}
		run := w.create(ctx, []v1alpha1.Step{w.childStep("sub", waits)})
		child := r.childOf(ctx, run, "sub")
		w.decide(ctx, child, "ask", v1alpha1.Approve)
		Expect(endOf(r.finishAll(ctx, run))).To(Equal("Succeeded/Succeeded"))
	}, NodeTimeout(2*patience))

	It("whose inputs are lost before it is created makes its step fail", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		sub := w.childStep("sub", draws, "first")
		sub.Run.Inputs = &runtime.RawExtension{Raw: []byte(`{"n":"${steps.first.output.n}"}`)}
		run := w.create(ctx, []v1alpha1.Step{step("first"), sub})
		r.inFlight(ctx, run, 1)
		t := w.takeAll(ctx, 1)[0]
		t.say(ctx, w.upload(ctx, t.id, large(100<<10)))
		r.refuseCreation = func(client.Object) error { return errQuota }
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return strings.Contains(messageOf(now, v1alpha1.ConditionSucceeded), "cannot be created now")
		})
		r.refuseCreation = nil
		r.hook = func(_ context.Context, at string) error {
			if at == "read/before" {
				return payloads.ErrUnusable
			}
			return nil
		}
		end := r.drive(ctx, run, lifecycle.Finished)
		Expect(endOf(end)).To(Equal("Failed/StepFailed"))
		Expect(stepOf(end, "sub").Error.Code).To(Equal(facts.CodeInvalidSpec))
		Expect(stepOf(end, "sub").Error.Message).To(ContainSubstring(payloads.ErrUnusable.Error()))
		Expect(w.all(ctx)).To(HaveLen(1))
	}, NodeTimeout(2*patience))

	owned := func(run *v1alpha1.WorkflowRun) []metav1.OwnerReference {
		return []metav1.OwnerReference{*metav1.NewControllerRef(run, v1alpha1.GroupVersion.WithKind("WorkflowRun"))}
	}
	for whose, owners := range map[string]func(*v1alpha1.WorkflowRun) []metav1.OwnerReference{
		"a run that nobody owns":                       func(*v1alpha1.WorkflowRun) []metav1.OwnerReference { return nil },
		"a run that it owns and that has another spec": owned,
	} {
		It("whose name has "+whose+" makes its step fail", func(ctx SpecContext) {
			w := newWorld(ctx)
			r := w.newReplica(ctx, "r")
			run := w.create(ctx, []v1alpha1.Step{approvalStep("ok"), w.childStep("sub", waits, "ok")})
			// Its name is a function of its parent's name and uid: whoever may read runs
			// can know it.
			named := w.get(ctx, run)
			named.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{
				{Name: "ok", Phase: v1alpha1.StepSucceeded}, {Name: "sub", Phase: v1alpha1.StepRunning, ChildRun: &v1alpha1.ChildRunStatus{Name: "x"}},
			}}
			child, err := render.ChildOf(named, "sub", nil, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(w.client.Create(ctx, &v1alpha1.WorkflowRun{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: child.Name, OwnerReferences: owners(run)},
				Spec:       v1alpha1.WorkflowRunSpec{WorkloadClass: w.ns, Steps: []v1alpha1.Step{step("mine")}},
			})).To(Succeed())
			w.decide(ctx, run, "ok", v1alpha1.Approve)
			end := r.finishAll(ctx, run)
			Expect(endOf(end)).To(Equal("Failed/StepFailed"))
			Expect(stepOf(end, "sub").Error.Code).To(Equal(facts.CodeNameTaken))
		}, NodeTimeout(2*patience))
	}

	It("that only says so by an owner reference gets no free pass: it waits, and ends with the run that it claims", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.limit(ctx, 1)
		r := w.newReplica(ctx, "r")
		r.gated(ctx)
		run := w.create(ctx, []v1alpha1.Step{approvalStep("ok")})
		r.driveAll(ctx, "the run has the slot", func() bool { return inPhase("ok", v1alpha1.StepWaiting)(w.get(ctx, run)) })
		forged := &v1alpha1.WorkflowRun{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "forged", OwnerReferences: owned(run)},
			Spec:       v1alpha1.WorkflowRunSpec{WorkloadClass: w.ns, Steps: []v1alpha1.Step{step("mine")}},
		}
		Expect(w.client.Create(ctx, forged)).To(Succeed())
		waiting := r.drive(ctx, forged, withReason(v1alpha1.ReasonWaitingForParent))
		Expect(waiting.Status.Phase).To(Equal(v1alpha1.RunQueued))
		w.patch(ctx, forged, `{"metadata":{"ownerReferences":null}}`)
		w.clock.Step(time.Hour)
		for range 5 {
			r.turn(ctx, forged)
		}
		Expect(w.get(ctx, forged).Status).To(Equal(waiting.Status), "what it claimed is pinned")
		w.decide(ctx, run, "ok", v1alpha1.Approve)
		r.finishAll(ctx, run)
		Expect(endOf(w.get(ctx, forged))).To(Equal("Cancelled/Cancelled"))
		Expect(w.jobsStored(ctx)).To(BeZero())
	}, NodeTimeout(2*patience))

	// The garbage collector takes the reference away when its parent is deleted with
	// --cascade=orphan, and no operator has been there.
	//
	// mutations: childRun without the note of the parent; ClaimsParent that does not read it.
	It("whose owner reference goes before its first pass is no run of its own", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.limit(ctx, 1)
		r := w.newReplica(ctx, "r")
		r.gated(ctx)
		run := w.create(ctx, []v1alpha1.Step{w.childStep("sub", waits)})
		r.drive(ctx, run, func(*v1alpha1.WorkflowRun) bool { return len(w.all(ctx)) == 2 })
		child := &v1alpha1.WorkflowRun{}
		Expect(w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: stepOf(w.get(ctx, run), "sub").ChildRun.Name}, child)).To(Succeed())
		Expect(child.Unwritten()).To(BeTrue(), "no operator has been there")
		w.patch(ctx, child, `{"metadata":{"ownerReferences":null}}`)
		Expect(w.client.Delete(ctx, run)).To(Succeed())
		end := r.drive(ctx, child, lifecycle.Finished)
		Expect(endOf(end)).To(Equal("Cancelled/Terminated"))
		Expect(messageOf(end, v1alpha1.ConditionSucceeded)).To(ContainSubstring("is gone"))
	}, NodeTimeout(2*patience))

	// Mutations that make it fail: relative asks for any name; SeenParent pins a claim
	// of any length.
	It("that claims a parent whose name or uid no run can have ends in its first pass", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		for _, claim := range []metav1.OwnerReference{
			{Name: "a/b", UID: "x"},
			{Name: "..", UID: "x"},
			{Name: "%", UID: "x"},
			{Name: strings.Repeat("a", 254), UID: "x"},
			{Name: "a", UID: types.UID(strings.Repeat("x", 65))},
		} {
			claim.APIVersion, claim.Kind, claim.Controller = v1alpha1.GroupVersion.String(), "WorkflowRun", new(true)
			run := &v1alpha1.WorkflowRun{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, GenerateName: "run-", OwnerReferences: []metav1.OwnerReference{claim}},
				Spec:       v1alpha1.WorkflowRunSpec{WorkloadClass: w.ns, Steps: diamond()},
			}
			Expect(w.client.Create(ctx, run)).To(Succeed())
			r.mustPass(ctx, run)
			now := w.get(ctx, run)
			Expect(now.Status).NotTo(BeNil(), claim.Name)
			Expect(endOf(now)).To(Equal("Cancelled/Terminated"), claim.Name)
			Expect(messageOf(now, v1alpha1.ConditionSucceeded)).To(ContainSubstring("is gone"))
		}
	}, NodeTimeout(patience))
})

var errQuota = errors.New("quota")
