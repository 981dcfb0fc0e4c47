// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// mutations: a gauge that keeps what nobody waits for, or the last of several ages,
// makes this fail.
func TestTheOldestHoldOfEachSemaphore(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry)
	m.contended(map[string]time.Duration{"gone/x": time.Hour})
	m.contended(map[string]time.Duration{"gpus/eu": time.Minute, "gpus/us": time.Second, "mutex:a/x": time.Second, "mutex:b/gpus": 2 * time.Second})
	want := `
# HELP syncopate_locks_oldest_contended_hold_seconds Age of the oldest hold of a lock across runs for which somebody waits, as of the last resync, by semaphore ("mutex": all mutexes); of the replica that makes resyncs.
# TYPE syncopate_locks_oldest_contended_hold_seconds gauge
syncopate_locks_oldest_contended_hold_seconds{semaphore="gpus"} 60
syncopate_locks_oldest_contended_hold_seconds{semaphore="mutex"} 2
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "syncopate_locks_oldest_contended_hold_seconds"); err != nil {
		t.Error(err)
	}
}

// mutation: label without its bound makes this fail.
func TestNamesInLabelsAreBounded(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry)
	for range 2 {
		for i := range 2 * maxSemaphores {
			m.ended([]store.Ended{{Lock: fmt.Sprintf("s%d/k", i), Held: time.Minute}, {Lock: fmt.Sprintf("mutex:ns/m%d", i), Held: time.Second}})
		}
	}
	if n, err := testutil.GatherAndCount(registry, "syncopate_locks_hold_seconds"); err != nil || n != maxSemaphores+2 {
		t.Errorf("%d series, %v", n, err)
	}
}
