// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/book"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	look          = 50 * time.Millisecond // between two looks at what does not tell of itself
	readyTimeout  = 2 * time.Minute       // an operator becomes ready
	createAtATime = 16                    // runs
	resultGroups  = 8                     // consumers of results
	logTail       = 8 << 10               // bytes of an operator's log that a failed test shows
)

// note tells of the progress: at once where a benchmark would keep it for the end and cut it.
func (w *world) note(format string, args ...any) {
	w.tb.Helper()
	if _, ok := w.tb.(*testing.B); ok {
		fmt.Fprintf(os.Stderr, "    "+format+"\n", args...)
		return
	}
	w.tb.Logf(format, args...)
}

// worlds numbers the worlds of this process.
var worlds atomic.Int32

// world is what one test works in.
type world struct {
	tb        testing.TB
	namespace string
	class     string // of its runs; no policy lists it unless a test makes one
	names     protocol.Names
	nats      *natsServer
	nc        *nats.Conn
	js        jetstream.JetStream
}

func newWorld(ctx context.Context, tb testing.TB) *world {
	tb.Helper()
	needSite(ctx, tb)
	name := fmt.Sprintf("ledger-%d", worlds.Add(1))
	w := &world{tb: tb, namespace: name, class: name, names: protocol.Names{Prefix: protocol.DefaultPrefix}, nats: startNATS(ctx, tb)}
	if err := site.k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := site.k8s.DeleteAllOf(ctx, &v1alpha1.WorkflowRun{}, client.InNamespace(name)); err != nil {
			tb.Error(err)
		}
	})
	w.nc = w.dial()
	var err error
	if w.js, err = jetstream.New(w.nc); err != nil {
		tb.Fatal(err)
	}
	return w
}

// dial connects to NATS as a worker does that goes on for ever.
func (w *world) dial() *nats.Conn {
	w.tb.Helper()
	nc, err := nats.Connect(w.nats.url(), natstest.Patient(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(look))
	if err != nil {
		w.tb.Fatal(err)
	}
	w.tb.Cleanup(nc.Close)
	return nc
}

// policy makes a LockPolicy for the runs of this world, for the time of the test.
func (w *world) policy(ctx context.Context, spec v1alpha1.LockPolicySpec) {
	w.tb.Helper()
	spec.WorkloadClasses = []string{w.class}
	p := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: w.class}, Spec: spec}
	if err := site.k8s.Create(ctx, p); err != nil {
		w.tb.Fatal(err)
	}
	w.tb.Cleanup(func() {
		if err := site.k8s.Delete(context.WithoutCancel(ctx), p); err != nil {
			w.tb.Error(err)
		}
	})
}

// operator is a replica that is killed and started again.
type operator struct {
	w     *world
	name  string
	args  []string
	now   *devenv.Manager
	kills int
}

// startOperator starts an operator and waits until it is ready.
func (w *world) startOperator(ctx context.Context, name string, args ...string) *operator {
	w.tb.Helper()
	o := &operator{w: w, name: w.namespace + "-" + name, args: append([]string{"--nats-url", w.nats.url()}, args...)}
	o.start(ctx)
	w.tb.Cleanup(func() {
		_ = o.now.Kill()
		if w.tb.Failed() {
			w.tb.Logf("end of the log of %s:\n%s", o.name, tail(o.now.Log, logTail))
		}
	})
	return o
}

func (o *operator) start(ctx context.Context) {
	o.w.tb.Helper()
	var err error
	if o.now, err = site.env.StartManager(ctx, site.binary, o.name, o.args...); err != nil {
		o.w.tb.Fatal(err)
	}
	ready, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := o.now.Ready(ready); err != nil {
		o.w.tb.Fatal(err)
	}
}

// kill ends the operator with SIGKILL.
func (o *operator) kill() {
	o.w.tb.Helper()
	if err := o.now.Kill(); err != nil {
		o.w.tb.Fatal(err)
	}
	o.kills++
}

// pause stops the process, as a machine does that sleeps, for a time.
func (o *operator) pause(ctx context.Context, d time.Duration) {
	o.w.tb.Helper()
	if err := o.now.Signal(syscall.SIGSTOP); err != nil {
		o.w.tb.Fatal(err)
	}
	linger(ctx, d)
	if err := o.now.Signal(syscall.SIGCONT); err != nil {
		o.w.tb.Fatal(err)
	}
}

// counter reads a counter of the operator, summed over the label sets that have the given label
// value; "" matches all.
func (o *operator) counter(ctx context.Context, name, value string) float64 {
	o.w.tb.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.now.Metrics+"/metrics", http.NoBody)
	if err != nil {
		o.w.tb.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		o.w.tb.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		o.w.tb.Fatal(err)
	}
	sum := 0.0
	for _, m := range families[name].GetMetric() {
		if value == "" || hasLabel(m, value) {
			sum += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

func hasLabel(m *dto.Metric, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetValue() == value {
			return true
		}
	}
	return false
}

// create creates runs, many at a time, and fills in what the API server says of them.
func (w *world) create(ctx context.Context, runs []*v1alpha1.WorkflowRun) {
	w.tb.Helper()
	slots := make(chan struct{}, createAtATime)
	errs := make(chan error, len(runs))
	var wg sync.WaitGroup
	for _, run := range runs {
		run.Namespace, run.Spec.WorkloadClass = w.namespace, w.class
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs <- site.k8s.Create(ctx, run)
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			w.tb.Fatal(err)
		}
	}
}

