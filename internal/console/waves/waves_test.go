// SPDX-License-Identifier: Apache-2.0

package waves

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func policyOf(name string, busy int64) v1alpha1.LockPolicy {
	p := v1alpha1.LockPolicy{Status: &v1alpha1.LockPolicyStatus{Contention: &v1alpha1.LockContention{BusyRetriesPerMinute: busy}}}
	p.Name, p.UID = name, types.UID(name)
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
	if len(w.of) != maxPolicies {
		t.Errorf("%d policies", len(w.of))
	}
}

// mutations: Waves that keep policies by name, or as long as they are there, make this fail.
func TestADeletedPolicyLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w, now := New(), time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	old, anew := policyOf("a", 1), policyOf("a", 2)
	anew.UID = "another"
	w.Look([]v1alpha1.LockPolicy{old}, now)
	if seen := w.Look([]v1alpha1.LockPolicy{anew}, now.Add(apart))["a"]; len(seen) != 1 || seen[0].BusyPerMinute != 2 {
		t.Errorf("a policy made anew has %v", seen)
	}
	for i := range maxPolicies {
		w.Look([]v1alpha1.LockPolicy{policyOf(fmt.Sprint(i), 1)}, now)
	}
	later := now.Add(keptFor + time.Minute)
	if seen := w.Look([]v1alpha1.LockPolicy{policyOf("late", 3)}, later)["late"]; len(seen) != 1 {
		t.Errorf("there is no place for %v", seen)
	}
}
