// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// slowGates answer when the test lets them, tenant by tenant.
type slowGates struct {
	mu      sync.Mutex
	free    map[string]chan struct{} // closed: the lock of the tenant is free
	inside  map[string]int           // questions that poll now
	most    map[string]int
	left    []types.UID // released
	givenUp []types.UID
	gone    []types.UID // forgotten
	entered chan string
	by      map[types.UID]policy.Effective // what each was asked by
}

func (s *slowGates) Admit(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, p policy.Effective) (store.Answer, error) {
	s.mu.Lock()
	s.by[run.UID] = p
	s.inside[tenant]++
	s.most[tenant] = max(s.most[tenant], s.inside[tenant])
	free := s.free[tenant]
	s.mu.Unlock()
	s.entered <- tenant
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inside[tenant]--
	}()
	select {
	case <-free:
		return store.Answer{Admitted: true}, nil
	case <-ctx.Done():
		return store.Answer{}, context.Cause(ctx)
	}
}

func (s *slowGates) Release(_ context.Context, uid types.UID, _, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = append(s.left, uid)
	return nil
}

func (s *slowGates) GiveUp(_ context.Context, run *v1alpha1.WorkflowRun, _, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.givenUp = append(s.givenUp, run.UID)
	return nil
}

func (s *slowGates) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = append(s.gone, uid)
}

// asker is a play of questions to slow gates.
type asker struct {
	*Asks
	t     *testing.T
	slow  *slowGates
	clock *clocktesting.FakeClock
	woken chan types.NamespacedName
}

func newAsker(t *testing.T, tenants ...string) *asker {
	t.Helper()
	a := &asker{
		t: t, clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), woken: make(chan types.NamespacedName, 1000),
		slow: &slowGates{
			free: map[string]chan struct{}{}, inside: map[string]int{}, most: map[string]int{}, entered: make(chan string, 1000),
			by: map[types.UID]policy.Effective{},
		},
	}
	for _, tenant := range tenants {
		a.slow.free[tenant] = make(chan struct{})
	}
	a.Asks = NewAsks(a.slow, a.clock, shares.KindMetrics{}, func(key types.NamespacedName, _ bool) { a.woken <- key })
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = a.Start(ctx) })
	t.Cleanup(func() {
		stop()
		ended.Wait()
	})
	return a
}

func lockedPolicy() policy.Effective {
	return policy.Effective{Name: "batch", Admission: policy.Admission{Lock: &policy.AdmissionLock{}}}
}

// admit asks for a run, in a version, and says whether there is an answer.
func (a *asker) admit(tenant, name, version string) bool {
	a.t.Helper()
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: tenant, UID: types.UID(name), ResourceVersion: version}}
	answer, err := a.Admit(a.t.Context(), run, tenant, lockedPolicy())
	if _, asked := errors.AsType[*AskedError](err); asked {
		return false
	}
	if err != nil || !answer.Admitted {
		a.t.Fatalf("%s: %+v, %v", name, answer, err)
	}
	return true
}

// A tenant that is under the lock of a candidate now waits as any does, and so may one that is
// under the baseline now: the minute may be over before the answer is there.
//
// mutation: a question of a trial that is asked in the pass makes this fail: it would not return.
func TestQuestionsOfATrialAreAskedOffTheWorkers(t *testing.T) {
	a := newAsker(t, "slow")
	tried := policy.Effective{Name: "batch", Admission: policy.Admission{Trial: &policy.AdmissionTrial{Lock: &policy.AdmissionLock{}}}}
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "slow", UID: "a", ResourceVersion: "1"}}
	_, err := a.Admit(a.t.Context(), run, "slow", tried)
	if _, asked := errors.AsType[*AskedError](err); !asked {
		t.Errorf("admit: %v; want to be woken", err)
	}
	a.enters("slow")
	close(a.slow.free["slow"])
	<-a.woken
}

// enters waits until a question of a tenant is with the gate.
func (a *asker) enters(tenant string) {
	a.t.Helper()
	if got := <-a.slow.entered; got != tenant {
		a.t.Fatalf("a question of %s is with the gate, want one of %s", got, tenant)
	}
}

