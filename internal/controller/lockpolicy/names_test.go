// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policynames"
	"github.com/syncopate-dev/syncopate/internal/rollout"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

// Each policy that ever governed a run has series. They go some time after it was deleted, on
// replicas that write no status, too.
//
// mutation: Reconcile that does not look for deleted policies, or only where there are others, or
// only on the replica that writes status, makes this fail.
func TestSeriesOfADeletedPolicyAreDropped(t *testing.T) {
	for name, elected := range map[string]bool{"the replica that writes status": true, "another": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			registry := prometheus.NewRegistry()
			w.r.Names, w.r.Elected = policynames.New(), func() bool { return elected }
			locks, ballots := lockmgr.NewMetrics(registry, w.r.Names), ballot.NewBox(registry, w.r.Names)
			for _, policy := range []string{"stays", "goes"} {
				w.create(policy, policy)
				locks.Taken("admission", policy, 0)
				ballots.Began(ballot.Entry{Policy: policy}, rollout.Canary)
			}
			series := func() int {
				n, err := testutil.GatherAndCount(registry, "syncopate_locks_taken_total", "syncopate_rollout_runs_total")
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			w.pass()
			for _, step := range []struct {
				goes string
				want int
			}{{"goes", 2}, {"stays", 0}} {
				if err := w.client.Delete(t.Context(), w.get(step.goes)); err != nil {
					t.Fatal(err)
				}
				before := series()
				w.mustPass()
				w.clock.SetTime(w.clock.Now().Add(time.Minute))
				w.mustPass()
				if got := series(); got != before {
					t.Errorf("%s: %d series a minute later, %d before", step.goes, got, before)
				}
				w.clock.SetTime(w.clock.Now().Add(10 * time.Minute))
				if _, err := w.try(); err != nil {
					t.Fatal(err)
				}
				if got := series(); got != step.want {
					t.Errorf("%s: %d series 11 minutes later; want %d", step.goes, got, step.want)
				}
			}
		})
	}
}

// mustPass is a pass that comes again: for the next refresh, or for series that are to go.
func (w *world) mustPass() {
	w.t.Helper()
	if res, err := w.try(); err != nil || res.RequeueAfter <= 0 {
		w.t.Fatalf("reconcile: %+v, %v", res, err)
	}
}

// What is counted for several policies together is said of none of them.
//
// mutation: contention of what has no series of its own, which is 0, makes this fail.
func TestAPolicyWithoutALabelHasNoContention(t *testing.T) {
	w := newWorld(t)
	w.r.Names = policynames.New()
	w.create("web", "web")
	w.pass()
	w.refresh()
	if w.status("web").Contention == nil {
		t.Fatal("a policy that may have a label has no contention")
	}
	for i := 0; !w.r.Names.Shared("web"); i++ {
		w.r.Names.Label(fmt.Sprint("p-", i))
	}
	w.refresh()
	if c := w.status("web").Contention; c != nil {
		t.Errorf("contention: %+v", c)
	}
}

// A policy that was deleted, and made again once its series were gone, counts from 0 on.
//
// mutation: differences below 0 make this fail.
func TestCountsThatWereDroppedBeginAnew(t *testing.T) {
	counted := func(n uint64) pathWaits {
		return pathWaits{busyRetries: float64(n), acquired: buckets{1: n, math.Inf(1): n}}
	}
	if got := counted(2).minus(counted(7)); got.busyRetries != 2 || got.acquired[1] != 2 || got.acquired[math.Inf(1)] != 2 {
		t.Errorf("%+v; want 2 of each", got)
	}
}
