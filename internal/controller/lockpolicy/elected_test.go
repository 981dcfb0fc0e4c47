// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// mutation: replicas that do not report, and Elected that is not asked, make this fail.
func TestReplicasReportAndOneDecides(t *testing.T) {
	w := trying(t, handOff)
	decides := w.r
	w.restart()
	reports := w.r
	reports.Elected = func() bool { return false }

	for range 20 {
		w.r = reports
		w.play(40, 3, 3) // all runs are those of the replica that only reports
		w.writes.Store(0)
		w.refresh()
		w.pass() // the next report is not due
		if n := w.writes.Load(); n > 1 {
			t.Errorf("%d writes of a report, want one at most", n)
		}
		w.r = decides
		w.refresh()
	}
	w.is(rollout.Promoted, 0, v1alpha1.ReasonAllStepsPassed)

	w = trying(t, handOff)
	w.r.Elected = func() bool { return false }
	for range 20 {
		w.play(40, 3, 3)
		w.refresh()
	}
	w.is(rollout.Progressing, 20, v1alpha1.ReasonCanaryRuns) // who only reports decides nothing
}

// mutation: a conflict of a report that is an error, or that waits for the next refresh, makes this
// fail.
func TestAReportThatMeetsAnotherWriteComesSoonAgain(t *testing.T) {
	w := trying(t, handOff)
	w.r.Elected = func() bool { return false }
	w.play(10, 3, 3)
	w.beforeWrite = func(client.Object) {
		w.beforeWrite = nil
		w.edit(func(p *v1alpha1.LockPolicy) { p.Labels = map[string]string{"who": "other"} })
	}
	w.refresh()
	w.clock.SetTime(w.clock.Now().Add(conflictPause))
	before := w.writes.Load()
	w.pass()
	if w.writes.Load() == before || len(w.rollout().Replicas) == 0 {
		t.Errorf("the report was not tried again: %+v", w.rollout().Replicas)
	}
}
