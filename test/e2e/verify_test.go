// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	goredis "github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/verify"
)

// verifies runs kubectl syncopate verify against this world.
func (w *world) verifies(ctx context.Context, p *plugin, args ...string) (r verify.Report, notes string, code int) {
	GinkgoHelper()
	answer, notes, code := p.run(ctx, filepath.Join(p.dir, "kubectl-syncopate"), append([]string{
		"verify", "-o", "json", "--nats-url", env.NATS.URL(), "--nats-prefix", w.prefix, "--redis-addrs", env.Redis.Addr, "--operator-namespace", w.namespace,
	}, args...)...)
	AddReportEntry("kubectl syncopate verify", answer+notes)
	if answer != "" {
		Expect(json.Unmarshal([]byte(answer), &r)).To(Succeed(), answer)
	}
	return r, notes, code
}

// pod is what an operator's pod looks like; nothing runs in it here.
func (w *world) pod(ctx context.Context) {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "syncopate-", Labels: map[string]string{
			"app.kubernetes.io/name": "syncopate", "app.kubernetes.io/component": "manager",
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "syncopate"}}},
	}
	Expect(k8s.Create(ctx, pod)).To(Succeed())
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	Expect(k8s.Status().Update(ctx, pod)).To(Succeed())
}

// node does what a cluster does when a pod of the operator is deleted: its process ends, and
// another one is started.
func (w *world) node(ctx context.Context, m *devenv.Manager) {
	pods, err := k8s.Watch(ctx, &corev1.PodList{}, client.InNamespace(w.namespace))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(pods.Stop)
	go func() {
		defer GinkgoRecover()
		for e := range pods.ResultChan() {
			if e.Type == "DELETED" {
				Expect(m.Kill()).To(Succeed())
				w.startManager(ctx, "again", "--require-allow-lists")
				w.pod(ctx)
				return
			}
		}
	}()
}

// nothingLeft says that verify took away what it made.
func nothingLeft(ctx context.Context) {
	GinkgoHelper()
	var policies v1alpha1.LockPolicyList
	Expect(k8s.List(ctx, &policies, client.HasLabels{verify.Label})).To(Succeed())
	Expect(policies.Items).To(BeEmpty())
	var spaces corev1.NamespaceList
	Expect(k8s.List(ctx, &spaces, client.HasLabels{verify.Label})).To(Succeed())
	for i := range spaces.Items { // no controller takes namespaces away here
		Expect(spaces.Items[i].DeletionTimestamp).NotTo(BeNil())
		var runs v1alpha1.WorkflowRunList
		Expect(k8s.List(ctx, &runs, client.InNamespace(spaces.Items[i].Name))).To(Succeed())
		Expect(runs.Items).To(BeEmpty())
	}
}

var _ = Describe("kubectl syncopate verify", func() {
	// mutation: namespaceOf without its annotations makes this fail.
	It("finds nothing wrong with a good installation, whose workers, operator and Redis it harms", func(ctx context.Context) {
		w := newWorld(ctx)
		p := w.buildPlugin(ctx)
		w.pod(ctx)
		w.node(ctx, w.startManager(ctx, "first", "--require-allow-lists"))
		file := filepath.Join(GinkgoT().TempDir(), "junit.xml")
		r, notes, code := w.verifies(ctx, p, "--runs", "6", "--junit", file, "--restart-worker", "--restart-operator", "--flush-redis", "--bound", "4m")
		Expect(code).To(BeZero(), notes)
		Expect(r.Ended).To(Equal(6))
		Expect(r.Results).To(Equal(60))
		Expect(r.Redeliveries).NotTo(BeZero())
		Expect(r.Checks).To(HaveLen(5))
		Expect(r.Faults).To(HaveLen(3))
		for _, d := range r.Faults {
			Expect(d.What).NotTo(ContainSubstring("not"))
		}
		Expect(r.Numbers).NotTo(BeEmpty())
		text, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).To(ContainSubstring(`tests="5" failures="0"`))
		nothingLeft(ctx)
	}, NodeTimeout(3*specTimeout))

	It("says what is wrong with a broken installation", func(ctx context.Context) {
		w := newWorld(ctx)
		p := w.buildPlugin(ctx)

		By("NATS is not there")
		_, notes, code := w.verifies(ctx, p, "--nats-url", "nats://127.0.0.1:1")
		Expect(code).To(Equal(1))
		Expect(notes).To(ContainSubstring("NATS: "))

		By("no operator has ever been there")
		_, notes, code = w.verifies(ctx, p)
		Expect(code).To(Equal(1))
		Expect(notes).To(ContainSubstring("NATS has no stream"))
		nothingLeft(ctx)

		By("Redis is not there")
		m := w.launchManager(ctx, "first", "--redis-addrs", "127.0.0.1:1")
		var r verify.Report
		Eventually(func() []verify.Check { // until the operator has made the streams
			r, notes, code = w.verifies(ctx, p, "--runs", "2", "--timeout", "5s")
			return r.Checks
		}).WithContext(ctx).WithTimeout(readyTimeout).ShouldNot(BeEmpty())
		Expect(code).To(Equal(1), notes)
		Expect(r.Ended).To(BeZero())
		Expect(r.Checks[0].Wrong).To(ContainElement(ContainSubstring("Redis")))
		Expect(r.Checks[1].Unknown).NotTo(BeEmpty())

		By("the user may not create namespaces")
		_, notes, code = w.verifies(ctx, p, "--as", "jane")
		Expect(code).To(Equal(1))
		Expect(notes).To(And(ContainSubstring("create a namespace"), ContainSubstring("forbidden")))

		By("the operator is gone")
		Expect(m.Kill()).To(Succeed())
		_, notes, code = w.verifies(ctx, p, "--timeout", "3s")
		Expect(code).To(Equal(1))
		Expect(notes).To(ContainSubstring("is one running? (kubectl syncopate check)"))

		By("no pod of the operator is where it is said to be")
		_, notes, code = w.verifies(ctx, p, "--restart-operator")
		Expect(code).To(Equal(1))
		Expect(notes).To(ContainSubstring("no pod of the operator is ready in namespace " + w.namespace))

		By("Redis has data of others")
		redis := goredis.NewClient(&goredis.Options{Addr: env.Redis.Addr})
		DeferCleanup(redis.Close)
		Expect(redis.Set(ctx, "shop:cart", "1", 0).Err()).To(Succeed())
		_, notes, code = w.verifies(ctx, p, "--flush-redis")
		Expect(code).To(Equal(1))
		Expect(notes).To(ContainSubstring(`data of others is in Redis, say key "shop:cart"`))
		Expect(redis.Del(ctx, "shop:cart").Err()).To(Succeed())

		By("Redis is that of another cluster")
		Expect(redis.Set(ctx, "{adm-installation}", "another", 0).Err()).To(Succeed())
		_, notes, code = w.verifies(ctx, p, "--flush-redis")
		Expect(code).To(Equal(1))
		Expect(notes).To(ContainSubstring("Redis is that of another cluster than your kubeconfig's"))
		Expect(redis.Del(ctx, "{adm-installation}").Err()).To(Succeed())
	}, NodeTimeout(3*specTimeout))
})
