// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/ownership"
)

// The load of these specs, of which a third is over when something dies.
const (
	loadRuns  = 24
	loadLimit = 4
	jobMillis = 300
)

// owners are the pods of the operator, with how many partitions each owns; "" owns those without an
// owner.
func owners(ctx context.Context) map[string]int {
	GinkgoHelper()
	owned := map[string]int{}
	object := &corev1.ConfigMap{}
	if err := k8s.Get(ctx, client.ObjectKey{Namespace: operatorNS, Name: ownership.ObjectName}, object); err != nil {
		return owned
	}
	claims, err := ownership.Decode(object)
	Expect(err).NotTo(HaveOccurred())
	for _, c := range claims {
		pod, _, _ := strings.Cut(c.Owner, ".")
		owned[pod]++
	}
	return owned
}

// driver is a pod of the operator that owns partitions, while all of them have an owner.
func driver(ctx context.Context) (name string) {
	GinkgoHelper()
	Eventually(func() bool {
		owned := owners(ctx)
		for pod := range owned {
			name = pod
		}
		return name != "" && owned[""] == 0
	}).WithContext(ctx).WithPolling(pollInterval).Should(BeTrue())
	return name
}

// runsMove waits until others own what a pod did: a rollout is complete while old pods still end.
func runsMove(ctx context.Context, from string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		owned := owners(ctx)
		g.Expect(owned).NotTo(BeEmpty())
		g.Expect(owned).NotTo(HaveKey(from))
		g.Expect(owned).NotTo(HaveKey(""))
	}).WithContext(ctx).WithPolling(pollInterval).Should(Succeed())
}

// crash ends the process of a container at once and waits until it is there again, ready. Nothing
// inside of a container can send SIGKILL to its first process; Go ends a program at SIGQUIT without
// running any more of it, which comes to the same.
func crash(ctx context.Context, namespace, pod, container string, user int) {
	GinkgoHelper()
	restarts := func() (count int32, ready bool) {
		p := &corev1.Pod{}
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pod}, p)).To(Succeed())
		for _, c := range p.Status.ContainerStatuses {
			if c.Name == container {
				return c.RestartCount, c.Ready
			}
		}
		return 0, false
	}
	before, _ := restarts()
	profile := filepath.Join(config.artifacts, fmt.Sprintf("debug-as-%d.json", user))
	Expect(os.WriteFile(profile, fmt.Appendf(nil, `{"securityContext":{"runAsUser":%d,"runAsGroup":%d}}`, user, user), 0o600)).To(Succeed())
	kubectl(ctx, "-n", namespace, "debug", pod, "--target="+container, "--image="+config.redis, "--image-pull-policy=IfNotPresent",
		"--profile=restricted", "--custom="+profile, "--", "sh", "-c", "kill -QUIT 1")
	Eventually(func(g Gomega) {
		count, ready := restarts()
		g.Expect(count).To(BeNumerically(">", before))
		g.Expect(ready).To(BeTrue())
	}).WithContext(ctx).WithPolling(pollInterval).Should(Succeed())
}

// kill deletes a pod without giving it a moment.
func kill(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	kubectl(ctx, "-n", namespace, "delete", "pod", name, "--force", "--grace-period=0")
}

// loseVolume deletes the only pod of a StatefulSet and its volume, and waits until both
// are there again.
func loseVolume(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	claim := &corev1.PersistentVolumeClaim{}
	key := client.ObjectKey{Namespace: namespace, Name: "data-" + name + "-0"}
	Expect(k8s.Get(ctx, key, claim)).To(Succeed())
	before := claim.UID
	Expect(k8s.Delete(ctx, claim)).To(Succeed()) // takes effect when no pod uses it
	Eventually(func() (bool, error) {
		if err := client.IgnoreNotFound(k8s.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-0"}})); err != nil {
			return false, err
		}
		now := &corev1.PersistentVolumeClaim{}
		err := k8s.Get(ctx, key, now)
		return apierrors.IsNotFound(err) || now.UID != before, client.IgnoreNotFound(err)
	}).WithContext(ctx).WithPolling(listInterval).Should(BeTrue())
	kubectl(ctx, "-n", namespace, "rollout", "status", "statefulset/"+name, waitFlag)
}

// load makes a world with 24 runs of five jobs each, with a list and a child, and returns when a
// third of them is over.
func load(ctx context.Context) *world {
	GinkgoHelper()
	w := newWorld(ctx, loadLimit)
	w.create(ctx, loadRuns, w.all(jobMillis)...)
	w.finished(ctx, loadRuns/3)
	return w
}

// underLoad has a fault happen in the middle of runs and checks that nothing is lost, nothing done
// twice and the limit kept. It returns the world for further questions.
func underLoad(ctx context.Context, fault func(*world)) *world {
	GinkgoHelper()
	w := load(ctx)
	begin := time.Now()
	fault(w)
	w.nothingLostNothingTwice(ctx, jobsOfAll*loadRuns)
	Expect(w.history.mostInside()).To(Equal(loadLimit), "the limit was never used")
	AddReportEntry("all done after the fault in", since(begin))
	return w
}

// withoutNATS is underLoad for faults of NATS. A worker acknowledges a job after NATS confirmed its
// result; where that acknowledgement does not arrive any more, or is not on disk yet, a worker is
// given the job again and does it twice, as every worker must be ready to (docs/protocol.md). The
// run counts it once.
func withoutNATS(ctx context.Context, fault func()) {
	GinkgoHelper()
	w := load(ctx)
	begin := time.Now()
	fault()
	again := 0
	for _, by := range w.nothingLost(ctx, jobsOfAll*loadRuns) {
		again += len(by) - 1
	}
	AddReportEntry("all done after the fault in", since(begin))
	AddReportEntry("jobs that workers were given again", again)
	Expect(again).To(BeNumerically("<", loadRuns), "more than can have been acknowledged about that moment")
	operatorReady(ctx, operatorNS)
}

