// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// mutation: each case of slot and place, when left out, makes its line of this table fail; so does
// pending or under that counts a child, and factOf without forLocks.
func TestAudit(t *testing.T) {
	at := store.Key{Policy: "batch", Tenant: "acme"}
	admitted := func(f *fact) { f.admittedAt, f.policy = time.Unix(1, 0), "batch" }
	const slot, place, neither = "slot", "place", ""
	for name, c := range map[string]struct {
		has     string // at the quota
		unknown bool   // to the cache
		run     func(*fact)
		limit   int
		want    string
	}{
		"ended, with a slot":                        {has: slot, run: func(f *fact) { admitted(f); f.finished = true }, limit: 9, want: "over"},
		"ended before it was admitted, with a slot": {has: slot, run: func(f *fact) { f.finished = true }, limit: 9, want: "over"},
		"ended, in line":                            {has: place, run: func(f *fact) { f.finished = true }, limit: 9, want: "over"},
		"unknown, with a slot":                      {has: slot, unknown: true, limit: 9, want: "unknown"},
		"unknown, in line":                          {has: place, unknown: true, limit: 9, want: "unknown"},
		"admitted, with a slot":                     {has: slot, run: admitted, limit: 9, want: ""},
		"admitted, in line":                         {has: place, run: admitted, limit: 9, want: "missing"},
		"admitted, with neither":                    {has: neither, run: admitted, limit: 9, want: "missing"},
		"admitted by another policy, with a slot":   {has: slot, run: func(f *fact) { admitted(f); f.policy = "else" }, limit: 9, want: "over"},
		"admitted by no policy, with a slot":        {has: slot, run: func(f *fact) { admitted(f); f.policy = "" }, limit: 9, want: "over"},
		"admitted for another tenant, in line":      {has: place, run: func(f *fact) { admitted(f); f.tenant = "else" }, limit: 9, want: "over"},
		"waits, with a slot":                        {has: slot, run: func(*fact) {}, limit: 9, want: "unused wake"},
		"waits, in line with room":                  {has: place, run: func(*fact) {}, limit: 1, want: "unused wake"},
		"waits, in line without room":               {has: place, run: func(*fact) {}, limit: 0, want: ""},
		"waits, in line without a limit":            {has: place, run: func(*fact) {}, limit: -1, want: "unused wake"},
		"waits, with neither":                       {has: neither, run: func(*fact) {}, limit: 0, want: "wake"},
		"waits for its locks, with neither": {
			has: neither, run: func(f *fact) {
				waits := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Admission: &v1alpha1.AdmissionStatus{LockWait: &v1alpha1.LocksWait{}}}}
				f.forLocks = factOf(waits).forLocks
			}, limit: 9, want: "",
		},
		"not pinned, in line without room":             {has: place, run: func(f *fact) { f.tenant = "" }, limit: 0, want: ""},
		"suspended, with a slot":                       {has: slot, run: func(f *fact) { f.suspended = true }, limit: 9, want: "misplace"},
		"suspended, in line":                           {has: place, run: func(f *fact) { f.suspended = true }, limit: 9, want: "misplace"},
		"suspended after it was admitted, with a slot": {has: slot, run: func(f *fact) { admitted(f); f.suspended = true }, limit: 9, want: ""},
		"needs a newer operator, in line": {
			has: place, run: func(f *fact) {
				newer := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{MinWriterVersion: v1alpha1.WriterVersion + 1}}
				f.suspended = factOf(newer).suspended
			}, limit: 9, want: "misplace",
		},
		"needs a newer operator, with a slot":     {has: slot, run: func(f *fact) { f.suspended, f.newer = true, true }, limit: 9, want: ""},
		"waits under another policy, with a slot": {has: slot, run: func(f *fact) { f.class = "else" }, limit: 9, want: "misplace"},
		"waits under another policy, in line":     {has: place, run: func(f *fact) { f.class = "else" }, limit: 9, want: "misplace"},
		"a child, with neither":                   {has: neither, run: func(f *fact) { f.child = true }, limit: 9, want: ""},
		"a child that was let in, with neither":   {has: neither, run: func(f *fact) { admitted(f); f.child = true }, limit: 9, want: ""},
		"a child that was let in, with a slot":    {has: slot, run: func(f *fact) { admitted(f); f.child = true }, limit: 9, want: "over"},
		"ended, with neither":                     {has: neither, run: func(f *fact) { f.finished = true }, limit: 9, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := &view{runs: map[types.UID]fact{}, classes: map[string]string{"batch": "batch", "else": "else"}}
			run := fact{uid: "u", class: "batch", tenant: "acme"}
			var in, waiting []fact
			if !c.unknown {
				c.run(&run)
				v.runs["u"] = run
				switch {
				case run.under(at):
					in = append(in, run)
				case v.waitsAt(run, at):
					waiting = append(waiting, run)
				}
			}
			var b store.Snapshot
			switch c.has {
			case slot:
				b.Slots = []store.Slot{{UID: "u"}}
			case place:
				b.Queue = []store.Run{{UID: "u"}}
			}
			f := audit(v, at, b, c.limit, in, waiting)
			var got []string
			for what, n := range map[string]int{
				"over": len(f.over), "unknown": len(f.unknown), "missing": len(f.missing), "wake": len(f.wake), "misplace": len(f.misplaced), "unused": len(f.unused),
			} {
				for range n {
					got = append(got, what)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

// mutation: free without the reservations, or without the slots, makes this fail.
func TestAuditWakesAsManyAsThereIsRoomFor(t *testing.T) {
	at := store.Key{Policy: "batch", Tenant: "acme"}
	v := &view{runs: map[types.UID]fact{}, classes: map[string]string{"batch": "batch"}}
	b := store.Snapshot{Slots: []store.Slot{{UID: "in"}}, Reserved: []store.Reservation{{UID: "coming"}}}
	v.runs["in"] = fact{uid: "in", class: "batch", tenant: "acme", admittedAt: time.Unix(1, 0), policy: "batch"}
	for _, uid := range []types.UID{"a", "b", "c"} {
		v.runs[uid] = fact{uid: uid, class: "batch", tenant: "acme"}
		b.Queue = append(b.Queue, store.Run{UID: string(uid)})
	}
	var woken []types.UID
	for _, run := range audit(v, at, b, 4, nil, nil).wake {
		woken = append(woken, run.uid)
	}
	if diff := cmp.Diff([]types.UID{"a", "b"}, woken); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
}

// mutation: factOf without child makes this fail.
func TestWhoClaimsAParentTakesNoSlot(t *testing.T) {
	owner := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: "boss", UID: "u-1"}}
	owned := metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.GroupVersion.WithKind("WorkflowRun"))}}
	for name, c := range map[string]struct {
		run  *v1alpha1.WorkflowRun
		want bool
	}{
		"nobody's":               {&v1alpha1.WorkflowRun{}, false},
		"a run's":                {&v1alpha1.WorkflowRun{ObjectMeta: owned}, true},
		"pinned":                 {&v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Fence: new(int64(1)), Parent: &v1alpha1.ParentStatus{Name: "boss", UID: "u-1"}}}, true},
		"a run's since too late": {&v1alpha1.WorkflowRun{ObjectMeta: owned, Status: &v1alpha1.WorkflowRunStatus{Fence: new(int64(1))}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if f := factOf(c.run); f.child != c.want || f.waits() == c.want {
				t.Errorf("child %t, waits %t", f.child, f.waits())
			}
		})
	}
}
