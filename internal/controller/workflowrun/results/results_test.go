// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/holds"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// aRun is a run whose steps, named s1, s2 and so on, are in the given phases at attempt 1.
func aRun(phases ...v1alpha1.StepPhase) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "run", UID: "uid"}, Status: &v1alpha1.WorkflowRunStatus{},
	}
	for i, p := range phases {
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: fmt.Sprintf("s%d", i+1), Phase: p, Attempt: 1})
	}
	return run
}

// mutation: remove or takeAll that does not give room back makes "room comes back" fail; put that
// keeps a place, when there are no bytes left, the last line.
func TestInbox(t *testing.T) {
	b := NewInbox(6, 1<<20)
	var letters []*Pending
	for i := range 5 {
		letters = append(letters, &Pending{Size: i})
	}
	for i, uid := range []types.UID{"a", "a", "a", "b", "b"} {
		if ok := b.Put("ns-"+string(uid), uid, letters[i]); ok != (i != 2 && i != 4) {
			t.Errorf("put %d: %t", i, ok)
		}
	}
	if got := b.Waiting("a"); len(got) != 2 || got[0] != letters[0] || got[1] != letters[1] {
		t.Errorf("a's results are not in order of arrival: %v", got)
	}
	if got := b.Backlog(); got.Results != 3 || got.Bytes != 3*pendingBytes+0+1+3 || got.Limit != 1<<20 {
		t.Errorf("%+v wait", got)
	}
	b.Remove("a", letters[:1])
	b.Remove("a", letters[:1])                 // again
	b.Remove("a", []*Pending{letters[3]})      // another run's
	b.Remove("nobody", []*Pending{letters[3]}) // no run
	if got := b.Waiting("a"); len(got) != 1 || got[0] != letters[1] {
		t.Errorf("a has %v", got)
	}
	if got := b.Backlog(); got.Results != 2 || got.Bytes != 2*pendingBytes+1+3 {
		t.Errorf("room comes back: %+v", got)
	}
	if got := b.TakeAll("a"); len(got) != 1 || b.Backlog().Results != 1 || len(b.Waiting("a")) != 0 {
		t.Errorf("takeAll gave %v, %+v left", got, b.Backlog())
	}
	b.TakeAll("b")
	if got := b.Backlog(); got.Results != 0 || got.Bytes != 0 || len(b.byRun) != 0 {
		t.Errorf("empty inbox: %+v, %d runs", got, len(b.byRun))
	}
	large := &Pending{Size: 1 << 19}
	if !b.Put("ns", "a", large) || b.Put("ns", "a", large) || b.Backlog().Results != 1 {
		t.Errorf("large results: %+v", b.Backlog())
	}
}

func TestInboxIsSafeForConcurrentUse(t *testing.T) {
	b := NewInbox(1000, 1<<20)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				l := &Pending{}
				b.Put("ns", "a", l)
				b.Waiting("a")
				b.Backlog()
				b.Remove("a", []*Pending{l})
			}
		})
	}
	wg.Wait()
	if b.Backlog().Results != 0 || len(b.byRun) != 0 {
		t.Errorf("%+v of %d runs left", b.Backlog(), len(b.byRun))
	}
}

func TestIndex(t *testing.T) {
	d := NewIndex()
	run := aRun(v1alpha1.StepPending)
	key := types.NamespacedName{Namespace: "ns", Name: "run"}
	d.See(run)
	d.See(run)
	if got, ok := d.Find("uid"); !ok || got != key {
		t.Errorf("find: %v, %t", got, ok)
	}
	phases, _ := d.Count(func(uid types.UID) bool { return uid == "uid" })
	if diff := cmp.Diff(map[string]int{"Pending": 1}, phases); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	if phases, _ := d.Count(func(types.UID) bool { return false }); len(phases) != 0 {
		t.Errorf("runs that others drive are counted: %v", phases)
	}
	if in := d.In(map[int]bool{protocol.Partition("uid"): true}); in["uid"] != key {
		t.Errorf("in its partition: %v", in)
	}
	if uid, ok := d.UID(key); !ok || uid != "uid" {
		t.Errorf("its UID: %s, %t", uid, ok)
	}
	d.Remove(run, true)
	if _, ok := d.UID(key); ok {
		t.Error("a removed run has a UID")
	}
	if _, ok := d.Find("uid"); ok {
		t.Error("a removed run is found")
	}
	gone := d.TakeDeleted(key)
	want := []Tombstone{{UID: "uid"}}
	if diff := cmp.Diff(want, gone, cmp.AllowUnexported(holds.State{})); diff != "" {
		t.Errorf("tombstones (-want +got):\n%s", diff)
	}
	if len(d.TakeDeleted(key)) != 0 {
		t.Error("tombstones are handed out twice")
	}
	d.PutBack(key, gone[0])
	if len(d.TakeDeleted(key)) != 1 {
		t.Error("a tombstone that was put back is lost")
	}
}

// fakeDelivery keeps what it was settled with.
type fakeDelivery struct{ settled []error }

func (d *fakeDelivery) Settle(_ context.Context, err error) error {
	d.settled = append(d.settled, err)
	if len(d.settled) > 1 {
		return fmt.Errorf("settled twice: %w", errors.Join(d.settled...))
	}
	return nil
}

// mutations: a list that has those of other partitions; a case of adopted left out.
func TestIndex_AdoptedTellsRunsByWhatTheyNeed(t *testing.T) {
	x := NewIndex()
	of := map[int]bool{}
	phases := []v1alpha1.RunPhase{v1alpha1.RunQueued, v1alpha1.RunRunning, v1alpha1.RunSucceeded, v1alpha1.RunCancelled}
	want := map[v1alpha1.RunPhase]int{}
	for i := range 64 {
		phase := phases[i%len(phases)]
		run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: string(phase), Namespace: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i))}, Status: &v1alpha1.WorkflowRunStatus{Phase: phase}}
		x.See(run)
		of[protocol.Partition(fmt.Sprint(i))] = i < 32
	}
	for _, key := range x.In(of) {
		want[v1alpha1.RunPhase(key.Name)]++
	}
	got := map[v1alpha1.RunPhase]int{}
	all := x.Adopted(of)
	for _, key := range slices.Concat(all.Waiting, all.Running, all.Ended) {
		got[v1alpha1.RunPhase(key.Name)]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs of the partitions (-want +got):\n%s", diff)
	}
	if len(all.Waiting) != want[v1alpha1.RunQueued] || len(all.Running) != want[v1alpha1.RunRunning] {
		t.Errorf("%d wait and %d run, want %v", len(all.Waiting), len(all.Running), want)
	}
}

// A settled result leaves the inbox even when its settlement fails: the message is delivered again
// and is recognised.
func TestSettler_SettleAllEmptiesTheInbox(t *testing.T) {
	b := NewInbox(1000, 96<<20)
	s := NewSettler(b, uncounted{})
	var list []Settlement
	for range 3 * settleParallel {
		p := &Pending{Delivery: &fakeDelivery{settled: []error{nil}}} // fails: it was settled before
		b.Put("ns", "uid", p)
		list = append(list, Settlement{Pending: p})
	}
	s.SettleAll(t.Context(), "uid", list)
	if left := b.Backlog().Results; left != 0 {
		t.Errorf("%d results left", left)
	}
	for _, one := range list {
		fake, ok := one.Pending.Delivery.(*fakeDelivery)
		if !ok || !cmp.Equal(fake.settled, []error{nil, nil}, cmpopts.EquateErrors()) {
			t.Fatalf("settled with %v", one.Pending.Delivery)
		}
	}
}
