// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// locked is a run of a class that was last written under a lease.
func locked(name, class, lease string) v1alpha1.WorkflowRun {
	run := underWay(name, "acme", "")
	run.Spec.WorkloadClass = class
	at := metav1.NewTime(midnight)
	run.Status.Fence, run.Status.Lock = new(int64(6)), &v1alpha1.RunLockStatus{LeaseID: lease, Holder: "operator-1", AcquiredAt: &at}
	return run
}

// mutation: holderOf that compares whole tokens only makes this fail.
func TestRunLocksByPolicyAndRun(t *testing.T) {
	runs := []v1alpha1.WorkflowRun{
		locked("held", "batch", "p1.a"), locked("again", "batch", "p1.x"), locked("gone", "batch", "p1.c"), locked("other", "batch", "p1.d"),
		locked("by-hand", "default", "p1.e"), locked("offered", "default", "p1.f"), locked("free", "default", "p1.g"), locked("wanted", "default", "p1.h"),
		{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "new", UID: "new"}},
	}
	seen := map[string]Sight{
		"held": {Token: "p1.a", Left: 100 * time.Second, Fence: 7}, "again": {Token: "p1.b", Left: 90 * time.Second, Fence: 8, Waiting: 2},
		"gone": {Token: "p1.c", Left: 5 * time.Second, Fence: 6, Waiting: 1}, "other": {Token: "p2.a", Left: 120 * time.Second, Fence: 9},
		"by-hand": {Token: "mine", Left: -1}, "offered": {Offered: true, Left: time.Second, Waiting: 1}, "free": {Left: -2}, "wanted": {Left: -2, Waiting: 1},
		"new": {Token: "p2.b", Left: 30 * time.Second, Fence: 1},
	}
	rules := []v1alpha1.LockPolicy{samplePolicy(t, 1)} // a margin of 6.2 s
	now := midnight.Add(time.Minute)
	var out strings.Builder
	if err := RunLocksText(&out, RunLocks(runs, seen, rules, now), now); err != nil {
		t.Fatal(err)
	}
	golden(t, "run-locks.txt", []byte(out.String()))

	unknown := RunLockOf(&runs[0], seen["held"], nil, now)
	if unknown.ValidUntil != nil || unknown.Ends == nil || unknown.Policy != "" {
		t.Errorf("without policies: %+v", unknown)
	}
	if diff := cmp.Diff([]RunLock{}, RunLocks(nil, nil, nil, now)); diff != "" {
		t.Errorf("no runs (-want +got):\n%s", diff)
	}
}

// mutation: Sees that promises an end to a lock without one makes this fail.
func TestWhyWithTheLockItself(t *testing.T) {
	run := locked("r", "batch", "p1.a")
	for name, c := range map[string]struct {
		sight Sight
		want  string
	}{
		"held":               {Sight{Token: "p1.a", Left: 90 * time.Second, Fence: 7, Waiting: 2}, "held by operator-1, fence 7, processes in line: 2, since 2026-01-02T00:00:00Z (60s ago); if nobody renews it, it ends at 2026-01-02T00:02:30Z (in 90s)"},
		"made by hand":       {Sight{Token: "mine", Left: -1}, "held by nobody's key; it has no TTL, so it does not end by itself, fence 0, processes in line: 0\n"},
		"kept for the first": {Sight{Offered: true, Left: time.Second, Fence: 7, Waiting: 1}, "kept for the first in line, fence 7, processes in line: 1\n"},
		"free":               {Sight{Left: -2, Fence: 7}, "free, fence 7, processes in line: 0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			now := midnight.Add(time.Minute)
			a := Why(&run, nil, now)
			a.Sees(RunLockOf(&run, c.sight, nil, now))
			var out strings.Builder
			if err := a.Text(&out, now, false); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "  lock now  "+c.want) {
				t.Errorf("it does not say %q:\n%s", c.want, out.String())
			}
		})
	}
}
