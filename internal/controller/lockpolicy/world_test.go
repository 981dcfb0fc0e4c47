// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientevents "k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// server is the API server that all tests share; each begins with no policies and no runs.
var server testenv.Shared

func TestMain(m *testing.M) { server.Main(m) }

// world is a reconciler on the API server, driven by hand.
type world struct {
	t       *testing.T
	client  client.WithWatch // writes are not counted
	clock   *clocktesting.FakePassiveClock
	metrics *testMetrics
	r       *Reconciler
	writes  atomic.Int64 // tries of r to write a status
	counted client.Client
	lives   int // of the process
	// beforeWrite, if set, is called before each of them.
	beforeWrite func(o client.Object)
	// crash, if set, is asked before and after each write of r; an error is what r gets.
	crash func(after bool) error
	// refuse, if set, is what r gets when it makes a ControllerRevision.
	refuse error
	told   *clientevents.FakeRecorder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := server.Client(t)
	for _, o := range []client.Object{&v1alpha1.LockPolicy{}, &v1alpha1.WorkflowRun{}, &appsv1.ControllerRevision{}} {
		if err := c.DeleteAllOf(t.Context(), o, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, client: c, clock: clocktesting.NewFakePassiveClock(time.Now()), metrics: newTestMetrics()}
	counted := interceptor.NewClient(c, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			w.writes.Add(1)
			if w.beforeWrite != nil {
				w.beforeWrite(o)
			}
			return w.crashing(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*appsv1.ControllerRevision); ok && w.refuse != nil {
				return w.refuse
			}
			return w.crashing(func() error { return c.Create(ctx, o, opts...) })
		},
	})
	w.counted, w.told = counted, clientevents.NewFakeRecorder(1000)
	w.restart()
	return w
}

// restart is the end of a process, and another: what it counted is gone but for what is stored.
func (w *world) restart() {
	w.lives++
	w.r = &Reconciler{
		Client: w.counted, Live: w.client, Clock: w.clock, Metrics: w.metrics.registry, Events: w.told,
		Ballots: ballot.NewBox(nil, nil), Process: fmt.Sprint("operator/", w.lives), Namespace: "default",
	}
}

func (w *world) crashing(write func() error) error {
	if w.crash == nil {
		return write()
	}
	if err := w.crash(false); err != nil {
		return err
	}
	if err := write(); err != nil {
		return err
	}
	return w.crash(true)
}

// try is one pass.
func (w *world) try() (reconcile.Result, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	return w.r.Reconcile(ctx, all)
}

// pass is one pass that goes well: it comes again for the next refresh.
func (w *world) pass() {
	w.t.Helper()
	res, err := w.try()
	if err != nil || res.RequeueAfter <= 0 || res.RequeueAfter > refreshEvery {
		w.t.Fatalf("reconcile: %+v, %v", res, err)
	}
}

// refresh passes once more when the figures are due.
func (w *world) refresh() {
	w.t.Helper()
	w.clock.SetTime(w.clock.Now().Add(refreshEvery))
	w.pass()
}

func (w *world) create(name string, classes ...string) *v1alpha1.LockPolicy {
	w.t.Helper()
	p := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.LockPolicySpec{WorkloadClasses: classes}}
	if err := w.client.Create(w.t.Context(), p); err != nil {
		w.t.Fatalf("create policy %s: %v", name, err)
	}
	return p
}

func (w *world) get(name string) *v1alpha1.LockPolicy {
	w.t.Helper()
	p := &v1alpha1.LockPolicy{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Name: name}, p); err != nil {
		w.t.Fatalf("get policy %s: %v", name, err)
	}
	return p
}

// status is the status of a policy, which must be there and of its generation.
func (w *world) status(name string) *v1alpha1.LockPolicyStatus {
	w.t.Helper()
	p := w.get(name)
	if p.Status == nil || p.Status.ObservedGeneration != p.Generation {
		w.t.Fatalf("status of policy %s, generation %d: %+v", name, p.Generation, p.Status)
	}
	return p.Status
}

func (w *world) list() []v1alpha1.LockPolicy {
	w.t.Helper()
	var l v1alpha1.LockPolicyList
	if err := w.client.List(w.t.Context(), &l); err != nil {
		w.t.Fatal(err)
	}
	return l.Items
}

// expect compares what the conditions of all policies say.
func (w *world) expect(want map[string]verdict) {
	w.t.Helper()
	got := map[string]verdict{}
	for _, p := range w.list() {
		ready := meta.FindStatusCondition(w.status(p.Name).Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.ObservedGeneration != p.Generation {
			w.t.Fatalf("policy %s: %+v", p.Name, p.Status)
		}
		got[p.Name] = verdict{ready.Status, ready.Reason, ready.Message}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func (w *world) versions() map[string]string {
	w.t.Helper()
	v := map[string]string{}
	for _, p := range w.list() {
		v[p.Name] = p.ResourceVersion
	}
	return v
}

// testMetrics stand in for those of internal/lockmgr; TestMetricsOfLockmgr says that
// they are alike.
type testMetrics struct {
	registry    *prometheus.Registry
	busyRetries *prometheus.CounterVec
	wait        *prometheus.HistogramVec
}

func newTestMetrics() *testMetrics {
	m := &testMetrics{
		registry:    prometheus.NewRegistry(),
		busyRetries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: busyRetriesMetric}, []string{"path", "class", "policy"}),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: lockWaitMetric, Buckets: []float64{0.1, 0.2, 0.4},
		}, []string{"path", "policy", "outcome"}),
	}
	m.registry.MustRegister(m.busyRetries, m.wait)
	return m
}

func (m *testMetrics) busy(policy, path string, n int) {
	m.busyRetries.WithLabelValues(path, "lock_busy", policy).Add(float64(n))
}

func (m *testMetrics) waited(policy, path, outcome string, n int, d time.Duration) {
	for range n {
		m.wait.WithLabelValues(path, policy, outcome).Observe(d.Seconds())
	}
}
