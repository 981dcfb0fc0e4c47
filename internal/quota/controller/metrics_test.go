// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// shows fails the test unless these are the largest values of the gauges of tenants at any of the
// instances, by policy, tenant and what is counted, without zeros; as alerts and the dashboard ask.
func (w *world) shows(want map[string]float64, all ...*instance) {
	w.t.Helper()
	got := map[string]float64{}
	for _, k := range all {
		families, err := k.drift.Gather()
		must(w.t, err)
		for _, family := range families {
			what, is := map[string]string{"syncopate_admission_slots": " in", "syncopate_admission_queue_length": " waiting"}[family.GetName()]
			if !is {
				continue
			}
			for _, m := range family.GetMetric() {
				if name := m.GetLabel()[0].GetValue() + "/" + m.GetLabel()[1].GetValue() + what; m.GetGauge().GetValue() > got[name] {
					got[name] = m.GetGauge().GetValue()
				}
			}
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		w.t.Fatalf("gauges (-want +got):\n%s", diff)
	}
}

// One replica asks for a run that then is another's: it hears no more of the tenant.
//
// mutation: gauges that answers to questions and releases set make this fail, and so do those of a
// settle without Show.
func TestNobodyIsShownAsWaitingWhoDoesNot(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	a, b := w.boss, w.instance()
	b.looks()
	r1 := a.admits(w.run("r1"))
	r2 := w.run("r2")
	b.asks(r2, false)
	b.looks()
	w.shows(map[string]float64{"batch/acme in": 1, "batch/acme waiting": 1}, a, b)
	w.write(r1, ended)
	a.releases(r1) // r2 is in line yet
	r2 = b.admits(r2)
	b.looks()
	w.shows(map[string]float64{"batch/acme in": 1}, a, b)
	w.write(r2, ended)
	b.releases(r2)
	b.looks()
	w.shows(map[string]float64{}, a, b)
}

// mutation: answers of a pool that set the gauges make this fail, as its releases do not.
func TestNobodyOfAPoolIsShownAsWaitingWhoDoesNot(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 5)
	w.shared(1)
	w.boss.looks()
	first := w.boss.admitsOf(w.of("acme", "first"))
	waits := w.of("beta", "waits")
	w.boss.asksOf(waits, false)
	w.boss.looks()
	w.shows(map[string]float64{"batch/acme in": 1, "batch/beta waiting": 1}, w.boss)
	w.remove(waits)
	must(t, w.boss.Release(w.ctx(), waits.UID, "beta", "batch"))
	w.boss.looks()
	w.shows(map[string]float64{"batch/acme in": 1}, w.boss)
	w.remove(first)
	must(t, w.client.Delete(w.ctx(), &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "batch"}}))
	w.boss.looksLong()
	w.boss.looks()
	w.shows(map[string]float64{}, w.boss)
}

// mutation: Start that does not end what it showed makes this fail.
func TestWhoMakesNoResyncsShowsNobody(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 1)
	w.boss.looks()
	w.boss.admits(w.run("in"))
	w.boss.asks(w.run("waits"), false)
	ctx, stop := context.WithCancel(w.ctx())
	ended := make(chan error, 1)
	running{w.boss}.resyncs(func() { go func() { ended <- w.boss.Start(ctx) }() })
	w.shows(map[string]float64{"batch/acme in": 1, "batch/acme waiting": 1}, w.boss)
	stop()
	must(t, <-ended)
	w.shows(map[string]float64{}, w.boss)
}
