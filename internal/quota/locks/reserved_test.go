// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// loses has Redis lose all while the run of a name may not be changed, and the locks be counted.
func (r *replica) loses(frozen *v1alpha1.WorkflowRun) *freezer {
	r.s.t.Helper()
	f := r.freezes(frozen.Name, 403)
	r.s.server.FlushAll()
	must(r.s.t, r.Resync(r.s.t.Context()))
	return f
}

// refused are the tickets that were refused.
func (r *replica) refused() (all []string) {
	r.s.t.Helper()
	snapshot, err := r.store.SnapshotLocks(r.s.t.Context())
	must(r.s.t, err)
	for _, w := range snapshot.Waiters {
		if w.Refused != "" {
			all = append(all, w.Ticket.ID+" "+w.Refused)
		}
	}
	return all
}

// A child run below root may have been granted x before the loss, and cannot be changed. A step of
// root waits for z, which b holds, and a step of b waits for x. That is a ring only if the child
// holds x, which is known when its status says so.
//
// mutations: waits.hold that takes a reserved hold for one that needs what waits, and hold of audit
// that leaves it reserved.
func TestARingByWayOfWhatIsReservedIsNoneBeforeItIsHeld(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	x, z := "mutex:"+s.ns+"/x", "mutex:"+s.ns+"/z"
	root, b := s.run("root", nil), s.run("b", nil)
	frozen := s.with(v1alpha1.WorkflowRunSpec{Steps: steps(), Locks: []v1alpha1.LockRequest{{Mutex: "x"}}})
	frozen.Status = &v1alpha1.WorkflowRunStatus{Parent: &v1alpha1.ParentStatus{Name: root.Name, UID: string(root.UID), Level: 2, Root: root.Name}}
	must(t, s.client.Status().Update(t.Context(), frozen))
	f := r.loses(frozen)
	root, b = s.get(root.Name), s.get(b.Name) // they were marked
	r.asks(b, "", z, store.LocksHeld)
	r.asks(root, "a", z, store.LocksWaiting)
	r.asks(b, "a", x, store.LocksWaiting)
	must(t, r.Resync(t.Context()))
	if all := r.refused(); len(all) > 0 {
		t.Errorf("refused: %v, and nobody is known to hold %s", all, x)
	}

	f.name = ""
	frozen.Status.Locks = []v1alpha1.LockHold{{Name: x, Permits: 1, Fence: 7}}
	must(t, s.client.Status().Update(t.Context(), frozen))
	for range 2 { // the first enters what the run holds
		must(t, r.Resync(t.Context()))
	}
	if all := r.refused(); len(all) != 1 {
		t.Errorf("refused: %v, want one of a ring", all)
	}
}

// has is how many permits of a lock are held, and how many of these are reserved.
func (r *replica) has(lock string) (held, reserved int) {
	r.s.t.Helper()
	snapshot, err := r.store.SnapshotLocks(r.s.t.Context())
	must(r.s.t, err)
	used := usedOf(snapshot.Holds)
	return used[lock], used[store.ReservedPrefix+lock]
}