func faultStories() {
	It("a pod of the operator is deleted in the middle of runs, and the other goes on", func(ctx context.Context) {
		before := driver(ctx)
		w := underLoad(ctx, func(*world) { kubectl(ctx, "-n", operatorNS, "delete", "pod", before) })
		runsMove(ctx, before)
		Expect(w.history.writers()).To(BeNumerically(">=", 2))
		operatorReady(ctx, operatorNS)
	}, SpecTimeout(specTimeout))

	It("a pod of the operator is deleted by force", func(ctx context.Context) {
		before := driver(ctx)
		underLoad(ctx, func(*world) { kill(ctx, operatorNS, before) })
		runsMove(ctx, before)
		operatorReady(ctx, operatorNS)
	}, SpecTimeout(specTimeout))

	It("a replica crashes, and the other takes over when its Lease ran out", func(ctx context.Context) {
		before := driver(ctx)
		underLoad(ctx, func(w *world) {
			w.crashed = before
			crash(ctx, operatorNS, before, "manager", 65532)
		})
		kubectl(ctx, "-n", operatorNS, "delete", "pod", before) // it counts its restarts
		operatorReady(ctx, operatorNS)
	}, SpecTimeout(specTimeout))

	It("the operator is rolled out again under a stream of runs", func(ctx context.Context) {
		w := newWorld(ctx, 8)
		rolled := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(rolled)
			w.finished(ctx, 5)
			kubectl(ctx, "-n", operatorNS, "rollout", "restart", "deployment/syncopate")
			operatorReady(ctx, operatorNS)
		}()
		w.stream(ctx, rolled, w.all(jobMillis)...)
		AddReportEntry("runs created meanwhile", w.created)
		Expect(w.refused).To(BeEmpty(), "a replica whose webhook does not listen is not asked")
		w.nothingLostNothingTwice(ctx, jobsOfAll*w.created)
	}, SpecTimeout(specTimeout))

	It("Redis is deleted in the middle of runs", func(ctx context.Context) {
		underLoad(ctx, func(*world) {
			kubectl(ctx, "-n", redisNS, "delete", "pod", "redis-0")
			kubectl(ctx, "-n", redisNS, "rollout", "status", "statefulset/redis", waitFlag)
		})
		operatorReady(ctx, operatorNS)
	}, SpecTimeout(specTimeout))

	It("Redis comes back without its data", func(ctx context.Context) {
		underLoad(ctx, func(*world) { loseVolume(ctx, redisNS, "redis") })
		operatorReady(ctx, operatorNS)
	}, SpecTimeout(specTimeout))

	It("NATS is deleted in the middle of runs", func(ctx context.Context) {
		withoutNATS(ctx, func() {
			kubectl(ctx, "-n", natsNS, "delete", "pod", "nats-0")
			kubectl(ctx, "-n", natsNS, "rollout", "status", "statefulset/nats", waitFlag)
		})
	}, SpecTimeout(specTimeout))

	It("NATS crashes in the middle of runs", func(ctx context.Context) {
		withoutNATS(ctx, func() { crash(ctx, natsNS, "nats-0", "nats", 1000) })
	}, SpecTimeout(specTimeout))

	// The operator notices the loss and looks up what it dispatched. Without that the jobs would be
	// given again when their startTimeoutSeconds or timeoutSeconds are over, an hour by default.
	It("NATS comes back without its data, and lost jobs are done without anybody's help", func(ctx context.Context) {
		withoutNATS(ctx, func() { loseVolume(ctx, natsNS, "nats") })
	}, SpecTimeout(specTimeout))

	It("a worker that is deleted in the middle of a job ends it first", func(ctx context.Context) {
		w := newWorld(ctx, 1)
		w.create(ctx, 1, w.job("long", 5000))
		pod := w.workerOf(ctx)
		kubectl(ctx, "-n", workersNS, "delete", "pod", pod)
		w.nothingLostNothingTwice(ctx, 1)
		kubectl(ctx, "-n", workersNS, "rollout", "status", "deployment/tally", waitFlag)
	}, SpecTimeout(specTimeout))

	It("a worker is killed in the middle of a job, and another one does it", func(ctx context.Context) {
		w := newWorld(ctx, 1)
		w.create(ctx, 1, w.job("long", 10_000), w.job("next", 0, "long"))
		pod := w.workerOf(ctx)
		begin := time.Now()
		kill(ctx, workersNS, pod)
		w.allSucceed(ctx)
		AddReportEntry("done after the worker was killed in", since(begin))
		begun, done := readLedger(ctx, w.namespace)
		Expect(done).To(HaveLen(2))
		for id, by := range done {
			Expect(by).To(HaveLen(1), "job %s was done more than once: %v", id, by)
			Expect(by).NotTo(ContainElement(pod))
		}
		long := w.get(ctx, "run-000").Status.Steps[0].JobID
		Expect(begun[long]).To(HaveLen(2), fmt.Sprintf("job %s: %v", long, begun))
		kubectl(ctx, "-n", workersNS, "rollout", "status", "deployment/tally", waitFlag)
	}, SpecTimeout(specTimeout))
}

// workerOf waits until a job of the world began and returns the pod that does it.
func (w *world) workerOf(ctx context.Context) string {
	GinkgoHelper()
	var pod string
	Eventually(func() string {
		begun, _ := readLedger(ctx, w.namespace)
		for _, by := range begun {
			pod = by[0]
		}
		return pod
	}).WithContext(ctx).WithPolling(pollInterval).ShouldNot(BeEmpty())
	return pod
}
