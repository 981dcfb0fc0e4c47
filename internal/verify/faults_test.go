// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/book"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

// Others begin to use Redis while the runs that come before the fault are under way.
//
// mutation: faults that flushes without a look at whose the data is makes this fail.
func TestRedisIsNotFlushedThatOthersCameTo(t *testing.T) {
	r := redistest.Start(t).Client()
	trial := &trial{
		Options: Options{Clock: clock.RealClock{}, Redis: r, Faults: []Fault{FlushRedis}, Say: t.Logf}, ledger: book.New(), size: book.Size{Runs: 0, Steps: 8},
	}
	if err := trial.faultsPossible(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Set(t.Context(), "session:1", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	trial.faults(t.Context())
	if n, err := r.Exists(t.Context(), "session:1").Result(); n != 1 {
		t.Errorf("the data of others is gone: %v", err)
	}
	if len(trial.done) != 1 || trial.done[0].happened() {
		t.Errorf("done: %+v", trial.done)
	}
}
