// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// The values are what histogram_quantile(0.95, ...) of PromQL gives.
//
// mutation: an upper bound instead of the interpolation, or a rank within the bucket that forgets
// the buckets below, makes this fail.
func TestQuantile(t *testing.T) {
	inf := math.Inf(1)
	tests := map[string]struct {
		b    buckets
		want float64
	}{
		"nothing observed":                          {buckets{}, 0},
		"nothing in any bucket":                     {buckets{1: 0, 2: 0, inf: 0}, 0},
		"all in the first bucket":                   {buckets{1: 100, 2: 100, inf: 100}, 0.95},
		"one observation":                           {buckets{1: 0, 2: 1, inf: 1}, 1.95},
		"within a later bucket":                     {buckets{1: 50, 2: 90, 4: 100, inf: 100}, 3},
		"at the very end of a bucket":               {buckets{1: 95, 2: 100, inf: 100}, 1},
		"empty buckets between":                     {buckets{1: 10, 2: 10, 4: 10, 8: 20, inf: 20}, 7.6},
		"above all bounds counts as the highest":    {buckets{1: 10, 2: 10, inf: 100}, 2},
		"everything above all bounds, too":          {buckets{1: 0, 2: 0, inf: 7}, 2},
		"a histogram without bounds says nothing":   {buckets{inf: 7}, 0},
		"a rank just within the highest bound is 2": {buckets{1: 0, 2: 95, inf: 100}, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.b.quantile(0.95); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("p95 is %v; want %v", got, test.want)
			}
		})
	}
}

// The names and labels of the metrics are those that internal/lockmgr exports.
//
// mutation: another name of either metric, of its label, or of the outcome, on either side,
// makes this fail.
func TestMetricsOfLockmgr(t *testing.T) {
	client, err := lockmgr.NewClient(lockmgr.ClientConfig{Addrs: []string{miniredis.RunT(t).Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	metrics := lockmgr.NewMetrics(registry, nil)
	locks := lockmgr.New(client, lockmgr.Options{Metrics: metrics})
	for _, run := range []string{"a", "b"} {
		request := lockmgr.Request{RunUID: run, Policy: policy.Defaults().RunLock, PolicyName: "batch", Path: "result"}
		lease, err := locks.Acquire(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		lease.Drop(t.Context())
	}
	metrics.BusyRetry("reconcile", "lock_busy", "batch", false, time.Second)
	metrics.BusyRetry("result", "lock_busy", "batch", true, time.Second)
	metrics.BusyRetry("result", "lock_busy", "batch", true, time.Second)
	metrics.BusyRetry("admission", "lock_busy", "batch", true, time.Second)

	waits, err := readWaits(registry)
	if err != nil {
		t.Fatal(err)
	}
	got := map[v1alpha1.LockPath]float64{}
	for path, w := range waits["batch"] {
		got[path] = w.busyRetries
	}
	want := map[v1alpha1.LockPath]float64{v1alpha1.PathReconcile: 1, v1alpha1.PathResult: 2, v1alpha1.PathAdmission: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("busy retries (-want +got):\n%s", diff)
	}
	if a := waits["batch"][v1alpha1.PathResult].acquired; a[math.Inf(1)] != 2 || a.quantile(0.95) <= 0 || a.quantile(0.95) > 20 {
		t.Errorf("read %+v; want 2 waits", a)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := locks.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}
