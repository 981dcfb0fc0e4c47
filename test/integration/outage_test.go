package integration

import (
	"context"
	"io"
	"net/http"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
)

// readyz returns what the operator says about itself, part by part.
func readyz(ctx context.Context, m *devenv.Manager) func() (string, error) {
	return func() (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.Probes+"/readyz?verbose", http.NoBody)
		if err != nil {
			return "", err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
}

var _ = Describe("an operator that starts", func() {
	It("while NATS is down says so in readyz, and loses nothing", func(ctx context.Context) {
		w := newWorld(ctx)
		env.NATS.Stop()
		m := w.launchManager(ctx, "early")
		w.create(ctx, 3, singleStep("early.work"))
		Eventually(readyz(ctx, m)).WithContext(ctx).WithPolling(pollInterval).Should(And(ContainSubstring("[-]nats"), ContainSubstring("[+]redis"), ContainSubstring("[+]caches")))
		Eventually(w.phases).WithContext(ctx).WithPolling(pollInterval).Should(Equal(map[v1alpha1.RunPhase]int{v1alpha1.RunRunning: 3}))
		Expect(env.NATS.Start()).To(Succeed())
		w.startWorker(ctx, 4, echo, "early.work")
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, 3)
		w.expectEachOnce(3)
		Expect(m.Ready(ctx)).To(Succeed())
	}, NodeTimeout(specTimeout))

	It("while Redis hangs says so in readyz and in conditions, still cancels, and loses nothing", func(ctx context.Context) {
		redis := env.Redis.Process()
		if redis == nil {
			Skip("needs a real redis-server")
		}
		w := newWorld(ctx)
		Expect(redis.Signal(syscall.SIGSTOP)).To(Succeed())
		DeferCleanup(func() { Expect(redis.Signal(syscall.SIGCONT)).To(Succeed()) })
		m := w.launchManager(ctx, "early")
		w.create(ctx, 3, singleStep("early.work"))
		Eventually(readyz(ctx, m)).WithContext(ctx).WithPolling(pollInterval).Should(And(ContainSubstring("[-]redis"), ContainSubstring("[+]caches")))
		reasons := func(g Gomega) {
			var list v1alpha1.WorkflowRunList
			g.Expect(k8s.List(ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
			for i := range list.Items {
				g.Expect(list.Items[i].Status).NotTo(BeNil())
				g.Expect(list.Items[i].Status.Conditions).To(ContainElement(And(
					HaveField("Type", v1alpha1.ConditionRunLockRenewed), HaveField("Reason", v1alpha1.ReasonLockStoreUnavailable))))
			}
		}
		Eventually(reasons).WithContext(ctx).WithPolling(pollInterval).Should(Succeed())

		doomed := &v1alpha1.WorkflowRun{}
		doomed.Namespace, doomed.Name = w.namespace, "run-0000"
		Expect(k8s.Patch(ctx, doomed, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"shutdown":"Cancel"}}`)))).To(Succeed())
		Eventually(w.phases).WithContext(ctx).WithPolling(pollInterval).Should(HaveKeyWithValue(v1alpha1.RunCancelled, 1))

		Expect(redis.Signal(syscall.SIGCONT)).To(Succeed())
		w.startWorker(ctx, 4, echo, "early.work")
		Eventually(w.phases).WithContext(ctx).WithPolling(pollInterval).Should(Equal(map[v1alpha1.RunPhase]int{v1alpha1.RunCancelled: 1, v1alpha1.RunSucceeded: 2}))
		w.expectEachOnce(2)
		Expect(m.Ready(ctx)).To(Succeed())
	}, NodeTimeout(specTimeout))
})
