// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func withStepLocks(all ...v1alpha1.LockRequest) func(*v1alpha1.Step) {
	return func(s *v1alpha1.Step) { s.Locks = all }
}

func mutexOf(mutex string) v1alpha1.LockRequest { return v1alpha1.LockRequest{Mutex: mutex} }

// lockedRun has spec.locks: a mutex by its tenant, and two permits of a semaphore.
func lockedRun() *v1alpha1.WorkflowRun {
	run := newRun(newStep("a"), newStep("b", after("a"), withStepLocks(mutexOf("db-${steps.a.output}"))))
	run.Spec.Locks = []v1alpha1.LockRequest{mutexOf("m-${run.tenant}"), {Semaphore: "gpus", Key: "eu", Permits: new(int32(2))}}
	return run
}

func heldWith(fence int64) LocksAnswer { return LocksAnswer{State: LocksHeld, Fence: fence} }

var waitsFor = LocksAnswer{
	State: LocksWaiting, Lock: "gpus/eu", Holders: []string{"x/y"}, Position: 2, Queued: 3, Ahead: "x/z", TTL: time.Minute,
}

// decideLocked decides with answers about locks, and persists.
func decideLocked(t *testing.T, run *v1alpha1.WorkflowRun, now time.Time, locks map[string]LocksAnswer, results ...Result) Decision {
	t.Helper()
	in := letIn(Input{Run: run, Now: now, Lock: held(1), Results: results, Locks: locks})
	out := Decide(in)
	if out.Changed {
		run.Status = persisted(t, &out.Status)
	}
	return out
}

// The jobs of a child run carry the fences of all locks that it is inside of; they are pinned when
// it is first seen, so an operator that does not know them may not write it.
//
// mutations: FencesOf without Above, and write without it, make this fail.
func TestJobsOfAChildCarryTheFencesOfThoseAbove(t *testing.T) {
	run := ownedRun(newStep("a", withStepLocks(mutexOf("own"))), newStep("b"))
	parent := aParent()
	parent.Status.Locks = []v1alpha1.LockHold{hold("gpus/eu", 7)}
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Parent: facts.SeenParent(run, parent), Locks: map[string]LocksAnswer{"a": heldWith(9)}})
	out := Decide(in)
	plain := ownedRun(newStep("b"))
	none := Decide(letIn(Input{Run: plain, Now: epoch, Lock: held(1), Parent: facts.SeenParent(plain, parent)}))
	if got := none.Status.MinWriterVersion; got != v1alpha1.LocksVersion {
		t.Errorf("a run without locks of its own may be written by version %d", got)
	}
	own := "mutex:" + run.Namespace + "/own=9"
	var got [][]string
	for _, job := range out.Dispatch {
		got = append(got, job.Locks)
	}
	if diff := cmp.Diff([][]string{{"gpus/eu=7", own}, {"gpus/eu=7"}}, got); diff != "" {
		t.Errorf("fences (-want +got):\n%s", diff)
	}
}

// Who waits for a rate asks again when it is over, and writes nothing for that.
//
// mutation: lockWaits without addLockWait's second line makes this fail.
func TestWhoWaitsForARateAsksAgainAtItsTime(t *testing.T) {
	late := waitsFor
	late.TTL, late.Again = 0, epoch.Add(20*time.Second)
	run := newRun(newStep("a"), newStep("b", withStepLocks(mutexOf("db"))))
	out := decideLocked(t, run, epoch, map[string]LocksAnswer{"b": late})
	if !out.Changed || !out.Wake.Equal(late.Again) {
		t.Fatalf("changed %t, wakes at %s, want %s", out.Changed, out.Wake, late.Again)
	}
	if out = decideLocked(t, run, epoch.Add(time.Second), map[string]LocksAnswer{"b": late}); out.Changed || !out.Wake.Equal(late.Again) {
		t.Errorf("after it was written: changed %t, wakes at %s", out.Changed, out.Wake)
	}
	whole := newRun(newStep("a"))
	whole.Spec.Locks = []v1alpha1.LockRequest{{Semaphore: "gpus"}}
	out = decideLocked(t, whole, epoch, map[string]LocksAnswer{"": late})
	c := status.Condition(&out.Status, v1alpha1.ConditionAdmitted)
	if want := "until its rate lets one begin at " + late.Again.UTC().Format(time.RFC3339); !strings.Contains(c.Message, want) || !out.Wake.Equal(late.Again) {
		t.Errorf("a run that waits is told %q, and wakes at %s", c.Message, out.Wake)
	}
}

