// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/ownership"
)

// shared are the arguments of a replica that shares the runs with others.
var shared = []string{"--leader-elect=true", "--ownership=shards"}

// crew is the replicas of a world that share the runs.
type crew struct {
	w *world

	mu      sync.Mutex
	members map[string]*devenv.Manager
	started int
}

// newCrew begins with replicas. Partitions of worlds before this one are of other streams: they are
// forgotten.
func (w *world) newCrew(ctx context.Context, size int) *crew {
	GinkgoHelper()
	forget := func(ctx context.Context) {
		Expect(k8s.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(devenv.OperatorNamespace))).To(Succeed())
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: devenv.OperatorNamespace, Name: ownership.ObjectName}}
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, object))).To(Succeed())
	}
	forget(ctx)
	DeferCleanup(forget)
	c := &crew{w: w, members: map[string]*devenv.Manager{}}
	for range size {
		c.add(ctx)
	}
	c.settled(ctx)
	return c
}

// add starts one more replica, and returns its name.
func (c *crew) add(ctx context.Context) string {
	GinkgoHelper()
	c.mu.Lock()
	c.started++
	name := "r" + strconv.Itoa(c.started)
	c.mu.Unlock()
	m := c.w.startManager(ctx, name, shared...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members[name] = m
	return name
}

// remove forgets a replica, which is about to end.
func (c *crew) remove(name string) *devenv.Manager {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.members[name]
	delete(c.members, name)
	return m
}

func (c *crew) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.members))
}

// owned is how many partitions each replica says that it owns.
func (c *crew) owned(ctx context.Context) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	owned := map[string]int{}
	for name, m := range c.members {
		owned[name] = int(scrape(ctx, m)["syncopate_partitions_owned"].GetMetric()[0].GetGauge().GetValue())
	}
	return owned
}

// leaseSeconds is how long the Leases of replicas last.
func leaseSeconds(ctx context.Context) func() ([]int32, error) {
	return func() (seconds []int32, err error) {
		var leases coordinationv1.LeaseList
		err = k8s.List(ctx, &leases, client.InNamespace(devenv.OperatorNamespace), client.MatchingLabels{ownership.LeaseLabel: ownership.MemberLease})
		for i := range leases.Items {
			seconds = append(seconds, *leases.Items[i].Spec.LeaseDurationSeconds)
		}
		return seconds, err
	}
}

// settled waits until each partition has one owner, and each replica has some.
func (c *crew) settled(ctx context.Context) map[string]int {
	GinkgoHelper()
	var owned map[string]int
	Eventually(func(g Gomega) {
		owned = c.owned(ctx)
		sum := 0
		for name, n := range owned {
			g.Expect(n).To(BeNumerically(">", 0), "replica %s of %v", name, owned)
			sum += n
		}
		g.Expect(sum).To(Equal(ownership.Partitions), "%v", owned)
	}).WithContext(ctx).WithPolling(pollInterval).Should(Succeed())
	return owned
}

// gaps are the hand-overs that living replicas measured: how many, and the mean.
func (c *crew) gaps(ctx context.Context, kind string) (n uint64, mean time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sum float64
	for _, m := range c.members {
		family := scrape(ctx, m)["syncopate_handover_seconds"]
		for _, metric := range family.GetMetric() {
			if metric.GetLabel()[0].GetValue() == kind {
				n += metric.GetHistogram().GetSampleCount()
				sum += metric.GetHistogram().GetSampleSum()
			}
		}
	}
	if n == 0 {
		return 0, 0
	}
	return n, time.Duration(sum / float64(n) * float64(time.Second)).Round(time.Millisecond)
}

// chainOf is a run of steps one after the other.
func chainOf(steps int, topic string) v1alpha1.WorkflowRunSpec {
	spec := v1alpha1.WorkflowRunSpec{}
	for i := range steps {
		s := v1alpha1.Step{Name: fmt.Sprintf("s%d", i), Job: &v1alpha1.Job{Topic: topic}}
		if i > 0 {
			s.DependsOn = []string{fmt.Sprintf("s%d", i-1)}
		}
		spec.Steps = append(spec.Steps, s)
	}
	return spec
}

// clean says that a history has no write of a holder that was replaced.
func (h *history) clean() {
	GinkgoHelper()
	h.mu.Lock()
	defer h.mu.Unlock()
	Expect(h.problems).To(BeEmpty())
}

