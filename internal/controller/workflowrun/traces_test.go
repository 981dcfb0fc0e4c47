// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/spans"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/traces"
	"github.com/syncopate-dev/syncopate/internal/traces/otlp"
	"github.com/syncopate-dev/syncopate/internal/traces/otlptest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// traced has a replica send its spans to a collector. A replica that is killed sends no more.
func (r *replica) traced(c *otlptest.Collector) {
	target, err := otlp.NewTarget(c.URL, func(string) string { return "" })
	Expect(err).NotTo(HaveOccurred())
	exporter := otlp.New(otlp.Options{Target: target, Clock: clock.RealClock{}, Log: GinkgoLogr, Registry: r.registry})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = exporter.Start(ctx)
	}()
	DeferCleanup(func() {
		cancel()
		<-done
	})
	r.Spans = spans.New(mortal{r, exporter}, 100, r.Clock, r.Holder)
	r.Dispatch.Traces, r.Children.Traces = r.Spans.Job, r.Spans.Child
}

// mortal is an exporter that dies with its replica.
type mortal struct {
	r  *replica
	to *otlp.Exporter
}

func (m mortal) Send(list []traces.Span) {
	if !m.r.dead.Load() {
		m.to.Send(list)
	}
}

// traceStory plays a run with all kinds of steps by one replica, and by a second one once the first
// is killed. It gives the trace as a tree, and the places that jobs had in it.
func traceStory(ctx context.Context, place string, nth int) (tree []string) {
	GinkgoHelper()
	w, c := newWorld(ctx, withWindow(tinyWindow)), otlptest.Start(GinkgoTB())
	flaky, fan := step("flaky"), step("fan", "flaky")
	flaky.Retry = v1alpha1.Retry{MaxFailures: 3}
	fan.ForEach = &v1alpha1.ForEach{Items: "${[1,2,3]}"}
	sign := v1alpha1.Step{Name: "sign", DependsOn: []string{"fan"}, Approval: &v1alpha1.Approval{}}
	below := w.childStep("below", `{"workloadClass":"CLASS","steps":[{"name":"draw","job":{"topic":"work"}}]}`, "sign")
	run := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "run-", Namespace: w.ns, Labels: map[string]string{v1alpha1.LabelSchedule: "nightly"},
			Annotations: map[string]string{v1alpha1.AnnotationSlot: "2026-03-29T03:00:00+02:00"},
		},
		Spec: v1alpha1.WorkflowRunSpec{WorkloadClass: w.ns, Steps: []v1alpha1.Step{flaky, fan, sign, below}},
	}
	Expect(w.client.Create(ctx, run)).To(Succeed())
	var places []string
	decided := false
	play := func(r *replica) {
		until(ctx, "all runs end, or the replica does", func() bool {
			over := true
			for _, one := range w.all(ctx) {
				r.turn(ctx, &one)
				over = over && lifecycle.Finished(w.get(ctx, &one))
			}
			for _, t := range w.take(ctx) {
				places = append(places, t.msg.Headers().Get(protocol.HeaderTraceParent))
				if t.id.Step == "flaky" && t.id.Attempt == 1 {
					t.say(ctx, `{"status":"Failed","error":{"code":"Flaky"}}`)
					Expect(t.msg.DoubleAck(ctx)).To(Succeed())
					continue
				}
				t.succeed(ctx)
			}
			if now := w.get(ctx, run); !decided && now.Status != nil && len(now.Status.Steps) > 2 && now.Status.Steps[2].Phase == v1alpha1.StepWaiting {
				w.decide(ctx, run, "sign", v1alpha1.Approve)
				decided = true
			}
			return r.dead.Load() || (over && lifecycle.Finished(w.get(ctx, run)))
		})
	}
	first := w.newReplica(ctx, "first")
	first.traced(c)
	if place != "" {
		first.killAt(place, nth)
	}
	play(first)
	if place != "" {
		Expect(first.dead.Load()).To(BeTrue())
		for _, one := range w.all(ctx) {
			w.dropLock(ctx, &one)
		}
		second := w.newReplica(ctx, "second")
		second.traced(c)
		play(second)
		second.mustPass(ctx, run) // it finds a run that ended
	}
	Eventually(func() []string {
		tree = treeOf(c.Spans())
		return tree
	}).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(HaveLen(len(wholeTrace)), "the trace is whole")
	Expect(places).To(HaveLen(6))
	for _, text := range places {
		at, ok := traces.Parse(text)
		Expect(ok).To(BeTrue(), text)
		Expect(slices.ContainsFunc(c.Spans(), func(s *tracepb.Span) bool {
			return string(s.GetSpanId()) == string(at.Span[:]) && string(s.GetTraceId()) == string(at.Trace[:])
		})).To(BeTrue(), "no worker's span misses its parent")
	}
	return tree
}

// treeOf is one trace as lines, each under its parent. A span whose parent is missing is at the
// top, with its trace.
func treeOf(list []*tracepb.Span) []string {
	byID := map[string]*tracepb.Span{}
	for _, s := range list {
		byID[string(s.GetSpanId())] = s
	}
	var path func(s *tracepb.Span) string
	path = func(s *tracepb.Span) string {
		parent, ok := byID[string(s.GetParentSpanId())]
		switch {
		case ok:
			return path(parent) + " > " + s.GetName()
		case len(s.GetParentSpanId()) > 0:
			return "an orphan of " + hex.EncodeToString(s.GetTraceId()) + " > " + s.GetName()
		}
		return s.GetName()
	}
	lines := make([]string, 0, len(byID))
	for _, s := range byID {
		lines = append(lines, path(s)+strings.Repeat(" failed", int(s.GetStatus().GetCode())/2))
	}
	slices.Sort(lines)
	return lines
}

// wholeTrace is the trace of the story.
var wholeTrace = []string{
	"schedule nightly",
	"schedule nightly > run",
	"schedule nightly > run > below",
	"schedule nightly > run > below > child run",
	"schedule nightly > run > below > child run > run",
	"schedule nightly > run > below > child run > run > draw",
	"schedule nightly > run > below > child run > run > draw > attempt",
	"schedule nightly > run > below > child run > run > wait for admission",
	"schedule nightly > run > fan",
	"schedule nightly > run > fan > items",
	"schedule nightly > run > flaky",
	"schedule nightly > run > flaky > attempt",
	"schedule nightly > run > flaky > attempt failed",
	"schedule nightly > run > sign",
	"schedule nightly > run > sign > approval",
	"schedule nightly > run > wait for admission",
}

var _ = Describe("traces", func() {
	It("are one tree, with schedule, retry, fan-out, approval and child run", func(ctx SpecContext) {
		Expect(traceStory(ctx, "", 0)).To(Equal(wholeTrace))
	}, SpecTimeout(2*patience))

	for nth := 1; nth <= 8; nth++ {
		It("are the same when the operator is killed after a write that it knows not to have worked", func(ctx SpecContext) {
			Expect(traceStory(ctx, "status/after", nth)).To(Equal(wholeTrace))
		}, SpecTimeout(2*patience))
	}
	It("are the same when the operator is killed before it acknowledges a result", func(ctx SpecContext) {
		Expect(traceStory(ctx, "settle/before", 2)).To(Equal(wholeTrace))
	}, SpecTimeout(2*patience))
})
