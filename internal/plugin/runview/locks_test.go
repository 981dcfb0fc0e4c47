// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// lockNow is when the locks of these tests are looked at.
var lockNow = midnight.Add(30 * time.Minute)

func semaphore(name string, permits int32, change ...func(*v1alpha1.Semaphore)) v1alpha1.Semaphore {
	s := v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.Spec = v1alpha1.SemaphoreSpec{Permits: permits, OnBusy: v1alpha1.OnBusyQueue, Order: v1alpha1.OrderFirstRunnable}
	for _, c := range change {
		c(&s)
	}
	return s
}

// holds is a run that has locks since its admission, at midnight.
func holds(name string, fence int64, locks ...string) v1alpha1.WorkflowRun {
	run := underWay(name, "acme", "")
	for _, l := range locks {
		run.Status.Locks = append(run.Status.Locks, v1alpha1.LockHold{Name: l, Permits: 2, Fence: fence})
	}
	run.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Reason: v1alpha1.ReasonRunning}}
	return run
}

// waitsLock is a run that was created so many minutes after midnight and waits for a
// lock since then.
func waitsLock(name string, minute int, priority int32, lock string, requests ...v1alpha1.LockRequest) v1alpha1.WorkflowRun {
	run := waiting(name, "acme", minute, priority)
	run.Status.Admission.LockWait = &v1alpha1.LocksWait{Lock: lock, StartedAt: run.CreationTimestamp}
	run.Spec.Locks = requests
	return run
}

// lockScene has a case of each kind.
func lockScene() LockSight {
	suspended := holds("asleep", 3, "mutex:team-a/deploy")
	suspended.Spec.Suspend = true
	step := underWay("migrate", "acme", "")
	fence := midnight.Add(10 * time.Minute).UnixMilli()
	step.Status.Steps = []v1alpha1.StepStatus{
		{Name: "db", Phase: v1alpha1.StepWaiting, Locks: []v1alpha1.LockHold{{Name: "mutex:team-a/db", Permits: 1, Fence: fence}}},
		{Name: "cache", Phase: v1alpha1.StepRunning, Locks: []v1alpha1.LockHold{{Name: "mutex:team-a/cache", Permits: 1, Fence: 5}}},
		{Name: "next", Phase: v1alpha1.StepPending, LockWait: &v1alpha1.LocksWait{Lock: "mutex:team-a/deploy", StartedAt: metav1.NewTime(midnight.Add(12 * time.Minute))}},
	}
	gpus := func(permits int32) v1alpha1.LockRequest {
		return v1alpha1.LockRequest{Semaphore: "gpu-pool", Key: "eu", Permits: &permits}
	}
	deploy := v1alpha1.LockRequest{Mutex: "deploy"}
	two := waitsLock("two", 5, 0, "mutex:team-a/deploy", deploy, v1alpha1.LockRequest{Semaphore: "strict", Key: "${inputs.key}"})
	two.Spec.Inputs = &runtime.RawExtension{Raw: []byte(`{"key":"x"}`)}
	two.Spec.Steps = []v1alpha1.Step{{Name: "a", Job: &v1alpha1.Job{Topic: "t"}}}
	over := holds("over", 1, "gpu-pool/eu")
	over.Status.CompletedAt = over.Status.Admission.QueuedAt
	return LockSight{
		Runs: []v1alpha1.WorkflowRun{
			holds("late", 7, "gpu-pool/eu"), holds("early", 6, "gpu-pool/eu"), suspended, step,
			waitsLock("old", 1, 0, "gpu-pool/eu", gpus(1)), waitsLock("urgent", 9, 5, "gpu-pool/eu", v1alpha1.LockRequest{Semaphore: "gpu-pool", Key: "${inputs.region}", Permits: new(int32(3))}),
			two, waitsLock("behind", 6, 0, "strict/x", v1alpha1.LockRequest{Semaphore: "strict", Key: "x"}),
			waitsLock("orphan", 2, 0, "gone/k", v1alpha1.LockRequest{Semaphore: "gone", Key: "k"}),
			holds("many", 9, "lowered/"), waitsLock("big", 3, 0, "lowered/", v1alpha1.LockRequest{Semaphore: "lowered", Permits: new(int32(2))}),
			{},
		},
		Semaphores: []v1alpha1.Semaphore{
			semaphore("gpu-pool", 4, func(s *v1alpha1.Semaphore) { s.Spec.Queue.TTLSeconds = new(int32(3600)) }),
			semaphore("strict", 2, func(s *v1alpha1.Semaphore) { s.Spec.Order = v1alpha1.OrderOrdered }),
			semaphore("lowered", 1), semaphore("unused", 3),
		},
		Whole: true, Now: lockNow,
	}
}