// A run is admitted with its locks in the same write, its jobs carry their fences, a step takes its
// own when it begins, and what is over has none.
//
// mutations: admission without lockRun, jobs without LockFences, releaseLocks that does nothing,
// make
// this fail.
func TestLocksAreInStatusWithWhatTheyProtect(t *testing.T) {
	run := lockedRun()
	out := decideLocked(t, run, epoch, nil)
	mutex := "mutex:" + run.Namespace + "/m-team-a"
	want := []facts.LocksAsk{{Wants: []facts.LockWant{{Name: mutex, Permits: 1}, {Name: "gpus/eu", Permits: 2}}}}
	if diff := cmp.Diff(want, out.Needs.Locks); diff != "" || len(out.Dispatch) > 0 || !out.Needs.Any() {
		t.Fatalf("asks (-want +got):\n%s; dispatches %v", diff, out.Dispatch)
	}
	out = decideLocked(t, run, epoch, map[string]LocksAnswer{"": heldWith(7)})
	holds := []v1alpha1.LockHold{{Name: mutex, Permits: 1, Fence: 7}, {Name: "gpus/eu", Permits: 2, Fence: 7}}
	if diff := cmp.Diff(holds, out.Status.Locks); diff != "" || out.Status.MinWriterVersion != v1alpha1.LocksVersion {
		t.Fatalf("held (-want +got):\n%s; version %d", diff, out.Status.MinWriterVersion)
	}
	if got := out.Dispatch[0].Locks; !slices.Equal(got, []string{mutex + "=7", "gpus/eu=7"}) {
		t.Errorf("the job has %v", got)
	}
	out = decideLocked(t, run, epoch, nil, succeeded("a", 1, `"x"`))
	if len(out.Needs.Locks) != 1 || out.Needs.Locks[0].Part != "b" || len(out.Dispatch) > 0 {
		t.Fatalf("asks %v, dispatches %v", out.Needs.Locks, out.Dispatch)
	}
	out = decideLocked(t, run, epoch, map[string]LocksAnswer{"b": heldWith(8)})
	own := "mutex:" + run.Namespace + "/db-x"
	if got := out.Dispatch[0].Locks; len(got) != 3 || got[2] != own+"=8" {
		t.Fatalf("the job has %v", got)
	}
	if j, err := JobOf(run, job("b", 1), nil); err != nil || !slices.Equal(j.Locks, out.Dispatch[0].Locks) {
		t.Errorf("rendered again it has %v, %v", j.Locks, err)
	}
	out = decideLocked(t, run, epoch, nil, succeeded("b", 1, `1`))
	if got := outcomeOf(&out.Status); got != "Succeeded/Succeeded" || len(out.Status.Locks)+len(out.Status.Steps[1].Locks) > 0 {
		t.Errorf("%s with %v", got, out.Status.Locks)
	}
}