var _ = Describe("replicas that share the runs", func() {
	It("each drive some, go on when one is killed, and share again with the next one", func(ctx context.Context) {
		const runs, steps = 120, 3
		w := newWorld(ctx)
		c := w.newCrew(ctx, 3)
		w.startWorker(ctx, 16, echo, "shared.work")
		h, t := w.record(ctx), followTerms(ctx)
		w.create(ctx, runs, chainOf(steps, "shared.work"))
		w.atLeastDone(ctx, runs/4)
		begin := time.Now()
		Expect(c.remove("r2").Kill()).To(Succeed())
		owned := c.settled(ctx)
		AddReportEntry("kill", fmt.Sprintf("owned again after %s: %v", sinceStart(begin), owned))
		c.add(ctx)
		c.settled(ctx)
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, runs)
		w.expectEachOnce(runs * steps)
		h.clean()
		t.expectInOrder(ctx, h)
		h.mu.Lock()
		defer h.mu.Unlock()
		Expect(len(h.holders)).To(BeNumerically(">=", 3), "%v", h.holders)
	}, NodeTimeout(specTimeout))

	It("hand all on when they are asked to stop, from one to three and back to one", func(ctx context.Context) {
		const runs, steps = 120, 3
		w := newWorld(ctx)
		c := w.newCrew(ctx, 1)
		w.startWorker(ctx, 16, echo, "shared.work")
		h, t := w.record(ctx), followTerms(ctx)
		unowned := c.watchOwners(ctx)
		w.create(ctx, runs, chainOf(steps, "shared.work"))
		for range 2 {
			c.add(ctx)
			AddReportEntry("grown", fmt.Sprint(c.settled(ctx)))
		}
		n, mean := c.gaps(ctx, "planned")
		Expect(n).To(BeNumerically(">", 0))
		for _, name := range []string{"r1", "r2"} {
			begin := time.Now()
			m := c.remove(name)
			Expect(m.Terminate(ctx)).To(Succeed())
			Expect(errorsOf(m)).To(BeEmpty(), "an orderly hand-over is none")
			AddReportEntry("stop of "+name, fmt.Sprintf("%s; owned: %v", sinceStart(begin), c.settled(ctx)))
		}
		AddReportEntry("planned moves", fmt.Sprintf("%d, gap %s on average", n, mean))
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, runs)
		w.expectEachOnce(runs * steps)
		h.clean()
		t.expectInOrder(ctx, h)
		longest := unowned()
		AddReportEntry("without exactly one owner for each partition", longest.String())
		Expect(longest).To(BeNumerically("<", 20*time.Second), "ten times what is wanted")
	}, NodeTimeout(specTimeout))

	It("are as one with a leader of before: it drives all while it is there", func(ctx context.Context) {
		const runs = 40
		w := newWorld(ctx)
		leading := w.startManager(ctx, "leader", "--leader-elect=true", "--ownership=leader")
		Eventually(leader(ctx)).WithContext(ctx).WithPolling(pollInterval).ShouldNot(BeEmpty())
		next := w.startManager(ctx, "next", append(slices.Clone(shared), "--ownership-lease=9s")...)
		Eventually(leaseSeconds(ctx)).WithContext(ctx).WithPolling(pollInterval).Should(Equal([]int32{9}), "the flag is what its Lease says")
		w.startWorker(ctx, 8, echo, "shared.work")
		h := w.record(ctx)
		w.create(ctx, runs, chainOf(2, "shared.work"))
		w.atLeastDone(ctx, runs/2)
		Expect(scrape(ctx, next)["syncopate_partitions_owned"].GetMetric()[0].GetGauge().GetValue()).To(BeZero())
		Expect(leading.Terminate(ctx)).To(Succeed())
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, runs)
		w.expectEachOnce(2 * runs)
		h.clean()
		Expect(k8s.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(devenv.OperatorNamespace))).To(Succeed())
	}, NodeTimeout(specTimeout))

	// mutation: a wake of the quota that stays in its replica (wakeAnywhere) makes this fail: the
	// next run of the tenant waits for the resync, half a minute.
	It("keep the limit of a tenant whose runs they share, and let the next one in at once", func(ctx context.Context) {
		const runs, limit = 40, 2
		w := newWorld(ctx)
		limited(ctx, w.namespace, limit)
		t := w.watchGates(ctx, limit)
		w.newCrew(ctx, 3)
		w.startWorker(ctx, 8, lasting(20*time.Millisecond), "gate.work")
		spec := singleStep("gate.work")
		spec.WorkloadClass = w.namespace
		begin := time.Now()
		w.create(ctx, runs, spec)
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, runs)
		took := time.Since(begin)
		AddReportEntry("40 runs at limit 2, over three replicas", fmt.Sprintf("%s; %s", took.Round(time.Millisecond), t.idleTimes()))
		Expect(took).To(BeNumerically("<", time.Minute), "two of three runs are woken by another replica")
		t.expectKept()
		w.expectEachOnce(runs)
		w.noSlots(ctx, w.namespace, w.namespace)
	}, NodeTimeout(specTimeout))

	It("lose nothing and do nothing twice, with kills, pauses and changes of their number", Label("large"), func(ctx context.Context) {
		runs, err := strconv.Atoi(os.Getenv("SHARDS"))
		if err != nil {
			Skip("SHARDS=5000 plays it with so many runs: make test-shards")
		}
		const steps = 2
		w := newWorld(ctx)
		c := w.newCrew(ctx, 3)
		w.startWorker(ctx, 32, echo, "shared.work")
		h, t := w.record(ctx), followTerms(ctx)
		created := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(created)
			w.create(ctx, runs, chainOf(steps, "shared.work"))
		}()
		stalls := w.watchStalls(ctx)
		c.upset(ctx, func() bool { return len(w.executions()) >= runs*steps })
		<-created
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, runs)
		w.expectEachOnce(runs * steps)
		h.clean()
		t.expectInOrder(ctx, h)
		n, mean := c.gaps(ctx, "takeover")
		m, planned := c.gaps(ctx, "planned")
		AddReportEntry("the whole", fmt.Sprintf("%d runs; longest time without any job done: %s; take-overs seen by those who are left: %d, %s on average; planned: %d, %s",
			runs, stalls(), n, mean, m, planned))
	}, NodeTimeout(40*time.Minute))
})

