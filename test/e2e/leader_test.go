// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
)

// leader is the identity in the lease by which replicas elect one of them; empty when
// nobody holds it.
func leader(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		var lease coordinationv1.Lease
		err := k8s.Get(ctx, client.ObjectKey{Namespace: devenv.OperatorNamespace, Name: "syncopate-manager"}, &lease)
		if err != nil || lease.Spec.HolderIdentity == nil {
			return "", client.IgnoreNotFound(err)
		}
		return *lease.Spec.HolderIdentity, nil
	}
}

// errorsOf are the errors that an operator has logged.
func errorsOf(m *devenv.Manager) (lines []string) {
	GinkgoHelper()
	text, err := os.ReadFile(m.Log)
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"level":"error"`) || strings.Contains(line, `"stacktrace"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

var _ = Describe("two replicas that elect a leader", func() {
	It("have one work and the other take over when it is asked to stop", func(ctx context.Context) {
		const runs = 60
		w := newWorld(ctx)
		first := w.startManager(ctx, "first", "--leader-elect=true", "--ownership=leader")
		Eventually(leader(ctx)).WithContext(ctx).WithPolling(pollInterval).ShouldNot(BeEmpty())
		before, err := leader(ctx)()
		Expect(err).NotTo(HaveOccurred())
		second := w.startManager(ctx, "second", "--leader-elect=true", "--ownership=leader") // ready although it stands by

		w.startWorker(ctx, 8, echo, "elected.work")
		h := w.record(ctx)
		w.create(ctx, runs, singleStep("elected.work"))
		w.atLeastDone(ctx, runs/3)
		begin := time.Now()
		Expect(first.Terminate(ctx)).To(Succeed(), "a leader that is asked to stop ends without an error")
		stopped := sinceStart(begin)
		Expect(errorsOf(first)).To(BeEmpty(), "an orderly hand-over is none")
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, runs)
		AddReportEntry("take-over", fmt.Sprintf("the leader stopped in %s, all done after %s", stopped, sinceStart(begin)))
		w.expectEachOnce(runs)
		takeOvers := scrape(ctx, second)["syncopate_take_over_seconds"].GetMetric()[0].GetHistogram()
		Expect(takeOvers.GetSampleCount()).To(BeNumerically(">", 0), "runs that the first had begun")
		Expect(takeOvers.GetSampleSum()/float64(takeOvers.GetSampleCount())).To(BeNumerically("<", 30), "seconds: its locks were given back")
		after, err := leader(ctx)()
		Expect(err).NotTo(HaveOccurred())
		Expect(after).NotTo(Equal(before))
		h.mu.Lock()
		defer h.mu.Unlock()
		Expect(h.problems).To(BeEmpty())
	}, NodeTimeout(specTimeout))
})