// mutations: awaitLocks that does not note the wait, or that notes it anew, a message that follows
// the
// queue, make this fail.
func TestAWaitForLocksIsToldOnceAndBounded(t *testing.T) {
	run := lockedRun()
	out := decideLocked(t, run, epoch, map[string]LocksAnswer{"": waitsFor})
	c := status.Condition(&out.Status, v1alpha1.ConditionAdmitted)
	text := "Waits for lock gpus/eu; place 2 of 3 in its queue at " + epoch.UTC().Format(time.RFC3339) + ", held by x/y, behind x/z"
	if c.Reason != v1alpha1.ReasonWaitingForLock || c.Message != text {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	if got := out.Status.Admission.LockWait; got == nil || got.Lock != "gpus/eu" || !out.Wake.Equal(epoch.Add(time.Minute)) || len(out.Status.Locks) > 0 {
		t.Errorf("waits %v, wake %s", got, out.Wake)
	}
	lowered := waitsFor
	lowered.Position, lowered.Ahead = 0, ""
	text = "Waits for lock gpus/eu; no place in a queue at " + epoch.UTC().Format(time.RFC3339) + ", as more permits are asked for than there are, held by x/y"
	out = decideLocked(t, lockedRun(), epoch, map[string]LocksAnswer{"": lowered})
	if c := status.Condition(&out.Status, v1alpha1.ConditionAdmitted); c.Message != text {
		t.Errorf("more than there is: %s", c.Message)
	}
	moved := waitsFor
	moved.Position, moved.Ahead, moved.Lock = 1, "", "other"
	if out = decideLocked(t, run, epoch.Add(59*time.Second), map[string]LocksAnswer{"": moved}); out.Status.Admission.LockWait.Lock != "gpus/eu" {
		t.Error("the wait is noted anew")
	}
	if out = decideLocked(t, run, epoch.Add(time.Minute), map[string]LocksAnswer{"": waitsFor}); outcomeOf(&out.Status) != "TimedOut/LockQueueTimeout" {
		t.Errorf("%s", outcomeOf(&out.Status))
	}

	run = lockedRun()
	decideLocked(t, run, epoch, map[string]LocksAnswer{"": waitsFor})
	out = decideLocked(t, run, epoch, map[string]LocksAnswer{"": {State: LocksUnavailable, Cause: "no Redis"}})
	if c := status.Condition(&out.Status, v1alpha1.ConditionAdmitted); c.Reason != v1alpha1.ReasonAdmissionUnavailable {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
}

// A place in the queue of a lock is only good with a slot: whoever has none keeps permits from
// others as long as its gate, or its key, gives no answer.
//
// mutation: passGate that leaves the place in any of these states makes this fail; so does claimed.
func TestWhoHasNoSlotKeepsNoPlaceInTheQueueOfALock(t *testing.T) {
	for name, ask := range map[string]func(*Input){
		"the tenant is at its limit":  func(in *Input) { in.Gate = full(1) },
		"the gate's lock is busy":     func(in *Input) { in.Gate = Gate{State: GateBusy} },
		"the gate is being rebuilt":   func(in *Input) { in.Gate = Gate{State: GateRebuilding} },
		"the gate cannot be asked":    func(in *Input) { in.Gate = Gate{State: GateUnavailable} },
		"the gate lets it wait":       func(in *Input) { in.Gate = Gate{State: GateAsked} },
		"its key cannot be claimed":   func(in *Input) { in.Claim = Claim{State: ClaimUnavailable} },
		"nobody asked the gate yet":   func(in *Input) { in.Gate = Gate{} },
		"nobody claimed its key yet":  func(in *Input) { in.Claim = Claim{} },
		"the gate is open as before":  func(*Input) {},
		"its locks are not to be had": func(in *Input) { in.Locks = map[string]LocksAnswer{"": {State: LocksUnavailable}} },
	} {
		run := lockedRun()
		run.Spec.IdempotencyKey = "k"
		in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Claim: Claim{State: ClaimOurs}, Locks: map[string]LocksAnswer{"": waitsFor}})
		out := Decide(in)
		run.Status = persisted(t, &out.Status)
		ask(&in)
		in.Now = epoch.Add(time.Second)
		keeps := strings.HasPrefix(name, "nobody") || strings.HasSuffix(name, "as before") || strings.HasPrefix(name, "its locks")
		if out = Decide(in); (out.Status.Admission.LockWait != nil) != keeps {
			t.Errorf("%s: it keeps its place: %t", name, !keeps)
		}
	}
}

