// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Dead letters and conditions call the same thing by the same name. mutation: another name on
// either side makes this fail.
func TestDeadLettersHaveTheReasonsOfTheCondition(t *testing.T) {
	for letter, condition := range map[string]string{
		deadletters.ReasonResultRejected: v1alpha1.ReasonResultRejected, deadletters.ReasonDeliveriesExhausted: v1alpha1.ReasonDeliveriesExhausted,
	} {
		if letter != condition {
			t.Errorf("the dead letter says %s, the condition %s", letter, condition)
		}
	}
}

// mutation: every answer a refusal, or none, makes this fail: an outage would make dead letters, or
// a refusal never would.
func TestOutage(t *testing.T) {
	group := schema.GroupResource{Resource: "workflowruns"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nobody answers":                   {&net.OpError{Op: "dial", Err: errTest}, true},
		"the pass took too long":           {context.DeadlineExceeded, true},
		"the lease was lost":               {context.Canceled, true},
		"too many requests":                {apierrors.NewTooManyRequests("slow down", 1), true},
		"the server is going down":         {apierrors.NewServiceUnavailable("x"), true},
		"the server's own time-out":        {apierrors.NewTimeoutError("x", 1), true},
		"etcd or a webhook is broken":      {apierrors.NewInternalError(errTest), true},
		"credentials that are not yet new": {apierrors.NewUnauthorized("x"), true},
		"an answer without a code":         {&apierrors.StatusError{}, true},
		"a rule of the CRD":                {apierrors.NewInvalid(schema.GroupKind{}, "x", nil), false},
		"an admission policy":              {apierrors.NewForbidden(group, "x", errTest), false},
		"a body that is no object":         {apierrors.NewBadRequest("x"), false},
		"a body too large":                 {apierrors.NewRequestEntityTooLargeError("x"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := outage(fmt.Errorf("write status: %w", c.err)); got != c.want {
				t.Errorf("outage is %t", got)
			}
		})
	}
}

// The contract across the packages: an error that the lock manager or this package made, through a
// chain of %w, to the bus, a real server, and back not before its time.
//
// mutation: %v in the chain (the default of 2 s comes, and class unknown), or again without
// RetryDelay, makes this fail.
func TestADelayArrivesAsTheLockManagerOrTheControllerAskedForIt(t *testing.T) {
	registry := prometheus.NewRegistry()
	consumer, js := startConsumer(t, registry)
	locks := busyLocks(t)
	asked := map[protocol.JobID]time.Duration{}
	errs := map[protocol.JobID]error{}
	for i, d := range []time.Duration{0, 350 * time.Millisecond, 500 * time.Millisecond, 650 * time.Millisecond, 2 * time.Second} {
		lock := policy.Defaults().RunLock
		lock.BusyRetry = policy.BusyRetry{Fixed: true, Delay: d}
		_, busy := locks.Acquire(t.Context(), lockmgr.Request{RunUID: "run", Policy: lock})
		if !errors.As(busy, new(*lockmgr.BusyError)) {
			t.Fatalf("the lock is not busy: %v", busy)
		}
		under := policy.Effective{RunLock: lock}
		batch := (&results.Batches{Inbox: results.NewInbox(1, 1), Clock: clock.RealClock{}}).Of(&v1alpha1.WorkflowRun{}, 0, false)
		batch.Under(under)
		session := leases.New(leases.Options{Rand: func() float64 { return 0.5 }}).Session(&leases.State{}, types.NamespacedName{}, "run", under)
		for k, err := range []error{
			fmt.Errorf("take the lock: %w", errors.Join(errTest, busy)),
			fmt.Errorf("apply: %w", batch.GiveBack(&results.Pending{}, session.Wait(bus.ClassLockBusy), bus.ClassLockBusy, errTest).As),
		} {
			id := protocol.JobID{RunUID: fmt.Sprintf("run-%d-%d", i, k), Step: "s", Item: protocol.NoItem, Attempt: 1}
			asked[id], errs[id] = d, err
		}
	}
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	for id := range errs {
		m := nats.NewMsg(names.Result(id))
		m.Data = []byte(succeeded(id))
		m.Header.Set(protocol.HeaderToken, testKeys.Sign(id))
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for id, gap := range gaps(t, consumer, errs) {
		if gap < asked[id] {
			t.Errorf("%s: asked for %s, came after %s (%v)", id, asked[id], gap, errs[id])
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted, sums := map[string]uint64{}, map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				counted[f.GetName()+" "+m.GetLabel()[0].GetValue()] = h.GetSampleCount()
				sums[f.GetName()] += h.GetSampleSum()
			}
		}
	}
	want := map[string]uint64{
		"syncopate_retry_delay_seconds lock_busy": 10, "syncopate_redelivery_asked_seconds lock_busy": 10, "syncopate_redelivery_gap_seconds lock_busy": 10,
	}
	if diff := cmp.Diff(want, counted); diff != "" {
		t.Errorf("delays by class (-want +got):\n%s", diff)
	}
	// A gap may be longer on a slow machine; what the server was asked for may not.
	for _, asked := range []string{"syncopate_retry_delay_seconds", "syncopate_redelivery_asked_seconds"} {
		if got := sums[asked]; math.Abs(got-2*(0.35+0.5+0.65+2)) > 0.001 {
			t.Errorf("%s: the delays asked for are %.3f s together, want 7", asked, got)
		}
	}
}

