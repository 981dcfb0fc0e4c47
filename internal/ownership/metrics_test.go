// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// unowned is what the alert about partitions without an owner is told by a member.
func (f *fellow) unowned() int { return int(testutil.ToFloat64(f.opts.Metrics.unowned)) }

// The caches of a process may never be synced, and then its Keeper is not started.
//
// mutation: New that does not publish makes this fail.
func TestAMemberThatIsNotStartedKnowsOfNoOwner(t *testing.T) {
	w := newWorld(t)
	if n := w.newFellow("a", nil).unowned(); n != Partitions {
		t.Errorf("%d partitions without an owner before the start, want all %d", n, Partitions)
	}
}

// Members that renew their Leases and cannot read who owns what give up everything. Each still
// remembers live owners, and none of these works.
//
// mutation: publish that does not ask whether this member has a session makes this fail.
func TestMembersThatCannotReadTheOwnersSayThatThereAreNone(t *testing.T) {
	w := newWorld(t)
	a, b := w.join("a"), w.join("b")
	known := func() bool { return a.unowned() == 0 && b.unowned() == 0 }
	w.eventually("both have a part", divided(a, b))
	w.eventually("both know all owners", known)
	a.blind.Store(true)
	b.blind.Store(true)
	w.eventually("both say that nobody owns anything", func() bool { return a.unowned() == Partitions && b.unowned() == Partitions })
	if n := a.count() + b.count(); n > 0 {
		t.Errorf("%d partitions are worked on", n)
	}
	a.blind.Store(false)
	b.blind.Store(false)
	w.eventually("both have a part again", divided(a, b))
	w.eventually("both know all owners again", known)
}

// Prometheus' rate sees what is added to a series. One that begins with the first hand-over has
// nothing added to it until the second.
//
// mutation: NewMetrics that leaves out a kind makes this fail.
func TestHandOversAreCountedFromNone(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	NewMetrics(reg)
	if n, err := testutil.GatherAndCount(reg, "syncopate_handover_seconds"); n != 2 || err != nil {
		t.Errorf("%d series of hand-overs before the first: %v; want one for each kind", n, err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "syncopate_handover_seconds" && f.GetMetric()[0].GetHistogram().GetSampleCount() != 0 {
			t.Error("one is counted that was not")
		}
	}
}