// What waits says who has the lock, also where only the operator knows it: of a run that has ended,
// say. It says it once, as the holders change all the time, and each message is a write.
//
// mutations: moreText without holdersText, or holdersText that follows each answer, or forgets what
// was said without one, make this fail.
func TestAStepThatWaitsSaysWhoHadTheLock(t *testing.T) {
	run := newRun(newStep("a", withStepLocks(mutexOf("x"))), newStep("b", withStepLocks(mutexOf("x"))))
	said := func(out *Decision) string {
		return status.Condition(&out.Status, v1alpha1.ConditionSucceeded).Message
	}
	answers := func(holders ...string) map[string]LocksAnswer {
		next := waitsFor
		next.Holders = holders
		return map[string]LocksAnswer{"a": next, "b": waitsFor}
	}
	out := decideLocked(t, run, epoch, answers("n/m", "n/o"))
	since := epoch.UTC().Format(time.RFC3339)
	want := "0 of 2 steps finished; a waits for lock gpus/eu since " + since + ", held then by n/m, n/o; b waits for lock gpus/eu since " + since + ", held then by x/y"
	if got := said(&out); got != want {
		t.Fatalf("it says %q\nwant %q", got, want)
	}
	for name, next := range map[string]map[string]LocksAnswer{"others have it": answers("n/p"), "nobody has it": answers(), "nobody was asked": nil} {
		if out := decideLocked(t, run, epoch.Add(time.Second), next); out.Changed || said(&out) != want {
			t.Errorf("%s: changed %t, %q", name, out.Changed, said(&out))
		}
	}
	long := newRun(newStep("a", withStepLocks(mutexOf("x"))))
	out = decideLocked(t, long, epoch, answers(strings.Repeat("n", 300), "z"))
	if got := said(&out); !strings.HasSuffix(got, "…") || len(got) > 300 {
		t.Errorf("long names make it %d bytes: %s", len(got), got)
	}
	if out = decideLocked(t, long, epoch.Add(time.Second), answers("z")); out.Changed {
		t.Errorf("long names are written again: %s", said(&out))
	}
}

// mutations: starts.go without lockStep, a place that a waiting step takes, or one that it keeps
// in the
// queue while the run is suspended, make this fail.
func TestAStepThatWaitsForItsLocks(t *testing.T) {
	run := newRun(newStep("a", withStepLocks(mutexOf("x"))), newStep("b", withStepLocks(mutexOf("x"))))
	run.Spec.MaxParallelSteps = 1
	out := decideLocked(t, run, epoch, map[string]LocksAnswer{"a": waitsFor, "b": waitsFor})
	if got := outcomeOf(&out.Status); got != "Running/WaitingForLock" || out.Status.Steps[0].LockWait == nil || out.Status.Steps[1].LockWait == nil {
		t.Fatalf("%s, %+v", got, out.Status.Steps)
	}
	c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
	if !strings.Contains(c.Message, "a waits for lock gpus/eu since ") || !out.Wake.Equal(epoch.Add(time.Minute)) {
		t.Errorf("%s; wake %s", c.Message, out.Wake)
	}
	out = decideLocked(t, run, epoch, map[string]LocksAnswer{"a": heldWith(7), "b": waitsFor})
	if len(out.Dispatch) != 1 || out.Status.Steps[0].LockWait != nil || out.Status.Steps[1].LockWait != nil {
		t.Fatalf("dispatches %v; b waits without a place: %v", out.Dispatch, out.Status.Steps[1].LockWait)
	}
	out = decideLocked(t, run, epoch.Add(time.Second), map[string]LocksAnswer{"b": waitsFor}, succeeded("a", 1, `1`))
	if out.Status.Steps[1].LockWait == nil {
		t.Fatal("b does not wait")
	}
	run.Spec.Suspend = true
	if out = decideLocked(t, run, epoch.Add(time.Second), nil); out.Status.Steps[1].LockWait != nil {
		t.Error("it waits while the run is suspended")
	}
	run.Spec.Suspend = false
	out = decideLocked(t, run, epoch.Add(2*time.Second), map[string]LocksAnswer{"b": {State: LocksRefused, Reason: v1alpha1.ReasonLocksBusy, Lock: "x", Holders: []string{"n/m"}}})
	if e := out.Status.Steps[1].Error; e == nil || e.Code != v1alpha1.ReasonLocksBusy || !strings.Contains(e.Message, "held by n/m") || outcomeOf(&out.Status) != "Failed/StepFailed" {
		t.Errorf("%+v, %s", e, outcomeOf(&out.Status))
	}
}

