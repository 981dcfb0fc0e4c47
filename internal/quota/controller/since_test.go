// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// one is the name of the Redis that all use.
type one struct{}

func (one) Name() string { return "one" }

func (one) Named(string) (use int64, err error) { return 1, nil }

// movedAt starts a process that knows of a move at that time: data of before counts as lost.
func (w *world) movedAt(since int64) *instance {
	w.t.Helper()
	return w.instanceOf("ours", func(o *store.Options) {
		o.Naming = one{}
		o.Since = func(context.Context, string, int64) (int64, error) { return since, nil }
	})
}

// soon makes a call that may find data closed, and what the leader does after each.
func (w *world) soon(what string, call func() (done bool, err error)) {
	w.t.Helper()
	var err error
	for range 5 {
		var done bool
		if done, err = call(); done && err == nil {
			return
		}
		if err != nil && !isClosed(err) {
			w.t.Fatalf("%s: %v", what, err)
		}
		if w.boss.quota.wanted(w.ctx()) {
			w.boss.looks()
		}
	}
	w.t.Fatalf("%s: never: %v", what, err)
}

// One process alone knows of a move to another Redis, as where the Lease that notes it was deleted
// and that process began last. Data of before is open to the leader, which sees nothing to rebuild.
//
// mutations: wish that leaves an older register as it is, and toldOf that leaves an older key, make
// this fail.
func TestWhoAloneKnowsOfAMoveHasAllCountedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		total    int32
		tenant   string
		register bool // it is lost alone, and counted since
	}{
		"slots of all tenants together":                 {total: 2, tenant: tenant},
		"slots of all together, and nothing else":       {total: 2, tenant: tenant, register: true},
		"slots of a tenant":                             {tenant: tenant},
		"slots of a tenant, and nothing else":           {tenant: tenant, register: true},
		"slots of a tenant that nobody has heard of":    {tenant: "beta"},
		"slots of one for all, of a tenant that is new": {total: 2, tenant: "beta"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy("batch", 2)
			w.shared(c.total)
			w.boss.looks()
			w.boss.admitsOf(w.of(tenant, "a"))
			now, err := w.redis.Time(w.ctx()).Result()
			must(t, err)
			if c.register {
				must(t, w.redis.Del(w.ctx(), registerKey).Err())
				w.boss.looks()
			}
			other := w.movedAt(now.UnixMilli() + 1)
			takes := func(of, name string) {
				run := w.of(of, name)
				w.soon("a slot for "+name, func() (bool, error) {
					run = w.get(name) // it may have been marked
					got, err := other.Admit(w.ctx(), run, of, w.effective("batch"))
					return got.Admitted, err
				})
				w.write(run, func(st *v1alpha1.WorkflowRunStatus) { admittedUnder("batch")(st); st.Tenant = of })
			}
			takes(c.tenant, "b")
			if c.total == 0 && c.tenant != tenant { // acme has a slot left
				takes(tenant, "b2")
			}
			other.asksOf(w.of(tenant, "c"), false)
			w.boss.asksOf(w.of(tenant, "d"), false)
		})
	}
}
