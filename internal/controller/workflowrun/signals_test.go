// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// knownSignals are a source that has what a spec says.
type knownSignals struct {
	came    []lifecycle.Signal
	err     error
	watched map[types.NamespacedName]v1alpha1.StepPhase // by run: the phase of its first step
}

func (k *knownSignals) Observe(context.Context, *v1alpha1.WorkflowRun) ([]lifecycle.Signal, error) {
	return k.came, k.err
}

func (k *knownSignals) Ask(ctx context.Context, run *v1alpha1.WorkflowRun) ([]lifecycle.Signal, error) {
	return k.Observe(ctx, run)
}

func (k *knownSignals) Watch(run *v1alpha1.WorkflowRun) {
	k.watched[client.ObjectKeyFromObject(run)] = run.Status.Steps[0].Phase
}

func (k *knownSignals) Forget(run types.NamespacedName) { delete(k.watched, run) }

// Mutations that make this fail: observe that stops at the first source; watch that is not called,
// or watches a finished run, too; forget that does nothing.
var _ = Describe("signals", func() {
	It("of each source end waits; runs are watched while they go on", func(ctx SpecContext) {
		w := newWorld(ctx)
		known := &knownSignals{watched: map[types.NamespacedName]v1alpha1.StepPhase{}}
		r := w.newReplica(ctx, "r")
		r.Signals = append(r.Signals, known)
		run := w.create(ctx, []v1alpha1.Step{approvalStep("ask")})
		name := client.ObjectKeyFromObject(run)
		r.drive(ctx, run, inPhase("ask", v1alpha1.StepWaiting))
		Expect(known.watched).To(HaveKeyWithValue(name, v1alpha1.StepWaiting), "it is watched as it was written")

		known.err = errors.New("not to be had now")
		_, err := r.pass(ctx, run)
		Expect(err).To(MatchError(known.err))

		known.err, known.came = nil, []lifecycle.Signal{{Step: "ask", Decision: v1alpha1.Approve, Approver: "ann", At: w.clock.Now()}}
		end := r.finish(ctx, run)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(known.watched).To(BeEmpty())
	}, NodeTimeout(2*patience))

	It("of a run that was deleted are watched no more", func(ctx SpecContext) {
		w := newWorld(ctx)
		known := &knownSignals{watched: map[types.NamespacedName]v1alpha1.StepPhase{}}
		r := w.newReplica(ctx, "r")
		r.Signals = append(r.Signals, known)
		run := w.create(ctx, []v1alpha1.Step{approvalStep("ask")})
		now := r.drive(ctx, run, inPhase("ask", v1alpha1.StepWaiting))
		Expect(known.watched).NotTo(BeEmpty())
		r.Index.See(now)
		Expect(w.client.Delete(ctx, now)).To(Succeed())
		r.Index.Remove(now, true)
		Eventually(func() map[types.NamespacedName]v1alpha1.StepPhase {
			r.turn(ctx, run)
			return known.watched
		}).WithContext(ctx).Should(BeEmpty())
	}, NodeTimeout(2*patience))
})