// mutation: shares without the name of the lock makes this fail.
func TestOneLockLeavesPlacesForTheQuestionsOfOthers(t *testing.T) {
	a := newAsker(t, "dead", "fine")
	for i := range 10 * places {
		if a.admit("dead", fmt.Sprint("dead-", i), "1") {
			t.Fatal("the dead answer")
		}
	}
	for range places / 2 {
		a.enters("dead")
	}
	close(a.slow.free["fine"])
	if a.admit("fine", "fine-1", "1") {
		t.Fatal("an answer in the pass that asks")
	}
	a.enters("fine")
	if key := <-a.woken; key.Name != "fine-1" {
		t.Fatalf("%s is woken", key)
	}
	if !a.admit("fine", "fine-1", "1") {
		t.Fatal("the answer is lost")
	}
	if most := a.slow.most["dead"]; most != places/2 {
		t.Errorf("%d questions of one lock are under way, want %d", most, places/2)
	}
}

// The lock of a tenant is busy, and thousands of its runs wait, which may be large. Those that have
// no place yet cost no goroutine each, and none of what a quota does not ask for.
//
// mutations: begin that has each wait in a goroutine, or keeps the run as it is.
func TestWhoWaitsForAPlaceIsATicket(t *testing.T) {
	const runs, size = 900, 64 << 10
	a := newAsker(t, "busy")
	held := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	bytes, goroutines := held(), runtime.NumGoroutine()
	for i := range runs {
		run := &v1alpha1.WorkflowRun{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint(i), Namespace: "busy", UID: types.UID(fmt.Sprint(i)), ResourceVersion: "1",
				Annotations: map[string]string{"large": strings.Repeat("x", size)},
			},
			Spec: v1alpha1.WorkflowRunSpec{Priority: 7},
		}
		if _, err := a.Admit(t.Context(), run, "busy", lockedPolicy()); err == nil {
			t.Fatal("an answer in the pass that asks")
		}
	}
	if more := runtime.NumGoroutine() - goroutines; more > places {
		t.Errorf("%d runs that wait cost %d goroutines", runs, more)
	}
	if more := int64(held()) - int64(bytes); more > runs*size/4 {
		t.Errorf("%d runs that wait hold %d bytes", runs, more)
	}
	close(a.slow.free["busy"])
	for range runs {
		<-a.woken
	}
}

// A question that waits for its place leaves the line with its run, and the others get theirs.
//
// mutation: drop or Forget that leaves it in the line.
func TestAQuestionThatWaitsForAPlaceLeavesTheLine(t *testing.T) {
	a := newAsker(t, "acme")
	for i := range places / 2 {
		a.admit("acme", fmt.Sprint("first-", i), "1")
		a.enters("acme")
	}
	for _, name := range []string{"released", "forgotten", "last"} {
		a.admit("acme", name, "1")
	}
	if err := a.Release(t.Context(), "released", "acme", "batch"); err != nil {
		t.Fatal(err)
	}
	a.Forget("forgotten")
	close(a.slow.free["acme"])
	for range places/2 + 1 {
		if key := <-a.woken; key.Name == "released" || key.Name == "forgotten" {
			t.Errorf("%s was asked for", key.Name)
		}
	}
	if a.admit("acme", "released", "1") {
		t.Error("an answer to a question that left")
	}
	a.enters("acme")
	<-a.woken
	a.running.Wait()
	for range places / 2 {
		if one := a.shares.Take("batch/acme", nil); !a.shares.Has(one) {
			t.Fatal("who left has a place")
		}
	}
}

