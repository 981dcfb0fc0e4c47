// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"
	"time"
)

// mutation: ProcessGone that is true for one that was never met, or without over, makes this fail:
// the lock of a process that lives would be replaced.
func TestMember_ProcessGone(t *testing.T) {
	m := NewMember("pod.self", Settings{Partitions: 1, Lease: 6 * time.Second})
	list := func(at Time) {
		m.Listed(List{Sent: at, Received: at, Leases: []Lease{{Name: "pod-a.p1", Version: "v1"}}})
	}
	for at := Time(0); at <= 10*time.Second; at += time.Second {
		list(at)
		if got, want := m.ProcessGone("p1"), at >= 6*time.Second; got != want {
			t.Errorf("at %s: gone %t", at, got)
		}
	}
	for _, other := range []string{"", "p2", "1", "self"} {
		if m.ProcessGone(other) {
			t.Errorf("%q, which was never met, is gone", other)
		}
	}
}

// While a rollout changes the Lease of replicas, each has to be given the time that
// it takes itself.
// mutation: over by the own Lease alone makes this fail: a process that lives would lose its locks
// and partitions.
func TestMember_WhoHasALongerLeaseIsNotGone(t *testing.T) {
	const second = time.Second
	m := NewMember("pod.self", Settings{Partitions: 1, Lease: 6 * second})
	for at := Time(0); at <= 100*second; at += second {
		renewals := int(min(at, 60*second) / (10 * second))
		m.Listed(List{Sent: at, Received: at, Leases: []Lease{{Name: "pod-a.p1", Version: numeral(renewals), Lasts: 30 * second}}})
		if got, want := m.Gone("pod-a.p1"), at >= 90*second; got != want || m.ProcessGone("p1") != want {
			t.Errorf("at %s: gone %t", at, got)
		}
	}
}

// A member whose Lease was never seen may have the longer one, too.
// mutations: wait and Gone by the own Lease make this fail.
func TestMember_WhoWasNeverListedMayHaveALongerLease(t *testing.T) {
	claims := []Claim{{"a", 2}, {"unseen", 2}}
	m := owner(t, claims)
	for at := Time(10); at <= 400; at += 10 {
		m.Listed(List{Sent: at, Received: at, Leases: []Lease{{Name: "b", Version: numeral(int(at)), Lasts: 300}}})
		if got, want := m.Gone("unseen"), at >= 310; got != want {
			t.Errorf("at %d: gone %t", at, got)
		}
		if got, want := m.Gone("nobody"), at >= 310; got != want {
			t.Errorf("at %d, who is in no list and owns nothing: gone %t", at, got)
		}
	}
}
