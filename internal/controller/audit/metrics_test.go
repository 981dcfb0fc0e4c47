// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/syncopate-dev/syncopate/internal/audit"
	"github.com/syncopate-dev/syncopate/internal/audit/stores"
)

// mutation: tell that takes what was not read for what agrees makes this fail.
func TestMetrics_KeepWhatWasFoundWhereAStoreIsUnread(t *testing.T) {
	m := NewMetrics(nil)
	unread := func(p audit.Part) stores.Report { return stores.Report{Unread: map[audit.Part]string{p: "no"}} }
	of := func(k audit.Kind) float64 { return testutil.ToFloat64(m.findings.WithLabelValues(string(k))) }
	if n, audits := testutil.CollectAndCount(m.findings), testutil.CollectAndCount(m.audits); n != 0 || audits != 2 {
		t.Errorf("before the first audit: %d kinds, %d outcomes", n, audits)
	}
	m.tell(unread(audit.Runs))
	if n := testutil.CollectAndCount(m.findings); n != 0 {
		t.Errorf("a first audit without the runs tells of %d kinds", n)
	}
	m.tell(stores.Report{Findings: []audit.Finding{{Kind: audit.SlotLeft}, {Kind: audit.JobLeft}}})
	m.tell(unread(audit.Slots))
	if slots, jobs := of(audit.SlotLeft), of(audit.JobLeft); slots != 1 || jobs != 0 {
		t.Errorf("without the slots: %v slots, %v jobs", slots, jobs)
	}
	m.tell(unread(audit.Runs))
	if n := of(audit.SlotLeft); n != 1 {
		t.Errorf("without the runs: %v", n)
	}
	m.tell(stores.Report{})
	if n := of(audit.SlotLeft); n != 0 {
		t.Errorf("all agree: %v", n)
	}
	if w, p := testutil.ToFloat64(m.audits.WithLabelValues("whole")), testutil.ToFloat64(m.audits.WithLabelValues("partly")); w != 2 || p != 3 {
		t.Errorf("%v whole, %v partly", w, p)
	}
	m.forget()
	if n := testutil.CollectAndCount(m.findings); n != 0 {
		t.Errorf("another replica audits, and here are %d kinds", n)
	}
}

// Beyond 100,000 runs no audit reads all of them: what was found once before that would never go.
//
// mutation: tell that keeps what was found without a bound, or that counts audits that looked,
// makes this fail.
func TestMetrics_KeepWhatWasFoundForABoundedTime(t *testing.T) {
	m := NewMetrics(nil)
	found := stores.Report{Findings: []audit.Finding{{Kind: audit.JobLeft}}}
	unread := stores.Report{Unread: map[audit.Part]string{audit.Runs: "there are more"}}
	for range 2 {
		m.tell(found)
		for n := range maxKeptAudits {
			kept := m.tell(unread)
			if len(kept) != 1 || kept[audit.JobLeft] != 1 || testutil.ToFloat64(m.findings.WithLabelValues(string(audit.JobLeft))) != 1 {
				t.Fatalf("after %d audits: %v", n+1, kept)
			}
		}
	}
	if kept := m.tell(unread); len(kept) != 0 || testutil.CollectAndCount(m.findings) != 0 {
		t.Errorf("after all: %v, %d kinds", kept, testutil.CollectAndCount(m.findings))
	}
	m.tell(found)
	m.forget()
	if kept := m.tell(unread); len(kept) != 0 {
		t.Errorf("of audits before another replica made them: %v", kept)
	}
}
