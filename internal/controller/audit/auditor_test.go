// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/syncopate-dev/syncopate/internal/audit"
	"github.com/syncopate-dev/syncopate/internal/audit/stores"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

func TestMain(m *testing.M) {
	if natstest.Main() {
		return
	}
	goleak.VerifyTestMain(m, natstest.Leaks()...)
}

// world is an auditor with no runs, on real NATS and Redis.
type world struct {
	*Auditor

	clock    *clocktesting.FakeClock
	registry *prometheus.Registry
	told     *events.FakeRecorder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme, err := testenv.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := lockmgr.NewClient(lockmgr.ClientConfig{Addrs: []string{redistest.Start(t).Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	api := fake.NewClientBuilder().WithScheme(scheme).Build()
	w := &world{clock: clocktesting.NewFakeClock(time.Now()), registry: prometheus.NewRegistry(), told: events.NewFakeRecorder(10)}
	conn := bustest.Connect(t, bus.Config{URL: natstest.Start(t).URL()})
	bustest.Eventually(t, "streams", func() bool { return conn.EnsureStreams(t.Context()) == nil })
	w.Auditor = &Auditor{
		Stores: &stores.Stores{API: api, Redis: c, Quota: store.New(c, store.Options{}), NATS: conn, Clock: w.clock},
		Live:   api, Client: api, Namespace: "syncopate-system", Events: w.told, Clock: w.clock, Log: logr.Discard(), Metrics: NewMetrics(w.registry),
	}
	return w
}

// step lets the time of a wait pass.
func (w *world) step(t *testing.T, d time.Duration) {
	t.Helper()
	bustest.Eventually(t, "it waits", w.clock.HasWaiters)
	w.clock.Step(d)
}

func (w *world) status(t *testing.T) (s Status) {
	t.Helper()
	object := &corev1.ConfigMap{}
	if err := w.Live.Get(t.Context(), client.ObjectKey{Namespace: "syncopate-system", Name: ObjectName}, object); err != nil {
		return s
	}
	if err := json.Unmarshal([]byte(object.Data["audit.json"]), &s); err != nil || object.Data["consistent"] != string(s.Consistent) {
		t.Errorf("%v: %v", err, object.Data)
	}
	return s
}

func (w *world) gauge(t *testing.T, k audit.Kind) float64 {
	t.Helper()
	return testutil.ToFloat64(w.Metrics.findings.WithLabelValues(string(k)))
}

// mutation: an Auditor that tells what one look found, keeps its figures at its end, or does not
// write its object again, makes this fail.
func TestAuditor_AuditsAtItsPaceAndTells(t *testing.T) {
	w := newWorld(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Start(ctx) }()
	w.step(t, firstAfter)
	bustest.Eventually(t, "the first audit", func() bool { return w.status(t).Consistent == "Unknown" }) // Redis is empty: closed

	id := bustest.JobID(1)
	bustest.PublishRaw(t, w.Stores.NATS, w.Stores.NATS.Names.Job("t", id), "{}")
	w.step(t, every)
	w.step(t, stores.Pause)
	bustest.Eventually(t, "the second audit", func() bool { return w.status(t).Consistent == "False" })
	if s := w.status(t); s.Total != 1 || s.Findings[0].Kind != audit.JobLeft || len(s.Unread) == 0 {
		t.Errorf("%+v", s)
	}
	if e := <-w.told.Events; !strings.Contains(e, "StoresDiffer") || !strings.Contains(e, "JobLeft 1") {
		t.Error(e)
	}
	if n := w.gauge(t, audit.JobLeft); n != 1 {
		t.Errorf("the gauge is %v", n)
	}
	stop()
	if err := <-done; err != nil || w.gauge(t, audit.JobLeft) != 0 {
		t.Errorf("%v, and the gauge is %v", err, w.gauge(t, audit.JobLeft))
	}
}

// mutation: statusOf without its bound makes this fail.
func TestStatusOf(t *testing.T) {
	many := stores.Report{Findings: make([]audit.Finding, maxKept+1)}
	if s := statusOf(many, nil); s.Consistent != "False" || s.Total != maxKept+1 || len(s.Findings) != maxKept {
		t.Errorf("%s, %d of %d", s.Consistent, len(s.Findings), s.Total)
	}
	if s := statusOf(stores.Report{}, nil); s.Consistent != "True" {
		t.Error(s.Consistent)
	}
	kept := map[audit.Kind]int{audit.JobLeft: 1}
	if s := statusOf(stores.Report{Unread: map[audit.Part]string{audit.Runs: "no"}}, kept); s.Consistent != "Unknown" || s.Kept[audit.JobLeft] != 1 {
		t.Errorf("%+v", s)
	}
}