// gaps settles the first delivery of each result with its error, and measures until the second.
func gaps(t *testing.T, c *busresults.Consumer, errs map[protocol.JobID]error) map[protocol.JobID]time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var mu sync.Mutex
	settledAt, measured := map[protocol.JobID]time.Time{}, map[protocol.JobID]time.Duration{}
	err := c.Consume(ctx, func(ctx context.Context, d *busresults.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		at, second := settledAt[d.ID]
		if !second {
			settledAt[d.ID] = time.Now()
			_ = d.Settle(ctx, errs[d.ID]) // if the NAK is lost, AckWait shows as a longer gap
			return
		}
		measured[d.ID] = time.Since(at)
		_ = d.Settle(ctx, nil)
		if len(measured) == len(errs) {
			cancel()
		}
	})
	if err != nil {
		t.Errorf("consume: %v", err)
	}
	if len(measured) != len(errs) {
		t.Fatalf("%d of %d came again", len(measured), len(errs))
	}
	return measured
}

// startConsumer makes a consumer on a server of its own, and a worker's connection.
func startConsumer(t *testing.T, registry *prometheus.Registry) (*busresults.Consumer, jetstream.JetStream) {
	t.Helper()
	s := natstest.Start(t)
	b, err := bus.Connect(t.Context(), bus.Config{URL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close(context.WithoutCancel(t.Context())) })
	nc, err := nats.Connect(s.URL(), natstest.Patient())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ready := func(ctx context.Context) (bool, error) { return b.EnsureStreams(ctx) == nil, nil }
	if err := wait.PollUntilContextTimeout(t.Context(), polling, patience, true, ready); err != nil {
		t.Fatalf("no streams: %v", err)
	}
	ring, err := keys.New(testKeys, nil, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	c := busresults.NewConsumer(b, ring, deadletters.NewWriter(b), busresults.Options{Metrics: busresults.NewMetrics(registry)})
	c.Follow(protocol.AllPartitions()...)
	return c, js
}

// busyLocks is a lock manager whose run's lock is somebody else's.
func busyLocks(t *testing.T) *lockmgr.Manager {
	t.Helper()
	s := redistest.Start(t)
	if err := s.Client().Set(t.Context(), "{run:run}:lock", "somebody-else", 0).Err(); err != nil {
		t.Fatal(err)
	}
	client, err := lockmgr.NewClient(lockmgr.ClientConfig{Addrs: []string{s.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	m := lockmgr.New(client, lockmgr.Options{Holder: "me", Metrics: lockmgr.NewMetrics(prometheus.NewRegistry(), nil)})
	t.Cleanup(func() {
		_ = m.Close(context.WithoutCancel(t.Context()))
		_ = client.Close()
	})
	return m
}
