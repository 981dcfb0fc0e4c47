// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/traces"
	"github.com/syncopate-dev/syncopate/internal/traces/otlp"
	"github.com/syncopate-dev/syncopate/internal/traces/otlptest"
	"github.com/syncopate-dev/syncopate/pkg/worker"
	"github.com/syncopate-dev/syncopate/test/workers"
)

// startTracedWorker serves a topic with a function of the public SDK, and sends a span
// for each job.
func (w *world) startTracedWorker(ctx context.Context, collector *otlptest.Collector, topic string, handle worker.Handler) {
	GinkgoHelper()
	target, err := otlp.NewTarget(collector.URL, func(string) string { return "" })
	Expect(err).NotTo(HaveOccurred())
	exporter := otlp.New(otlp.Options{Target: target, Clock: clock.RealClock{}, Log: GinkgoLogr, Registry: prometheus.NewRegistry()})
	nc, err := nats.Connect(env.NATS.URL(), natstest.Patient())
	Expect(err).NotTo(HaveOccurred())
	wk := worker.New(nc, worker.Options{Prefix: w.prefix, Trace: func(ctx context.Context, job worker.Job) (context.Context, func(error)) {
		parent, _ := traces.Parse(job.TraceParent)
		s := traces.Span{Trace: parent.Trace, Parent: parent.Span, Name: "process " + topic, Kind: 5, Start: time.Now()}
		_, _ = rand.Read(s.ID[:]) // it never fails
		return ctx, func(err error) {
			s.End, s.Failed = time.Now(), err != nil
			exporter.Send([]traces.Span{s})
		}
	}})
	wk.Handle(topic, handle)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	sent, done := make(chan error, 1), make(chan error, 1)
	go func() { sent <- exporter.Start(running) }()
	go func() { done <- wk.Run(running) }()
	DeferCleanup(func() {
		stop()
		Expect(errors.Join(<-done, <-sent)).To(Succeed())
		nc.Close()
	})
}

// startPythonWorker starts the sample worker, with the topic of the conformance kit.
func (w *world) startPythonWorker(collector *otlptest.Collector) {
	GinkgoHelper()
	if _, err := exec.LookPath("python3"); err != nil && os.Getenv("REQUIRE_WORKERS") == "" {
		Skip("python3 is not installed")
	}
	p, err := workers.Command{
		Dir: filepath.Join(root, "examples/worker-python"), Args: []string{"python3", "-B", "worker.py", workers.DefaultTopic},
		Env: []string{"NATS_URL=" + env.NATS.URL(), "SYNCOPATE_PREFIX=" + w.prefix, "OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL},
	}.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(p.Kill)
}

func sleeps(millis string) *v1alpha1.Job {
	return &v1alpha1.Job{Topic: workers.DefaultTopic, Input: &runtime.RawExtension{Raw: []byte(`{"do":"sleep","millis":` + millis + `}`)}}
}

// tracedSteps have a lock, a retry, items, a decision and a child run.
func tracedSteps() []v1alpha1.Step {
	flaky := v1alpha1.Step{Name: "summarize", DependsOn: []string{"fetch"}, Job: &v1alpha1.Job{Topic: "traces.go"}, Retry: v1alpha1.Retry{MaxFailures: 3}}
	flaky.Retry.Backoff.InitialMillis = new(int64(200))
	return []v1alpha1.Step{
		{Name: "fetch", Job: sleeps("400"), Locks: []v1alpha1.LockRequest{{Mutex: "crawler"}}},
		flaky,
		{Name: "translate", DependsOn: []string{"summarize"}, Job: sleeps("300"), ForEach: &v1alpha1.ForEach{Items: `${["de","fr","it"]}`, MaxParallel: 2}},
		{Name: "review", DependsOn: []string{"translate"}, Approval: &v1alpha1.Approval{}},
		{Name: "publish", DependsOn: []string{"review"}, Run: &v1alpha1.ChildRun{Spec: runtime.RawExtension{
			Raw: []byte(`{"steps":[{"name":"upload","job":{"topic":"` + workers.DefaultTopic + `","input":{"do":"sleep","millis":250}}}]}`),
		}}},
	}
}

// tree is a trace as lines, each name below that of its parent. A span whose parent is missing has
// none of the others above it.
func tree(spans []*tracepb.Span) (lines []string) {
	byID := map[string]*tracepb.Span{}
	for _, s := range spans {
		byID[string(s.GetSpanId())] = s
	}
	for _, s := range byID {
		line := s.GetName()
		for p := byID[string(s.GetParentSpanId())]; p != nil; p = byID[string(p.GetParentSpanId())] {
			line = p.GetName() + " > " + line
		}
		lines = append(lines, line+strings.Repeat(" failed", int(s.GetStatus().GetCode())/2))
	}
	slices.Sort(lines)
	return lines
}

var _ = Describe("A trace", func() {
	It("has the operator's spans and those of workers in Go and Python", func(ctx SpecContext) {
		w, collector := newWorld(ctx), otlptest.Start(GinkgoTB())
		w.startManager(ctx, "traced", "--otlp-endpoint", collector.URL)
		w.startPythonWorker(collector)
		w.startTracedWorker(ctx, collector, "traces.go", func(_ context.Context, job worker.Job) (any, error) {
			time.Sleep(150 * time.Millisecond)
			if job.ID.Attempt == 1 {
				return nil, errors.New("the model is busy")
			}
			return nil, nil
		})
		w.create(ctx, 1, v1alpha1.WorkflowRunSpec{Steps: tracedSteps()})
		name := w.runs(ctx)[0].Name
		Eventually(w.succeededReason(ctx, name)).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonWaitingForApproval))
		Expect(k8s.Create(ctx, &v1alpha1.StepApproval{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace},
			Spec:       v1alpha1.StepApprovalSpec{Run: name, Step: "review", Decision: v1alpha1.Approve, Approver: "ann"},
		})).To(Succeed())
		Eventually(w.succeededReason(ctx, name)).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.ReasonSucceeded))
		const python = "process " + workers.DefaultTopic
		Eventually(func() []string { return tree(collector.Spans()) }).WithContext(ctx).WithPolling(pollInterval).Should(Equal([]string{
			"run",
			"run > fetch",
			"run > fetch > attempt",
			"run > fetch > attempt > " + python,
			"run > fetch > wait for locks",
			"run > publish",
			"run > publish > child run",
			"run > publish > child run > run",
			"run > publish > child run > run > upload",
			"run > publish > child run > run > upload > attempt",
			"run > publish > child run > run > upload > attempt > " + python,
			"run > publish > child run > run > wait for admission",
			"run > review",
			"run > review > approval",
			"run > summarize",
			"run > summarize > attempt",
			"run > summarize > attempt > process traces.go",
			"run > summarize > attempt > process traces.go failed",
			"run > summarize > attempt failed",
			"run > translate",
			"run > translate > items",
			"run > translate > items > " + python,
			"run > translate > items > " + python,
			"run > translate > items > " + python,
			"run > wait for admission",
		}))
		if dir := os.Getenv("PICTURES"); dir != "" {
			Expect(os.WriteFile(filepath.Join(dir, "trace.svg"), otlptest.Draw(collector.Spans()), 0o600)).To(Succeed())
		}
	}, SpecTimeout(specTimeout))
})
