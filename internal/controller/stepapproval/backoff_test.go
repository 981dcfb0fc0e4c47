// SPDX-License-Identifier: Apache-2.0

package stepapproval

import (
	"context"
	"errors"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A webhook refuses the owner of each decision, and each look has to wait for its turn before. The
// queue counts all errors, so the waits grow.
//
// mutations: Reconcile that does not say that it is in line, SetupWithManager with another limiter.
func TestTheWaitOfARefusedDecisionGrowsWithTurnsInBetween(t *testing.T) {
	const decisions, patches = 4, 20
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: server.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)}, // for -count=2
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	refused, counted, waited := map[types.NamespacedName]int{}, make(chan int, 1), map[types.NamespacedName]bool{}
	r := &Reconciler{Live: w.client}
	r.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
			mu.Lock()
			defer mu.Unlock()
			refused[client.ObjectKeyFromObject(o)]++
			all, errorsInARow := 0, 0
			for key, n := range refused {
				all += n
				errorsInARow += (*r.queue.Load()).NumRequeues(reconcile.Request{NamespacedName: key})
			}
			if all == patches {
				counted <- errorsInARow
			}
			return errors.New("a webhook refuses it")
		},
	})
	r.Turn = func(key types.NamespacedName) (func(), bool) {
		mu.Lock()
		defer mu.Unlock()
		if key.Namespace != w.ns {
			return func() {}, true // of other tests
		}
		if waited[key] = !waited[key]; waited[key] {
			r.Wake(key)
		}
		return func() {}, !waited[key]
	}
	if err := r.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	run := w.run("report")
	for range decisions {
		w.decide("report", string(run.UID))
	}
	if got := <-counted; got < patches-(AtOnce+1) { // those that are under way are not counted yet
		t.Errorf("the queue knows of %d errors of %d", got, patches)
	}
}
