// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	w.boss.looksLong()
	w.boss.wakes("last")
	w.boss.asks(last, true)
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
