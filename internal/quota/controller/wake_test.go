// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// options is a cache that notes how it is read.
type options struct {
	client.Client // none: nothing else may be asked
	of            []client.GetOption
}

func (o *options) Get(_ context.Context, _ client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	into.SetUID("u")
	o.of = opts
	return nil
}

// A run may have 1.5 MiB, and each that is woken is read from the cache.
//
// mutation: a read of the cache with a copy makes this fail.
func TestWhoIsWokenIsReadWithoutACopy(t *testing.T) {
	cache := &options{}
	k := &Controller{client: cache}
	there, err := k.exists(t.Context(), types.NamespacedName{Namespace: "default", Name: "a"}, "u")
	if err != nil || !there || !slices.Contains(cache.of, client.GetOption(client.UnsafeDisableDeepCopy)) {
		t.Errorf("there: %t, %v; read with %v", there, err, cache.of)
	}
}

// A tenant deleted hundreds of runs that waited. The end of one run does not look at all of them:
// it asks for a resync, which finds them with one list.
//
// mutations: wakeNext without a bound, or without the question for a resync, makes this fail, as
// does one that asks the resync of its own process only.
func TestWhereVeryManyAreGoneTheResyncWakesWhoIsNext(t *testing.T) {
	const gone = mostLooks + 20
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	in := w.boss.admits(w.run("in"))
	for i := range gone {
		ghost := store.Run{UID: fmt.Sprint("ghost-", i), Name: "default/ghost", Priority: 9}
		_, err := w.boss.quota.Admit(w.ctx(), store.Key{Policy: "batch", Tenant: tenant}, store.Limits{Max: 1}, tenant, ghost)
		must(t, err)
	}
	last := w.run("last")
	w.boss.asks(last, false)
	in = w.write(in, ended)
	before, other := w.boss.calls.of("get"), w.instance()
	w.boss.kicks.Begin()
	w.boss.releases(in)
	if n := w.boss.calls.of("get") - before; n > mostLooks {
		t.Errorf("%d runs are looked at", n)
	}
	w.boss.wakes()
	if len(w.boss.kicks.News()) != 1 || !other.quota.wanted(w.ctx()) {
		t.Error("no resync is asked for")
	}
	w.boss.looks()
	w.boss.wakes("last")
	w.boss.asks(last, true)
}

// The slots of a pool are given to those who wait, whether they exist or not.
//
// mutation: gone that waits until somebody is unknown for a while makes this fail: each of them
// is looked at.
func TestWhereVeryManyThatWaitForAPoolAreGoneTheyAreFoundWithOneList(t *testing.T) {
	const ghosts = 1000
	w := newWorld(t)
	w.policy("batch", 300)
	w.shared(300)
	w.boss.looks()
	for i := range 300 {
		w.boss.asksOf(w.ghost(fmt.Sprint("in-", i), 1), true)
	}
	for i := range ghosts {
		w.boss.asksOf(w.ghost(fmt.Sprint("ghost-", i), 9), false)
	}
	last := w.of(tenant, "last")
	w.boss.asksOf(last, false)
	before := w.boss.calls.of("get")
	w.boss.looks()
	if n := w.boss.calls.of("get") - before; n > mostLooks {
		t.Errorf("%d runs are looked at", n)
	}
	w.boss.wakes("last")
	w.boss.asksOf(last, true)
}

// ghost is a run that does not exist any more.
func (w *world) ghost(name string, priority int32) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	run.Spec.WorkloadClass, run.Spec.Priority = "batch", priority
	run.Status = &v1alpha1.WorkflowRunStatus{Tenant: tenant}
	return run
}

// What a run that was admitted says of who is next is followed. Here the limit was taken away while
// many waited: whoever is admitted wakes the next.
//
// mutation: Admit that wakes nobody makes this fail.
func TestWhoIsAdmittedWakesTheNext(t *testing.T) {
	const waiting = 40
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	in := w.boss.admits(w.run("in"))
	names := make([]string, waiting)
	for i := range waiting {
		names[i] = fmt.Sprintf("run-%02d", i)
		w.boss.asks(w.run(names[i]), false)
	}
	w.policy("batch", waiting+1)
	w.boss.releases(w.write(in, ended))
	awake := w.boss.woke()
	if len(awake) == 0 || len(awake) >= waiting {
		t.Fatalf("the end of one wakes %d", len(awake))
	}
	for i := 0; i < len(awake); i++ {
		w.boss.admits(w.get(awake[i]))
		for _, name := range w.boss.woke() {
			if !slices.Contains(awake, name) {
				awake = append(awake, name)
			}
		}
	}
	if slices.Sort(awake); !slices.Equal(awake, names) {
		t.Errorf("awake: %v", awake)
	}
}
