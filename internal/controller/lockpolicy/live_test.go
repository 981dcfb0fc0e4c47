// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// inForceWithin ends a test of what comes within two seconds on a machine that does nothing else.
const inForceWithin = 30 * time.Second

// A run's pass lists the policies in the cache and takes its lock by policy.Resolve; so does this
// test. Usually the cache follows within milliseconds.
func TestAChangedPolicyGovernsTheNextTake(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	c, err := cache.New(server.Config, cache.Options{Scheme: server.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	informer, err := c.GetInformer(ctx, &v1alpha1.LockPolicy{})
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { signal() }, UpdateFunc: func(any, any) { signal() }, DeleteFunc: func(any) { signal() },
	}); err != nil {
		t.Fatal(err)
	}
	if !c.WaitForCacheSync(ctx) { // also waits for the start
		t.Fatal("the cache is not in step")
	}
	governs := func(want string, ttl time.Duration) {
		t.Helper()
		written := time.Now()
		for {
			var l v1alpha1.LockPolicyList
			if err := c.List(ctx, &l); err != nil {
				t.Fatal(err)
			}
			got := policy.Resolve("web", l.Items)
			if got.Name == want && got.RunLock.TTL == ttl {
				t.Logf("in force after %s", time.Since(written))
				return
			}
			select {
			case <-changed:
			case <-time.After(inForceWithin - time.Since(written)):
				t.Fatalf("%s after the write the class is governed by %q with a TTL of %s; want %q and %s",
					inForceWithin, got.Name, got.RunLock.TTL, want, ttl)
			}
		}
	}

	governs("", 30*time.Second)
	p := w.create("a", "*")
	governs("a", 30*time.Second)
	p.Spec.RunLock.TTLSeconds = 60
	if err := w.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	governs("a", time.Minute)
	w.create("b", "web")
	governs("b", 30*time.Second)
	if err := w.client.DeleteAllOf(t.Context(), &v1alpha1.LockPolicy{}); err != nil {
		t.Fatal(err)
	}
	governs("", 30*time.Second)
}

// The wiring: events wake the controller, which reads from the cache, and the cache's runs survive
// that they are not copied. Deletes of runs are kept.
//
// mutation: a controller that does not watch runs makes this fail.
func TestTheControllerFollowsEvents(t *testing.T) {
	w := newWorld(t)
	w.run("web", nil)
	ctx, cancel := context.WithCancel(t.Context())
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: server.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)}, // for -count=2
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Client: mgr.GetClient(), Clock: w.clock, Metrics: w.metrics.registry, Ballots: w.r.Ballots}
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

	p := w.create("a", "web")
	w.awaitStatus("a", func(s *v1alpha1.LockPolicyStatus) bool {
		return s.ObservedGeneration == 1 && s.Effective.Classes == "web" && s.Runs != nil && s.Runs.Queued == 1
	})
	p.Spec.WorkloadClasses = []string{"shop"}
	if err := w.client.Update(t.Context(), p); err == nil {
		t.Error("a write with the version from before the status was accepted")
	}
	p = w.get("a")
	p.Spec.WorkloadClasses = []string{"shop"}
	if err := w.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	w.awaitStatus("a", func(s *v1alpha1.LockPolicyStatus) bool {
		return s.ObservedGeneration == 2 && s.Effective.Classes == "shop" && s.Runs.Queued == 0
	})
	run := w.begins(rollout.Canary, "77aa-1", new(metav1.Now()))
	if err := w.client.Delete(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, inForceWithin, true, func(context.Context) (bool, error) {
		return len(r.deleted.lately(w.clock.Now())) == 1, nil
	}); err != nil {
		t.Error("nobody was told that a run was deleted which had ended")
	}
}

// awaitStatus watches a policy until its status is as wanted.
func (w *world) awaitStatus(name string, wanted func(*v1alpha1.LockPolicyStatus) bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	events, err := w.client.Watch(ctx, &v1alpha1.LockPolicyList{}, client.MatchingFields{"metadata.name": name})
	if err != nil {
		w.t.Fatal(err)
	}
	defer events.Stop()
	var last *v1alpha1.LockPolicyStatus
	for e := range events.ResultChan() {
		p, ok := e.Object.(*v1alpha1.LockPolicy)
		if !ok || e.Type == watch.Deleted {
			continue
		}
		if last = p.Status; last != nil && wanted(last) {
			return
		}
	}
	w.t.Fatalf("status of policy %s is %+v", name, last)
}