// mutation: LocksRefused without its phases makes this fail.
func TestHowARunEndsThatDoesNotGetItsLocks(t *testing.T) {
	for reason, want := range map[string]string{
		v1alpha1.ReasonLocksBusy: "Failed/LockBusy", v1alpha1.ReasonLockQueueFull: "Failed/LockQueueFull",
		v1alpha1.ReasonLockSuperseded: "Cancelled/Superseded", v1alpha1.ReasonLockUnusable: "Failed/LockUnusable",
	} {
		out := decideLocked(t, lockedRun(), epoch, map[string]LocksAnswer{"": {State: LocksRefused, Reason: reason, Lock: "gpus/eu", Cause: "why"}})
		if got := outcomeOf(&out.Status); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for name, run := range map[string]*v1alpha1.WorkflowRun{
		"a key that is no text":  newRun(newStep("a")),
		"a key with a space":     newRun(newStep("a")),
		"a lock that is twice":   newRun(newStep("a")),
		"inputs that are broken": newRun(newStep("a")),
		"an expression fails":    newRun(newStep("a")),
	} {
		requests := map[string][]v1alpha1.LockRequest{
			"a key that is no text": {mutexOf("${1 + 1}")}, "a key with a space": {mutexOf("a b")}, "a lock that is twice": {mutexOf("a"), mutexOf("a")},
			"inputs that are broken": {mutexOf("a")}, "an expression fails": {mutexOf("${inputs.none}")},
		}
		run.Spec.Locks = requests[name]
		if name == "inputs that are broken" {
			decideLocked(t, run, epoch, map[string]LocksAnswer{"": waitsFor})
			run.Spec.Inputs = &runtime.RawExtension{Raw: []byte(`{`)}
		}
		if out := decideLocked(t, run, epoch, nil); outcomeOf(&out.Status) != "Failed/LockUnusable" {
			t.Errorf("%s: %s", name, outcomeOf(&out.Status))
		}
	}
}

// The key of a step's lock may read an output that is in the object store.
//
// mutation: Locks without loaded makes this fail.
func TestAKeyThatReadsAnOutputInTheObjectStore(t *testing.T) {
	run := newRun(newStep("a"), newStep("b", after("a"), withStepLocks(mutexOf("db-${steps.a.output}"))))
	decideLocked(t, run, epoch, nil)
	s := &run.Status.Steps[0]
	s.Phase, s.CompletedAt = v1alpha1.StepSucceeded, &metav1.MicroTime{Time: epoch}
	ref := protocol.NewOutputRef(job("a", 1), []byte(`"x"`))
	s.OutputRef = &v1alpha1.OutputReference{Name: ref.Name, Digest: ref.Digest, Size: ref.Size}
	out := Decide(letIn(Input{Run: run, Now: epoch, Lock: held(1)}))
	if len(out.Needs.Load) != 1 || len(out.Needs.Locks) > 0 {
		t.Errorf("needs %+v", out.Needs)
	}
}

// A lock is in status before what it protects is dispatched.
//
// mutation: mayLag that does not ask for locks makes this fail.
func TestARunWithLocksIsNeverAheadOfItsStatus(t *testing.T) {
	for of, locked := range map[string]func(*v1alpha1.Step){
		"none": nil, "a step": func(b *v1alpha1.Step) { b.Locks = []v1alpha1.LockRequest{mutexOf("x")} },
		"items": func(b *v1alpha1.Step) {
			b.ForEach = &v1alpha1.ForEach{Items: "${[1]}", Locks: []v1alpha1.LockRequest{mutexOf("x")}}
		},
	} {
		run := newRun(newStep("a"), newStep("b", after("a")))
		if locked != nil {
			locked(&run.Spec.Steps[1])
		}
		decideLocked(t, run, epoch, nil)
		in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Results: []Result{succeeded("a", 1, `1`)}, Locks: map[string]LocksAnswer{"b": heldWith(7), "b/0": heldWith(7)}})
		in.Checkpoint = Checkpoint{Coalesced: true}
		if out := Decide(in); out.MayLag != (locked == nil) || len(out.Dispatch) != 1 {
			t.Errorf("locks of %s: may lag %t, dispatches %v", of, out.MayLag, out.Dispatch)
		}
	}
}

