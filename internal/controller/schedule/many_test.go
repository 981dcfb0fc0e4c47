// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// Schedules of the same minute have their runs within 10 s, each exactly once, by the controller as
// it is shipped: caches, index, queue. SCHEDULES=1000, or make bench-schedules, measures that.
func TestManySchedulesOfTheSameMinute(t *testing.T) {
	n := 40
	if text := os.Getenv("SCHEDULES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	r := w.operator()
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{Scheme: server.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	r.Client, r.Live = mgr.GetClient(), mgr.GetAPIReader()
	if err := r.SetupWithManager(t.Context(), mgr); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait)
	for i := range n {
		w.schedule(fmt.Sprintf("s-%d", i), nil)
	}
	w.eventually("all are seen", func() bool {
		var list v1alpha1.ScheduleList
		if err := w.client.List(t.Context(), &list, client.InNamespace(w.ns)); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if list.Items[i].Status.ObservedGeneration != 1 {
				return false
			}
		}
		return len(list.Items) == n
	})
	w.at(1, 0)
	begin := time.Now()
	for i := range n { // as their timers would
		r.waker.queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: w.ns, Name: fmt.Sprintf("s-%d", i)}})
	}
	w.eventually("all have a run", func() bool { return len(w.runs()) == n })
	took := time.Since(begin)
	t.Logf("%d runs of %d schedules were created in %v", n, n, took)
	if took > 10*time.Second*time.Duration(max(1, n/1000)) && n >= 1000 {
		t.Errorf("it took %v", took)
	}
	runs := w.runs()
	for i := range n {
		if name := fmt.Sprintf("s-%d", i); runs[schedule.RunName(name, w.slot(1))] == nil {
			t.Errorf("%s has no run", name)
		}
	}
}

func (w *world) eventually(what string, done func() bool) {
	w.t.Helper()
	for begin := time.Now(); time.Since(begin) < 5*time.Minute; {
		if done() {
			return
		}
		select {
		case <-w.t.Context().Done():
			w.t.Fatal(w.t.Context().Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	w.t.Fatalf("not true in five minutes: %s", what)
}