// runs reads all runs of this world, live.
func (w *world) runs(ctx context.Context) []v1alpha1.WorkflowRun {
	w.tb.Helper()
	var list v1alpha1.WorkflowRunList
	if err := site.k8s.List(ctx, &list, client.InNamespace(w.namespace)); err != nil {
		w.tb.Fatal(err)
	}
	return list.Items
}

// run reads one run of this world, live.
func (w *world) run(ctx context.Context, name string) *v1alpha1.WorkflowRun {
	w.tb.Helper()
	run := &v1alpha1.WorkflowRun{}
	if err := site.k8s.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, run); err != nil {
		w.tb.Fatal(err)
	}
	return run
}

// stream reads the state of a stream; the zero value while NATS or the stream is away.
func (w *world) stream(ctx context.Context, name string) (jetstream.StreamState, error) {
	s, err := w.js.Stream(ctx, name)
	if err != nil {
		return jetstream.StreamState{}, fmt.Errorf("stream %s: %w", name, err)
	}
	return s.CachedInfo().State, nil
}

// deliveries sums how often the consumers of results delivered a message, by their own count.
func (w *world) deliveries(ctx context.Context) (uint64, error) {
	sum := uint64(0)
	for i := range protocol.Partitions {
		c, err := w.js.Consumer(ctx, w.names.ResultsStream(), fmt.Sprintf("%s-results-p%02d", w.names.Prefix, i))
		if err != nil {
			return 0, fmt.Errorf("consumer %d of results: %w", i, err)
		}
		sum += c.CachedInfo().Delivered.Consumer
	}
	return sum, nil
}

// expectSettled waits until no result is left in the stream: each was acknowledged, or put aside.
func (w *world) expectSettled(ctx context.Context, patience time.Duration) {
	w.tb.Helper()
	await(ctx, w.tb, patience, "all results are settled", func() string {
		state, err := w.stream(ctx, w.names.ResultsStream())
		switch {
		case err != nil:
			return err.Error()
		case state.Msgs > 0:
			return fmt.Sprintf("%d are left; %s", state.Msgs, w.describe(ctx, state.FirstSeq))
		default:
			return ""
		}
	})
}

// describe says where a result is, and what its consumer makes of it.
func (w *world) describe(ctx context.Context, seq uint64) string {
	s, err := w.js.Stream(ctx, w.names.ResultsStream())
	if err != nil {
		return err.Error()
	}
	msg, err := s.GetMsg(ctx, seq)
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("the first has number %d, since %s: %s", msg.Sequence, msg.Time.Format(time.TimeOnly), msg.Subject)
	for i := range protocol.Partitions {
		c, err := s.Consumer(ctx, fmt.Sprintf("%s-results-p%02d", w.names.Prefix, i))
		if err != nil {
			return text + "; " + err.Error()
		}
		if info := c.CachedInfo(); info.NumAckPending > 0 || info.NumPending > 0 || strings.Contains(msg.Subject, fmt.Sprintf(".results.%02d.", i)) {
			text += fmt.Sprintf("; partition %d: delivered up to %d, acked up to %d, %d unacked, %d pending, %d pulls",
				i, info.Delivered.Stream, info.AckFloor.Stream, info.NumAckPending, info.NumPending, info.NumWaiting)
		}
	}
	return text
}

// expectDeadLetters says how many messages were put aside.
func (w *world) expectDeadLetters(ctx context.Context, want uint64) {
	w.tb.Helper()
	state, err := w.stream(ctx, w.names.DeadLettersStream())
	if err != nil {
		w.tb.Fatal(err)
	}
	if state.Msgs != want {
		w.tb.Errorf("%d dead letters, want %d", state.Msgs, want)
	}
}

// await looks until a condition holds, that is until what is missing is "".
func await(ctx context.Context, tb testing.TB, patience time.Duration, what string, missing func() string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		is := missing()
		if is == "" {
			return
		}
		select {
		case <-ctx.Done():
			tb.Fatalf("not within %s: %s: %s", patience, what, is)
		case <-tick.C:
		}
	}
}

// linger is a part of the workload: a handler that takes its time, a machine that sleeps.
func linger(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func tail(path string, n int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.ToValidUTF8(string(text[max(0, len(text)-n):]), "")
}

// deleteRuns deletes all runs and waits until they are gone.
func (w *world) deleteRuns(ctx context.Context, patience time.Duration) {
	w.tb.Helper()
	if err := site.k8s.DeleteAllOf(ctx, &v1alpha1.WorkflowRun{}, client.InNamespace(w.namespace)); err != nil {
		w.tb.Fatal(err)
	}
	await(ctx, w.tb, patience, "all runs are gone", func() string {
		if n := len(w.runs(ctx)); n > 0 {
			return fmt.Sprintf("%d are left", n)
		}
		return ""
	})
}

// follow begins a history that ends with the test.
func (w *world) follow(ctx context.Context, see func(was, next *v1alpha1.WorkflowRun, at time.Time)) *book.History {
	w.tb.Helper()
	h, stop, err := book.Follow(ctx, site.k8s, w.namespace, see)
	if err != nil {
		w.tb.Fatal(err)
	}
	w.tb.Cleanup(stop)
	return h
}