// upset kills one replica every 20 s, pauses another for 15 s in between, and goes from three to
// five and to one, until done.
func (c *crew) upset(ctx context.Context, done func() bool) {
	GinkgoHelper()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for round := 0; !done(); round++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		names := c.names()
		victim := names[rand.IntN(len(names))]
		switch round % 6 {
		case 0, 2, 4:
			Expect(c.remove(victim).Kill()).To(Succeed())
			c.add(ctx)
		case 1:
			c.mu.Lock()
			m := c.members[victim]
			c.mu.Unlock()
			Expect(syscall.Kill(m.PID(), syscall.SIGSTOP)).To(Succeed())
			time.AfterFunc(15*time.Second, func() { _ = syscall.Kill(m.PID(), syscall.SIGCONT) })
		case 3:
			for len(c.names()) < 5 {
				c.add(ctx)
			}
		case 5:
			for _, name := range names[:len(names)-1] {
				_ = c.remove(name).Terminate(ctx) // one may be paused, and be killed at the end
			}
			c.add(ctx)
			c.add(ctx)
		}
		GinkgoWriter.Printf("round %d: %s\n", round, strings.Join(c.names(), " "))
	}
}

// watchOwners measures the longest time in which replicas did not own each partition once, by their
// own account, until what it returns is called. Replicas are asked one after the other, so a
// partition that moves meanwhile may be counted twice, or not at all.
func (c *crew) watchOwners(ctx context.Context) func() time.Duration {
	ctx, stop := context.WithCancel(ctx)
	longest := make(chan time.Duration, 1)
	go func() {
		var worst time.Duration
		last := time.Now()
		tick := time.NewTicker(pollInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				longest <- worst
				return
			case <-tick.C:
			}
			if c.ownedOnce(ctx) {
				last = time.Now()
			}
			worst = max(worst, time.Since(last))
		}
	}()
	return func() time.Duration {
		stop()
		return (<-longest).Round(time.Millisecond)
	}
}

// ownedOnce says whether the replicas own as many partitions as there are. One that cannot be asked
// owns none.
func (c *crew) ownedOnce(ctx context.Context) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := 0
	for _, m := range c.members {
		families, err := tryScrape(ctx, m)
		if err != nil {
			continue
		}
		for _, metric := range families["syncopate_partitions_owned"].GetMetric() {
			sum += int(metric.GetGauge().GetValue())
		}
	}
	return sum == ownership.Partitions
}

// watchStalls measures the longest time in which no job was done, until what it returns is called.
func (w *world) watchStalls(ctx context.Context) func() time.Duration {
	ctx, stop := context.WithCancel(ctx)
	longest := make(chan time.Duration, 1)
	go func() {
		var worst time.Duration
		last, count := time.Now(), 0
		tick := time.NewTicker(pollInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				longest <- worst
				return
			case <-tick.C:
			}
			if n := len(w.executions()); n != count {
				count, last = n, time.Now()
			}
			worst = max(worst, time.Since(last))
		}
	}()
	return func() time.Duration {
		stop()
		return (<-longest).Round(time.Millisecond)
	}
}
