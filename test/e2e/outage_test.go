// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
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

// door is an address behind which nobody is until it is opened.
type door struct{ addr string }

func newDoor(ctx context.Context) *door {
	GinkgoHelper()
	addr, err := ports.Address()
	Expect(err).NotTo(HaveOccurred())
	return &door{addr: addr}
}

// open forwards connections to an address until the spec ends.
func (d *door) open(ctx context.Context, to string) {
	GinkgoHelper()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", d.addr)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(l.Close)
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go forward(ctx, from, to)
		}
	}()
}

// forward copies both ways until one side ends.
func forward(ctx context.Context, from net.Conn, addr string) {
	var dialer net.Dialer
	to, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		_ = from.Close()
		return
	}
	go func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
	_ = from.Close()
}

var _ = Describe("an operator that starts", func() {
	It("while NATS is down says so in readyz, and loses nothing", func(ctx context.Context) {
		w := newWorld(ctx)
		env.NATS.Stop()
		m := w.launchManager(ctx, "early")
		w.create(ctx, 3, singleStep("early.work"))
		Eventually(readyz(ctx, m)).WithContext(ctx).WithPolling(pollInterval).Should(And(ContainSubstring("[-]nats"), ContainSubstring("[+]redis"), ContainSubstring("[+]caches"), ContainSubstring("[+]ownership")))
		Eventually(w.phases).WithContext(ctx).WithPolling(pollInterval).Should(Equal(map[v1alpha1.RunPhase]int{v1alpha1.RunRunning: 3}))
		Expect(env.NATS.Start()).To(Succeed())
		w.startWorker(ctx, 4, echo, "early.work")
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, 3)
		w.expectEachOnce(3)
		Expect(m.Ready(ctx)).To(Succeed())
	}, NodeTimeout(specTimeout))

	// mutation: an operator that does not name its cluster to the bus makes this fail.
	It("on the streams of another cluster leaves them alone, says so in readyz, and takes them over when it is told to", func(ctx context.Context) {
		w := newWorld(ctx)
		nc, err := nats.Connect(env.NATS.URL(), natstest.Patient())
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(nc.Close)
		js, err := jetstream.New(nc)
		Expect(err).NotTo(HaveOccurred())
		names := protocol.Names{Prefix: w.prefix}
		jobs := jetstream.StreamConfig{
			Name: names.JobsStream(), Subjects: []string{w.prefix + ".jobs.>"}, Retention: jetstream.WorkQueuePolicy, AllowMsgTTL: true,
			Metadata: map[string]string{"syncopate.dev/installation": "another"},
		}
		_, err = js.CreateStream(ctx, jobs)
		Expect(err).NotTo(HaveOccurred())

		m := w.launchManager(ctx, "early")
		w.create(ctx, 3, singleStep("early.work"))
		Eventually(readyz(ctx, m)).WithContext(ctx).WithPolling(pollInterval).Should(And(ContainSubstring("[-]nats"), ContainSubstring("[+]redis")))
		Eventually(w.phases).WithContext(ctx).WithPolling(pollInterval).Should(Equal(map[v1alpha1.RunPhase]int{v1alpha1.RunRunning: 3}))
		s, err := js.Stream(ctx, names.JobsStream())
		Expect(err).NotTo(HaveOccurred())
		Expect(s.CachedInfo().State.Msgs).To(BeZero())
		Expect(s.CachedInfo().State.Consumers).To(BeZero())
		Expect(os.ReadFile(m.Log)).To(ContainSubstring("belongs to installation another"))
		Expect(m.Terminate(ctx)).To(Succeed())

		heir := w.startManager(ctx, "heir", "--nats-take-over", "another")
		w.startWorker(ctx, 4, echo, "early.work")
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, 3)
		Expect(heir.Ready(ctx)).To(Succeed())
	}, NodeTimeout(specTimeout))

	// mutation: an operator that does not name its cluster to the store of admission
	// makes this fail.
	It("on the Redis of another cluster gives nobody a lock, says so in readyz, and takes it over when it is told to", func(ctx context.Context) {
		const key = "{adm-installation}"
		w := newWorld(ctx)
		redis := lockStore()
		DeferCleanup(func(ctx context.Context) { Expect(redis.Del(ctx, key).Err()).To(Succeed()) })
		Expect(redis.Set(ctx, key, "another", 0).Err()).To(Succeed())
		m := w.launchManager(ctx, "early")
		locked := singleStep("early.work")
		locked.Locks = []v1alpha1.LockRequest{{Mutex: "m"}}
		w.create(ctx, 3, locked)
		Eventually(readyz(ctx, m)).WithContext(ctx).WithPolling(pollInterval).Should(And(
			ContainSubstring("[-]redis failed: Redis belongs to installation another"), ContainSubstring("--nats-take-over=another"), ContainSubstring("[+]nats")))
		Eventually(func(g Gomega) {
			var list v1alpha1.WorkflowRunList
			g.Expect(k8s.List(ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
			for i := range list.Items {
				g.Expect(list.Items[i].Unwritten()).To(BeFalse())
				g.Expect(list.Items[i].Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring("Redis belongs to installation another"))))
			}
		}).WithContext(ctx).WithPolling(pollInterval).Should(Succeed())
		Expect(m.Terminate(ctx)).To(Succeed())

		heir := w.startManager(ctx, "heir", "--nats-take-over", "another")
		w.startWorker(ctx, 4, echo, "early.work")
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, 3)
		Expect(heir.Ready(ctx)).To(Succeed())
	}, NodeTimeout(specTimeout))

	It("while the API server is down says so in readyz, stays alive, and goes on when it is there", func(ctx context.Context) {
		text, err := os.ReadFile(env.Kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		door := newDoor(ctx)
		elsewhere := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		behind := strings.TrimPrefix(strings.TrimSuffix(env.Config.Host, "/"), "https://")
		Expect(os.WriteFile(elsewhere, []byte(strings.ReplaceAll(string(text), behind, door.addr)), 0o600)).To(Succeed())

		w := newWorld(ctx)
		m := w.launchManager(ctx, "early", "--kubeconfig", elsewhere)
		Eventually(readyz(ctx, m)).WithContext(ctx).WithPolling(pollInterval).Should(And(ContainSubstring("[-]apiserver"), ContainSubstring("refused")))
		Consistently(m.Done(), 5*pollInterval).ShouldNot(BeClosed())
		door.open(ctx, behind)
		w.startWorker(ctx, 4, echo, "early.work")
		w.create(ctx, 3, singleStep("early.work"))
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, 3)
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
				g.Expect(list.Items[i].Unwritten()).To(BeFalse())
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