// mutation: a template that is put together by hand, without escaping, makes this fail: what is
// evaluated is good, and the check finds bad JSON.
func TestTheKeyOfALockMayHaveLines(t *testing.T) {
	run := newRun(newStep("a"))
	run.Spec.Locks = []v1alpha1.LockRequest{mutexOf("${'x' +\n\t\"y\"}")}
	out := decideLocked(t, run, epoch, nil)
	if len(out.Needs.Locks) != 1 || out.Needs.Locks[0].Wants[0].Name != "mutex:"+run.Namespace+"/xy" {
		t.Errorf("%+v, %s", out.Needs.Locks, outcomeOf(&out.Status))
	}
}

// mutation: each check of dag/locks.go that is left out makes this fail.
func TestLocksThatCannotBe(t *testing.T) {
	nine := slices.Repeat([]v1alpha1.LockRequest{mutexOf("x")}, 9)
	zero := int32(0)
	for want, change := range map[string]func(*v1alpha1.WorkflowRun){
		"spec.locks: 9 locks, more than 8":         func(r *v1alpha1.WorkflowRun) { r.Spec.Locks = nine },
		"needs exactly one of semaphore and mutex": func(r *v1alpha1.WorkflowRun) { r.Spec.Locks = []v1alpha1.LockRequest{{}} },
		"a mutex has neither key nor permits":      func(r *v1alpha1.WorkflowRun) { r.Spec.Locks = []v1alpha1.LockRequest{{Mutex: "a", Key: "b"}} },
		"is no name of a Semaphore":                func(r *v1alpha1.WorkflowRun) { r.Spec.Locks = []v1alpha1.LockRequest{{Semaphore: "A b"}} },
		"fewer permits than 1":                     func(r *v1alpha1.WorkflowRun) { r.Spec.Locks = []v1alpha1.LockRequest{{Semaphore: "a", Permits: &zero}} },
		"a key of 513 bytes": func(r *v1alpha1.WorkflowRun) {
			r.Spec.Locks = []v1alpha1.LockRequest{mutexOf(strings.Repeat("a", 513))}
		},
		"spec.locks: it is taken before any step": func(r *v1alpha1.WorkflowRun) { r.Spec.Locks = []v1alpha1.LockRequest{mutexOf("${steps.a.output}")} },
		"spec.steps[1].locks: step \"a\" is read but not depended on": func(r *v1alpha1.WorkflowRun) {
			r.Spec.Steps[1].Locks = []v1alpha1.LockRequest{mutexOf("${steps.a.output}")}
		},
		"spec.steps[1].locks: expression \"item\"": func(r *v1alpha1.WorkflowRun) {
			r.Spec.Steps[1].ForEach, r.Spec.Steps[1].Locks = &v1alpha1.ForEach{Items: "${[1]}"}, []v1alpha1.LockRequest{mutexOf("${item}")}
		},
		"spec.steps[1].forEach.locks: 9 locks, more than 8": func(r *v1alpha1.WorkflowRun) {
			r.Spec.Steps[1].ForEach = &v1alpha1.ForEach{Items: "${[1]}", Locks: nine}
		},
		"may have 64 locks together": func(r *v1alpha1.WorkflowRun) {
			for i := range 7 {
				s := newStep("s" + string(rune('0'+i)))
				s.Locks = nine
				r.Spec.Steps = append(r.Spec.Steps, s)
			}
			r.Spec.Locks = nine
		},
	} {
		run := newRun(newStep("a"), newStep("b"))
		change(run)
		out := decideLocked(t, run, epoch, nil)
		c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
		if outcomeOf(&out.Status) != "Failed/InvalidSpec" || !strings.Contains(c.Message, want) {
			t.Errorf("%s: %s: %s", want, outcomeOf(&out.Status), c.Message)
		}
	}
	run := lockedRun()
	in := letIn(Input{Run: run, Now: epoch.Add(time.Hour), Lock: held(1)})
	in.Parent = &Parent{Claim: v1alpha1.ParentStatus{Name: "p", UID: "u"}, Named: true, Tenant: "team-a"}
	if out := Decide(in); outcomeOf(&out.Status) != "Failed/InvalidSpec" {
		t.Errorf("a child run with locks of its own: %s", outcomeOf(&out.Status))
	}
}