// mutation: outline that leaves out what a quota asks for.
func TestTheOutlineOfARunHasWhatAQuotaAsksFor(t *testing.T) {
	run := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ns", UID: "u", ResourceVersion: "9", CreationTimestamp: metav1.Unix(1000, 0)},
		Spec:       v1alpha1.WorkflowRunSpec{Priority: 7},
	}
	if diff := cmp.Diff(run, outline(run)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A limit that was lowered bounds those that stand in the line for a place, too: a long line would
// go on letting runs in by the old one.
//
// mutations: a question that goes by the policy of when it was asked makes this fail, with strategy
// Atomic one that is renewed by questions of strategy Lock only; one that goes by another policy
// than it was asked under makes the last fail.
func TestAQuestionThatWaitsForAPlaceGoesByThePolicyOfNow(t *testing.T) {
	limited := func(p policy.Effective, limit int) policy.Effective {
		p.Admission.Default = limit
		return p
	}
	other := limited(lockedPolicy(), 1)
	other.Name = "other"
	for name, c := range map[string]struct {
		now   policy.Effective
		limit int
	}{
		"its limit was lowered":        {limited(lockedPolicy(), 1), 1},
		"and it has strategy Atomic":   {limited(policy.Effective{Name: "batch"}, 1), 1},
		"the run is of another policy": {other, 10},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsker(t, "acme")
			for i := range places / 2 {
				a.admit("acme", fmt.Sprint("first-", i), "1")
				a.enters("acme")
			}
			run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: "last", Namespace: "acme", UID: "last", ResourceVersion: "1"}}
			for _, p := range []policy.Effective{limited(lockedPolicy(), 10), c.now} {
				ctx, stop := context.WithCancel(t.Context())
				if !p.Admission.Waits() {
					stop() // it is asked in the pass, and the lock is busy
				}
				if a, err := a.Admit(ctx, run, "acme", p); err == nil {
					t.Fatalf("%+v in the pass that asks", a)
				}
				stop()
			}
			close(a.slow.free["acme"])
			for range places/2 + 1 {
				<-a.woken
			}
			a.slow.mu.Lock()
			defer a.slow.mu.Unlock()
			if got := a.slow.by["last"].Admission.Default; got != c.limit {
				t.Errorf("the quota was asked by a limit of %d, want %d", got, c.limit)
			}
		})
	}
}

// An answer is for the run as it was read when the gate was asked, or as this process
// wrote it since.
//
// mutation: without the comparison of versions the second case fails, with Wrote that does
// nothing the third.
func TestAnAnswerIsForTheRunAsItWasRead(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		wrote   bool
		taken   bool
	}{
		"the same version":           {"1", false, true},
		"another wrote":              {"2", false, false},
		"this process wrote":         {"2", true, true},
		"it wrote, and then another": {"3", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsker(t, "acme")
			a.admit("acme", "run", "1")
			a.enters("acme")
			if c.wrote {
				a.Wrote("run", "1", "2")
			}
			close(a.slow.free["acme"])
			<-a.woken
			got := a.admit("acme", "run", c.version)
			if got != c.taken {
				t.Errorf("the answer is taken: %t, want %t", got, c.taken)
			}
			if !got {
				a.enters("acme") // it is asked anew
			}
		})
	}
}

// What the gate gives to a question whose run has left is left as well, and the run asks anew
// only after that.
//
// mutation: Release that does not give the question up, or an end of it without GiveUp,
// makes this fail.
func TestAQuestionIsGivenUpWithItsRun(t *testing.T) {
	a := newAsker(t, "acme")
	a.admit("acme", "run", "1")
	a.enters("acme")
	if err := a.Release(t.Context(), "run", "acme", "batch"); err != nil {
		t.Fatal(err)
	}
	<-a.woken
	a.slow.mu.Lock()
	left, givenUp := len(a.slow.left), len(a.slow.givenUp)
	a.slow.mu.Unlock()
	if left != 1 || givenUp != 1 {
		t.Errorf("the gate was left %d times, and %d after the question ended; want once each", left, givenUp)
	}
	if a.admit("acme", "run", "1") {
		t.Error("the answer to a question that was given up is taken")
	}
	a.enters("acme")
}

// The next process that drives the run asks for the same, so nothing is left.
//
// mutation: Forget that does nothing, or keeps either question, makes this fail.
func TestAQuestionIsForgottenWithItsRun(t *testing.T) {
	a := newAsker(t, "acme", "slow")
	a.admit("acme", "answered", "1")
	a.enters("acme")
	close(a.slow.free["acme"])
	<-a.woken
	a.admit("slow", "asked", "1")
	a.enters("slow")
	for _, run := range []types.UID{"answered", "asked", "unknown"} {
		a.Forget(run)
	}
	a.mu.Lock()
	kept := len(a.byRun)
	a.mu.Unlock()
	if kept != 0 {
		t.Fatalf("%d questions are kept", kept)
	}
	<-a.woken // the question has ended
	a.slow.mu.Lock()
	defer a.slow.mu.Unlock()
	if len(a.slow.left)+len(a.slow.givenUp) != 0 {
		t.Errorf("the gate was left by %v", a.slow.left)
	}
	slices.Sort(a.slow.gone)
	if got := fmt.Sprint(a.slow.gone); got != "[answered asked asked unknown]" {
		t.Errorf("the gate forgot %s; want each at once, and the one that asked when its question ended", got)
	}
}