// What a run can never have been granted is not kept from others.
//
// mutations: mayHold that looks at no Semaphore, at the first lock only, at expressions first, or
// at the permits of all items together; itemsOf without one of its bounds.
func TestNothingIsReservedThatNobodyCanHaveBeenGranted(t *testing.T) {
	on := func(semaphore string, permits int32) v1alpha1.LockRequest {
		return v1alpha1.LockRequest{Semaphore: semaphore, Key: "k", Permits: new(permits)}
	}
	expression := v1alpha1.LockRequest{Semaphore: "shut", Key: "${inputs.k}"}
	item := func(of v1alpha1.ForEach, locks ...v1alpha1.LockRequest) v1alpha1.WorkflowRunSpec {
		all := steps()
		of.Items, of.Locks = "${[1,2]}", locks
		all[0].ForEach = &of
		return v1alpha1.WorkflowRunSpec{Steps: all}
	}
	for name, c := range map[string]struct {
		spec   v1alpha1.WorkflowRunSpec
		status *v1alpha1.ForEachStatus
		newer  int32          // how much newer an operator the run needs
		want   map[string]int // reserved, by Semaphore
	}{
		"it is not for the namespace":         {spec: v1alpha1.WorkflowRunSpec{Steps: steps(on("shut", 1))}},
		"the same, with a key of expressions": {spec: v1alpha1.WorkflowRunSpec{Steps: steps(expression)}},
		"the same, beside another":            {spec: v1alpha1.WorkflowRunSpec{Steps: steps(on("big", 1), on("shut", 1))}},
		"the same, of items":                  {spec: item(v1alpha1.ForEach{}, on("shut", 1))},
		"more than there are":                 {spec: v1alpha1.WorkflowRunSpec{Steps: steps(on("big", 101))}},
		"the same, of the run":                {spec: v1alpha1.WorkflowRunSpec{Steps: steps(), Locks: []v1alpha1.LockRequest{on("big", 101)}}},
		"more than there are, of items":       {spec: item(v1alpha1.ForEach{}, on("big", 101))},
		"there is none":                       {spec: v1alpha1.WorkflowRunSpec{Steps: steps(on("none", 1), on("big", 1))}},
		"as many as there are":                {spec: v1alpha1.WorkflowRunSpec{Steps: steps(on("big", 100))}, want: map[string]int{"big": 100}},
		"ten items at a time":                 {spec: item(v1alpha1.ForEach{}, on("big", 2)), want: map[string]int{"big": 20}},
		"three items at a time":               {spec: item(v1alpha1.ForEach{MaxParallel: 3}, on("big", 2)), want: map[string]int{"big": 6}},
		"fifty items at a time, and no more":  {spec: item(v1alpha1.ForEach{MaxParallel: 1000}, on("big", 1)), want: map[string]int{"big": 50}},
		"more items than permits":             {spec: item(v1alpha1.ForEach{MaxParallel: 1000}, on("big", 3)), want: map[string]int{"big": 100}},
		"items of a newer operator": {
			spec: item(v1alpha1.ForEach{}, on("big", 2)), want: map[string]int{"big": 100}, newer: 1,
			status: &v1alpha1.ForEachStatus{Total: 9, Begun: 1, Groups: []v1alpha1.ItemGroup{{Items: "0", Phase: v1alpha1.StepRunning}}},
		},
		"the items that are left": {
			spec: item(v1alpha1.ForEach{}, on("big", 2)), want: map[string]int{"big": 6},
			status: &v1alpha1.ForEachStatus{
				Total: 9, Begun: 6, Succeeded: 3, Failed: 1, Groups: []v1alpha1.ItemGroup{{Items: "4-5", Phase: v1alpha1.StepRunning}},
				Locks: []v1alpha1.ItemLocks{{Item: 4, Locks: []v1alpha1.LockHold{{Name: "x/", Permits: 1, Fence: 7}}}, {Item: 5, Locks: []v1alpha1.LockHold{{Name: "x/", Permits: 1, Fence: 7}}}},
			},
		},
		"no item is left": {
			spec: item(v1alpha1.ForEach{}, on("big", 2)),
			status: &v1alpha1.ForEachStatus{
				Total: 2, Begun: 2, Succeeded: 1, Groups: []v1alpha1.ItemGroup{{Items: "1", Phase: v1alpha1.StepRunning}},
				Locks: []v1alpha1.ItemLocks{{Item: 1, Locks: []v1alpha1.LockHold{{Name: "x/", Permits: 1, Fence: 7}}}},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.semaphore("big", 100)
			shut := &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: "shut"}, Spec: v1alpha1.SemaphoreSpec{Permits: 1}}
			shut.Spec.Namespaces = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "another"}}
			must(t, s.client.Create(t.Context(), shut))
			r := s.replica()
			must(t, r.Resync(t.Context()))
			frozen := s.with(c.spec)
			if c.status != nil {
				frozen.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{{Name: "a", Phase: v1alpha1.StepRunning, ForEach: c.status}}}
				if c.newer > 0 {
					frozen.Status.MinWriterVersion = v1alpha1.WriterVersion + c.newer
				}
				must(t, s.client.Status().Update(t.Context(), frozen))
			}
			r.loses(frozen)
			for _, name := range []string{"big", "shut", "none"} {
				if held, reserved := r.has(name + "/k"); held != c.want[name] || reserved != held {
					t.Errorf("%s: %d are held, %d of them reserved; want %d", name, held, reserved, c.want[name])
				}
			}
		})
	}
}

// The run may be changed again, and writes what it was granted before the loss: others have the
// rest of what was reserved for it at once, and more is not free before all that it holds counts.
//
// mutations: hold of audit that takes a reserved hold for one that is as it should be, settle that
// enters these before what is missing, and restore that counts them as missing.
func TestWhatWasReservedIsHeldWhenStatusSaysSo(t *testing.T) {
	s := newSite(t)
	s.semaphore("big", 100)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	all := steps()
	all[0].ForEach = &v1alpha1.ForEach{Items: "${[1,2]}", Locks: []v1alpha1.LockRequest{{Semaphore: "big", Key: "k"}}}
	frozen := s.with(v1alpha1.WorkflowRunSpec{Steps: all})
	f := r.loses(frozen)
	if held, reserved := r.has("big/k"); held != 10 || reserved != 10 {
		t.Fatalf("%d are held, %d reserved, before", held, reserved)
	}
	f.name = ""
	held := func(item int32) v1alpha1.ItemLocks {
		return v1alpha1.ItemLocks{Item: item, Locks: []v1alpha1.LockHold{{Name: "big/k", Permits: 1, Fence: 7}}}
	}
	frozen.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{{Name: "a", Phase: v1alpha1.StepRunning, ForEach: &v1alpha1.ForEachStatus{
		Total: 2, Begun: 2, Groups: []v1alpha1.ItemGroup{{Items: "0-1", Phase: v1alpha1.StepRunning}}, Locks: []v1alpha1.ItemLocks{held(0), held(1)},
	}}}}
	must(t, s.client.Status().Update(t.Context(), frozen))
	var least []int // of what is held as each answer comes
	other := redis.NewClient(r.redis.Options())
	t.Cleanup(func() { _ = other.Close() })
	r.redis.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		n, failed := other.HGet(ctx, "{adm-locks}:holds", "ubig/k").Int()
		must(t, failed)
		least = append(least, n)
		return err
	}))
	must(t, r.Resync(t.Context()))
	if n := slices.Min(least); n < 2 {
		t.Errorf("%d are held at a time, and two items hold one each", n)
	}
	if held, reserved := r.has("big/k"); held != 2 || reserved != 0 {
		t.Errorf("%d are held, %d of them reserved; want 2 and none", held, reserved)
	}
	if n := testutil.ToFloat64(r.metrics.missing); n != 1 { // the other item
		t.Errorf("%v are counted as missing, want one", n)
	}
}
