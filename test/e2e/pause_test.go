// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// saidWithin is how soon an outage of NATS is in conditions and readyz: within 5 s where
// nothing else runs.
const saidWithin = 30 * time.Second

func TestMain(m *testing.M) {
	if natstest.Main() {
		return
	}
	m.Run()
}

// reasonsByRun are those of the condition Succeeded, by run.
func (w *world) reasonsByRun(ctx context.Context) map[string]string {
	GinkgoHelper()
	var list v1alpha1.WorkflowRunList
	Expect(k8s.List(ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
	found := map[string]string{}
	for i := range list.Items {
		if run := &list.Items[i]; !run.Unwritten() {
			found[run.Name] = meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded).Reason
		}
	}
	return found
}

// dispatches are the runs of which an event says that an attempt goes to its topic.
func (w *world) dispatches(ctx context.Context) []string {
	GinkgoHelper()
	var list corev1.EventList
	Expect(k8s.List(ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
	var runs []string
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == "StepDispatched" {
			runs = append(runs, e.InvolvedObject.Name)
		}
	}
	return runs
}

// Mutations that make this fail: an operator that does not run Bus.Watch; calls that go on
// waiting when an outage is noticed (the run that was being dispatched is told too late); an
// event before its PubAck.
var _ = Describe("a NATS server that is stopped, and keeps its connections", func() {
	It("is named by runs and readyz, no event says that a job went out, and nothing is lost", func(ctx SpecContext) {
		w := newWorld(ctx)
		server := natstest.StartProcess(GinkgoTB())
		m := w.startManager(ctx, "only", "--nats-url", server.URL(), "--step-events")
		nc, err := nats.Connect(server.URL(), natstest.Patient(), nats.MaxReconnects(-1), nats.ReconnectWait(pollInterval))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(nc.Close)
		busy, over := make(chan struct{}), make(chan struct{})
		wk := worker.New(nc, worker.Options{Prefix: w.prefix})
		wk.Handle("held.work", func(context.Context, worker.Job) (any, error) {
			close(busy)
			<-over
			return "done", nil
		})
		wk.Handle("late.work", func(context.Context, worker.Job) (any, error) { return "done", nil })
		working, stop := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan error, 1)
		go func() { done <- wk.Run(working) }()
		DeferCleanup(func() {
			stop()
			Expect(<-done).To(Succeed())
		})
		w.create(ctx, 1, singleStep("held.work"))
		Eventually(busy).WithContext(ctx).Should(BeClosed())

		server.Pause()
		began := time.Now()
		late := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "late"}, Spec: singleStep("late.work")}
		Expect(k8s.Create(ctx, late)).To(Succeed())
		close(over) // its step ends, and nobody can know
		Eventually(w.reasonsByRun).WithContext(ctx).WithTimeout(saidWithin).WithPolling(pollInterval).Should(Equal(
			map[string]string{"run-0000": v1alpha1.ReasonWaitingForNATS, "late": v1alpha1.ReasonWaitingForNATS}))
		GinkgoWriter.Printf("told after %s\n", sinceStart(began))
		Eventually(readyz(ctx, m)).WithContext(ctx).WithTimeout(saidWithin).WithPolling(pollInterval).Should(ContainSubstring("[-]nats"))
		GinkgoWriter.Printf("readyz says so after %s\n", sinceStart(began))
		Expect(w.dispatches(ctx)).To(ConsistOf("run-0000"))

		server.Resume()
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, 2)
		Eventually(w.dispatches).WithContext(ctx).WithPolling(pollInterval).Should(ConsistOf("run-0000", "late"))
		Expect(m.Ready(ctx)).To(Succeed())
	}, NodeTimeout(specTimeout))
})
