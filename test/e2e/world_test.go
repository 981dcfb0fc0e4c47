// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// createParallel is how many runs are created at the same time.
const createParallel = 16

var worlds atomic.Int32

// world is what one spec works in: a namespace, streams under a prefix of their own, and
// workers that count.
type world struct {
	namespace string
	prefix    string

	mu       sync.Mutex
	executed map[string]int // by job id
}

func newWorld(ctx context.Context) *world {
	return newWorldIn(ctx, fmt.Sprintf("world-%d", worlds.Add(1)))
}

// newWorldIn has its runs in a namespace that it makes.
func newWorldIn(ctx context.Context, name string) *world {
	GinkgoHelper()
	w := &world{namespace: name, prefix: name, executed: map[string]int{}}
	Expect(k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(k8s.DeleteAllOf(ctx, &v1alpha1.WorkflowRun{}, client.InNamespace(name))).To(Succeed())
	})
	return w
}

// startManager starts an operator for this world and waits until it is ready.
func (w *world) startManager(ctx context.Context, name string, args ...string) *devenv.Manager {
	GinkgoHelper()
	m := w.launchManager(ctx, name, args...)
	ready, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	Expect(m.Ready(ready)).To(Succeed())
	return m
}

// launchManager starts an operator and does not wait.
func (w *world) launchManager(ctx context.Context, name string, args ...string) *devenv.Manager {
	GinkgoHelper()
	m, err := env.StartManager(ctx, binary, w.prefix+"-"+name, append([]string{"--nats-prefix", w.prefix}, args...)...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(m.Kill)
	DeferCleanup(func() {
		if CurrentSpecReport().Failed() {
			AddReportEntry("operator's log", m.Log)
		}
	})
	return m
}

// startWorker serves topics with a function that counts its calls.
func (w *world) startWorker(ctx context.Context, concurrency int, handle func(context.Context, worker.Job) (any, error), topics ...string) {
	GinkgoHelper()
	nc, err := nats.Connect(env.NATS.URL(), natstest.Patient(), nats.MaxReconnects(-1), nats.ReconnectWait(pollInterval))
	Expect(err).NotTo(HaveOccurred())
	wk := worker.New(nc, worker.Options{Prefix: w.prefix})
	for _, topic := range topics {
		wk.Handle(topic, func(ctx context.Context, job worker.Job) (any, error) {
			w.mu.Lock()
			w.executed[job.ID.String()]++
			w.mu.Unlock()
			return handle(ctx, job)
		}, worker.Concurrency(concurrency))
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- wk.Run(running) }()
	DeferCleanup(func() {
		stop()
		Expect(<-done).To(Succeed())
		nc.Close()
	})
}

// executions returns how often each job was run.
func (w *world) executions() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.executed)
}

// expectEachOnce says that exactly want jobs were run, each once.
func (w *world) expectEachOnce(want int) {
	GinkgoHelper()
	all := w.executions()
	for id, n := range all {
		Expect(n).To(Equal(1), "job %s", id)
	}
	Expect(all).To(HaveLen(want))
}

// create creates runs of one spec, many at a time.
func (w *world) create(ctx context.Context, count int, spec v1alpha1.WorkflowRunSpec) {
	GinkgoHelper()
	slots := make(chan struct{}, createParallel)
	var wg sync.WaitGroup
	var failed atomic.Value
	for i := range count {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("run-%04d", i)}, Spec: spec}
			if err := k8s.Create(ctx, run); err != nil {
				failed.Store(err)
			}
		})
	}
	wg.Wait()
	Expect(failed.Load()).To(BeNil())
}

// phases counts the runs of this world by phase.
func (w *world) phases(ctx context.Context) map[v1alpha1.RunPhase]int {
	GinkgoHelper()
	var list v1alpha1.WorkflowRunList
	Expect(k8s.List(ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
	counts := map[v1alpha1.RunPhase]int{}
	for i := range list.Items {
		if list.Items[i].Unwritten() {
			counts[v1alpha1.RunPending]++
			continue
		}
		counts[list.Items[i].Status.Phase]++
	}
	return counts
}

// eventuallyAll waits until all runs of this world are in one phase.
func (w *world) eventuallyAll(ctx context.Context, phase v1alpha1.RunPhase, count int) {
	GinkgoHelper()
	Eventually(w.phases).WithContext(ctx).WithPolling(5 * pollInterval).Should(Equal(map[v1alpha1.RunPhase]int{phase: count}))
}

// scrape reads the metrics of an operator.
func scrape(ctx context.Context, m *devenv.Manager) map[string]*dto.MetricFamily {
	GinkgoHelper()
	families, err := tryScrape(ctx, m)
	Expect(err).NotTo(HaveOccurred())
	return families
}

// tryScrape is scrape of an operator that may have ended.
func tryScrape(ctx context.Context, m *devenv.Manager) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.Metrics+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(resp.Body)
}

// counter sums a counter over the label sets that have the given label value; "" matches all.
func counter(families map[string]*dto.MetricFamily, name, value string) float64 {
	sum := 0.0
	for _, m := range families[name].GetMetric() {
		matches := value == ""
		for _, l := range m.GetLabel() {
			matches = matches || l.GetValue() == value
		}
		if matches {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

// singleStep is a run of one job.
func singleStep(topic string) v1alpha1.WorkflowRunSpec {
	return v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{{Name: "work", Job: &v1alpha1.Job{Topic: topic}}}}
}

// sinceStart is for figures that specs print.
func sinceStart(begin time.Time) time.Duration { return time.Since(begin).Round(10 * time.Millisecond) }
