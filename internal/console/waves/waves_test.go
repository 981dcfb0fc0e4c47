// SPDX-License-Identifier: Apache-2.0

package waves

import (
	"fmt"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func policyOf(name string, busy int64) v1alpha1.LockPolicy {
	p := v1alpha1.LockPolicy{Status: &v1alpha1.LockPolicyStatus{Contention: &v1alpha1.LockContention{BusyRetriesPerMinute: busy}}}
	p.Name = name
	return p
}

// mutation: add without maxSamples, without maxPolicies or without apart makes this fail.
func TestWavesAreBounded(t *testing.T) {
	t.Parallel()
	w, now := New(), time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for i := range 1000 {
		now = now.Add(10 * time.Second)
		seen := w.Look([]v1alpha1.LockPolicy{policyOf("a", int64(i))}, now)["a"]
		if len(seen) > maxSamples {
			t.Fatalf("%d samples", len(seen))
		}
		for k := 1; k < len(seen); k++ {
			if seen[k].At.Sub(seen[k-1].At) < apart || seen[k].BusyPerMinute <= seen[k-1].BusyPerMinute {
				t.Fatalf("%v after %v", seen[k], seen[k-1])
			}
		}
	}
	for i := range 2 * maxPolicies {
		w.Look([]v1alpha1.LockPolicy{policyOf(fmt.Sprint(i), 1)}, now)
	}
	if len(w.byName) != maxPolicies {
		t.Errorf("%d policies", len(w.byName))
	}
}