func lockText(t *testing.T, locks []Lock, most int) string {
	t.Helper()
	var b strings.Builder
	if err := LocksText(&b, locks, most, lockNow); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// mutations: waiters in the order in which they began to wait, asked that evaluates nothing, a
// lock that is waited for elsewhere not looked at, or a fence that is no time taken for one
// makes this fail.
func TestLocksAsPeopleSeeThem(t *testing.T) {
	all := Locks(lockScene())
	golden(t, "locks.txt", []byte(lockText(t, all, 10)))
	golden(t, "locks.json", asJSON(t, all))
}

// mutations: free that leaves out what is hidden, or semaphore that looks at what is hidden only
// where nothing is, makes this fail.
func TestLocksOfNamespacesThatAreHidden(t *testing.T) {
	s := LockSight{
		Runs: []v1alpha1.WorkflowRun{holds("mine", 7, "gpu-pool/eu"), waitsLock("next", 1, 0, "gpu-pool/eu")},
		Semaphores: []v1alpha1.Semaphore{semaphore("gpu-pool", 4, func(s *v1alpha1.Semaphore) {
			s.Status = &v1alpha1.SemaphoreStatus{Busiest: []v1alpha1.KeyStatus{{Key: "eu", Held: 4, Queued: 3}, {Key: "us", Held: 1}, {Key: "old"}}}
		})},
		Now: lockNow,
	}
	text := lockText(t, Locks(s), 10)
	for _, want := range []string{
		"gpu-pool/eu: runs that are not seen hold 2 permits more, and 2 more wait", "no room: 0 of 4 free; others that are not seen may be before it",
		"gpu-pool/us: runs that are not seen hold 1 permits more, and 0 more wait",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	s.Semaphores = nil
	if text := lockText(t, Locks(s), 10); !strings.Contains(text, "2 of ?") || !strings.Contains(text, "it is not known how many permits there are") || strings.Contains(text, "no such Semaphore") {
		t.Errorf("without semaphores:\n%s", text)
	}
}

func TestLocksByName(t *testing.T) {
	all := Locks(lockScene())
	for name, want := range map[string]string{
		"gpu-pool": "gpu-pool/eu", "gpu-pool/eu": "gpu-pool/eu", "unused": "unused", "mutex:deploy": "mutex:team-a/deploy", "mutex:team-a/db": "mutex:team-a/db",
		"mutex:team-a": "mutex:team-a/deploy mutex:team-a/cache mutex:team-a/db", "mutex:free": "mutex:team-a/free", "mutex:team-b/free": "mutex:team-b/free",
		"gpu-pool/us": "gpu-pool/us", "unused/x": "unused/x", "gone/other": "", "gpu": "", "": "",
	} {
		var got []string
		for _, l := range Matching(all, "team-a", name) {
			got = append(got, l.Lock)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

// mutations: order, or heldText, without the rate makes this fail.
func TestWhoWaitsForARateIsToldSo(t *testing.T) {
	asks := v1alpha1.LockRequest{Semaphore: "pool", Key: "eu"}
	s := LockSight{
		Whole: true, Now: lockNow,
		Runs: []v1alpha1.WorkflowRun{holds("begun", 7, "pool/eu"), waitsLock("first", 1, 0, "pool/eu", asks), waitsLock("second", 2, 0, "pool/eu", asks)},
		Semaphores: []v1alpha1.Semaphore{semaphore("pool", 4, func(s *v1alpha1.Semaphore) {
			s.Spec.Rate = &v1alpha1.LockRate{Starts: 10, PerSeconds: 60}
		})},
	}
	text := lockText(t, Locks(s), 10)
	if !strings.Contains(text, "2 of 4, 10 in 60s") || strings.Count(text, "there is room: it waits for its rate, 10 in 60 s") != 2 {
		t.Error(text)
	}
}

// mutation: room that is claimed for who asks for nobody knows what makes this fail.
func TestRoomIsNotClaimedForWhoseLocksAreNotKnown(t *testing.T) {
	s := LockSight{
		Whole: true, Now: lockNow, Semaphores: []v1alpha1.Semaphore{semaphore("pool", 4), semaphore("full", 2)},
		Runs: []v1alpha1.WorkflowRun{holds("begun", 7, "pool/eu", "full/eu"), waitsLock("a", 1, 0, "pool/eu"), waitsLock("b", 2, 0, "full/eu"), waitsLock("c", 3, 0, "mutex:team-a/m")},
	}
	text := strings.Join(strings.Fields(lockText(t, Locks(s), 10)), " ")
	for _, want := range []string{
		"team-a/a - ? 29m ago - 2 of 4 free; it is not known how many permits it needs, and of which other locks",
		"team-a/b - ? 28m ago - no room: 0 of 2 free",
		"team-a/c - 1 27m ago - 1 of 1 free; it is not known how many permits it needs, and of which other locks",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
}

// mutations: holds, or waits, without the items, or lockWaitOf without them, makes this fail.
func TestLocksOfItemsAsPeopleSeeThem(t *testing.T) {
	spread := underWay("spread", "acme", "")
	spread.Spec.Steps = []v1alpha1.Step{{Name: "all", ForEach: &v1alpha1.ForEach{Locks: []v1alpha1.LockRequest{{Mutex: "h-${item}"}}}}}
	name := "mutex:" + spread.Namespace + "/h-1"
	spread.Status.Steps = []v1alpha1.StepStatus{{Name: "all", Phase: v1alpha1.StepRunning, ForEach: &v1alpha1.ForEachStatus{
		Total: 9, Begun: 4, Succeeded: 1, Groups: []v1alpha1.ItemGroup{{Items: "1", Phase: v1alpha1.StepDispatched}, {Items: "2-3", Phase: v1alpha1.StepPending}},
		Locks: []v1alpha1.ItemLocks{
			{Item: 1, Locks: []v1alpha1.LockHold{{Name: name, Permits: 1, Fence: 5}}},
			{Item: 2, LockWait: &v1alpha1.LocksWait{Lock: name, StartedAt: metav1.NewTime(midnight)}},
			{Item: 3, LockWait: &v1alpha1.LocksWait{Lock: name, StartedAt: metav1.NewTime(midnight)}},
		},
	}}}
	spread.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Reason: v1alpha1.ReasonWaitingForLock}}
	all := Locks(LockSight{Whole: true, Now: lockNow, Runs: []v1alpha1.WorkflowRun{spread}})
	text := strings.Join(strings.Fields(lockText(t, all, 10)), " ")
	for _, want := range []string{"holds team-a/spread all item 1 1 - 5 Dispatched", "1 of 2 team-a/spread all item 2", "2 of 2 team-a/spread all item 3"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if !WaitsForLocks(&spread) {
		t.Error("the run waits for no lock")
	}
	a := Why(&spread, nil, lockNow)
	a.WaitsFor(all)
	var b strings.Builder
	if err := a.Text(&b, lockNow, false); err != nil {
		t.Fatal(err)
	}
	if said := strings.Join(strings.Fields(b.String()), " "); !strings.Contains(said, "held by team-a/spread step all item 1") || !strings.Contains(said, "2 waiting for locks") {
		t.Errorf("why says\n%s", b.String())
	}
}

// mutation: waits that decides for each of the items makes this fail.
func TestWhatARunAsksForIsDecidedOnce(t *testing.T) {
	t.Parallel()
	run, at := underWay("spread", "acme", ""), metav1.NewTime(midnight)
	run.Status.Phase, run.Status.StartedAt, run.Status.Admission = v1alpha1.RunRunning, &at, &v1alpha1.AdmissionStatus{AdmittedAt: &at}
	run.Spec.Steps = []v1alpha1.Step{{Name: "all", Job: &v1alpha1.Job{Topic: "t"}, ForEach: &v1alpha1.ForEach{
		Items: "${inputs.list}", MaxParallel: 50, Locks: []v1alpha1.LockRequest{{Mutex: "h-${item}"}, {Mutex: "g-${item}"}},
	}}}
	run.Spec.Inputs = &runtime.RawExtension{Raw: []byte(`{"list":[` + strings.Repeat("1,", 49) + `2]}`)}
	of := &v1alpha1.ForEachStatus{Total: 50, Begun: 50, Groups: []v1alpha1.ItemGroup{{Items: "0-49", Phase: v1alpha1.StepPending}}}
	for i := range int32(50) {
		of.Locks = append(of.Locks, v1alpha1.ItemLocks{Item: i, LockWait: &v1alpha1.LocksWait{Lock: "mutex:" + run.Namespace + "/h-1", StartedAt: metav1.NewTime(midnight)}})
	}
	run.Status.Steps = []v1alpha1.StepStatus{{Name: "all", Phase: v1alpha1.StepRunning, ForEach: of}}
	a := table{LockSight: LockSight{Whole: true, Now: lockNow}, all: map[string]*Lock{}}
	a.waits(&run)
	if g := a.all["mutex:"+run.Namespace+"/g-1"]; a.decided != 1 || g == nil || len(g.Waiters) < 40 {
		t.Errorf("decided %d times: %+v", a.decided, a.all)
	}
}

// mutation: asks of a run with the places that it has makes this fail.
func TestWhatEachStepAsksForIsKnownWhereThereAreFewPlaces(t *testing.T) {
	t.Parallel()
	run, at := underWay("two", "acme", ""), metav1.NewTime(midnight)
	run.Status.Phase, run.Status.StartedAt, run.Status.Admission = v1alpha1.RunRunning, &at, &v1alpha1.AdmissionStatus{AdmittedAt: &at}
	run.Spec.Inputs, run.Spec.MaxParallelSteps = &runtime.RawExtension{Raw: []byte(`{"x":"1"}`)}, 1
	for _, name := range []string{"a", "b"} {
		run.Spec.Steps = append(run.Spec.Steps, v1alpha1.Step{
			Name: name, Job: &v1alpha1.Job{Topic: "t"}, Locks: []v1alpha1.LockRequest{{Mutex: name + "-${inputs.x}"}, {Mutex: "g-${inputs.x}"}},
		})
		wait := &v1alpha1.LocksWait{Lock: "mutex:" + run.Namespace + "/" + name + "-1", StartedAt: at}
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: name, Phase: v1alpha1.StepPending, LockWait: wait})
	}
	a := table{LockSight: LockSight{Whole: true, Now: lockNow}, all: map[string]*Lock{}}
	a.waits(&run)
	if g := a.all["mutex:"+run.Namespace+"/g-1"]; a.decided != 1 || g == nil || len(g.Waiters) != 2 {
		t.Errorf("decided %d times: %+v", a.decided, a.all)
	}
}

// mutation: partsText that tells of all locks makes this fail.
func TestManyLocksAreBounded(t *testing.T) {
	s := LockSight{Whole: true, Now: lockNow, Semaphores: []v1alpha1.Semaphore{semaphore("pool", 1)}}
	for i := range 300 {
		s.Runs = append(s.Runs, holds(fmt.Sprintf("h%d", i), int64(i+1), fmt.Sprintf("pool/%d", i)), waitsLock(fmt.Sprintf("w%d", i), i, 0, "pool/0"))
	}
	locks := Locks(s)
	text := lockText(t, locks, 3)
	for _, want := range []string{"and 200 locks more", "those of 280 locks more", "and 297 more that wait", "1 of 300", "3 of 300"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "\n"); n > 200 || strings.Contains(text, "4 of 300") {
		t.Errorf("%d lines", n)
	}
	if b := locks[0].Bounded(0); len(b.Waiters) != 300 {
		t.Errorf("0 bounds to %d", len(b.Waiters))
	}
}

// mutation: queued that counts who waits for locks makes this fail.
func TestWhyNamesTheLockItsHoldersAndThePlace(t *testing.T) {
	s := lockScene()
	all := Locks(s)
	for name, want := range map[string]string{
		"old":     "lock gpu-pool/eu          place 2 of 2 for it; no room: 0 of 4 free; held by team-a/early, team-a/late",
		"migrate": "lock mutex:team-a/deploy  place 1 of 2 for it; no room: 0 of 1 free; held by team-a/asleep, since 2026-01-02T00:12:00Z",
	} {
		for i := range s.Runs {
			run := &s.Runs[i]
			if run.Name != name {
				continue
			}
			a := Why(run, nil, lockNow)
			a.WaitsFor(all)
			var b strings.Builder
			if err := a.Text(&b, lockNow, false); err != nil {
				t.Fatal(err)
			}
			if text := strings.Join(strings.Fields(b.String()), " "); !WaitsForLocks(run) || len(a.Locks) != 1 || !strings.Contains(text, strings.Join(strings.Fields(want), " ")) {
				t.Errorf("%s is not told %q:\n%s", name, want, b.String())
			}
			if p := PlaceOf(run, s.Runs, nil, true); p != nil {
				t.Errorf("%s has a place %+v in the line of its tenant", name, p)
			}
		}
	}
	if free := underWay("free", "acme", ""); WaitsForLocks(&free) {
		t.Error("a run without locks waits for some")
	}
}

// mutations: asked that evaluates the expressions of outlines, or not those of Run, and runs that
// has both, make this fail.
func TestOfOutlinesNoExpressionIsEvaluated(t *testing.T) {
	s := lockScene()
	i := slices.IndexFunc(s.Runs, func(r v1alpha1.WorkflowRun) bool { return r.Name == "two" })
	whole := s.Runs[i]
	s.Runs[i].Spec.Inputs = &runtime.RawExtension{Raw: []byte(`{"key":"guessed"}`)}
	s.Outlines = true
	if text := lockText(t, Locks(s), 10); strings.Contains(text, "strict/guessed") || !strings.Contains(text, "mutex:team-a/deploy") {
		t.Errorf("outlines tell\n%s", text)
	}
	s.Run = &whole
	for i := range s.Runs {
		s.Runs[i].UID = types.UID(s.Runs[i].Name)
	}
	whole.UID = "two"
	if got, want := lockText(t, Locks(s), 10), lockText(t, Locks(lockScene()), 10); got != want {
		t.Errorf("with the whole run they tell\n%s\nwant\n%s", got, want)
	}
}

// mutation: own priorities and ages of child runs in settle, or standings without Tops, make this
// fail.
func TestAChildRunStandsInLineWhereTheRunAtTheTopDoes(t *testing.T) {
	pool := v1alpha1.LockRequest{Semaphore: "pool", Key: "eu"}
	child := func(name, root string, minute int) v1alpha1.WorkflowRun {
		run := waitsLock(name, minute, 0, "pool/eu", pool)
		run.Status.Parent = &v1alpha1.ParentStatus{Name: root, Root: root}
		return run
	}
	urgent, batch := underWay("urgent", "acme", ""), underWay("batch", "acme", "")
	urgent.Spec.Priority, batch.Spec.Priority = 1000, -1000
	later := underWay("later", "acme", "")
	later.Spec.Priority, later.CreationTimestamp = 1000, metav1.NewTime(midnight.Add(20*time.Minute))
	s := LockSight{Runs: []v1alpha1.WorkflowRun{
		urgent, batch, later, waitsLock("usual", 3, 0, "pool/eu", pool), child("of-urgent", "urgent", 9), child("of-batch", "batch", 1),
		child("of-nobody", "gone", 4), child("of-another", "later", 5), // the run of that name is younger
		child("of-ended", "ended", 8),
	}, Semaphores: []v1alpha1.Semaphore{semaphore("pool", 0)}, Whole: true, Now: lockNow}
	ended := waiting("ended", "acme", 0, 500)
	s.Tops.Ended = []v1alpha1.WorkflowRun{ended}
	var order []string
	for _, w := range Matching(Locks(s), "", "pool")[0].Waiters {
		order = append(order, w.Name)
	}
	if want := []string{"of-urgent", "of-ended", "usual", "of-nobody", "of-another", "of-batch"}; !slices.Equal(order, want) {
		t.Errorf("%v, not %v", order, want)
	}
}

// mutations: busy that looks at hidden namespaces only, or free that leaves out what no status
// tells, makes this fail.
func TestALockThatOnlyTheOperatorKnowsIsHeldIsNotShownAsFree(t *testing.T) {
	told := v1alpha1.LockRequest{Mutex: "deploy"}
	s := LockSight{
		Runs: []v1alpha1.WorkflowRun{
			holds("told", 7, "pool/us"), waitsLock("next", 1, 0, "pool/eu", v1alpha1.LockRequest{Semaphore: "pool", Key: "eu"}),
			waitsLock("behind", 2, 0, "mutex:team-a/deploy", told), waitsLock("new", 29, 0, "mutex:team-a/new", v1alpha1.LockRequest{Mutex: "new"}),
		},
		Semaphores: []v1alpha1.Semaphore{semaphore("pool", 4, func(s *v1alpha1.Semaphore) {
			s.Status = &v1alpha1.SemaphoreStatus{Busiest: []v1alpha1.KeyStatus{
				{Key: "eu", Held: 4, Holder: "team-a/frozen"}, {Key: "us", Held: 3, Holder: "team-a/told"}, {Key: "old"},
			}}
		})},
		Whole: true, Now: lockNow,
	}
	text := lockText(t, Locks(s), 10)
	for _, want := range []string{
		"no room: 0 of 4 free", "pool/eu: 4 permits are held of which no status of a run under way tells, by team-a/frozen for the longest",
		"pool/us: 1 permits are held of which no status of a run under way tells (", "no status tells who has it", "there is room: it is to be woken",
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("it does not say %q once:\n%s", want, text)
		}
	}
	if strings.Contains(text, "pool/old") {
		t.Errorf("it tells of a key that nobody uses:\n%s", text)
	}
}
