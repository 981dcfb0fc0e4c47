// SPDX-License-Identifier: Apache-2.0

package holds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/quota/locks"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

const uid = types.UID("u")

var errStore = errors.New("redis is away")

// fakeLocks is what the store knows, and how it fails. A take that is lost is carried out, and not
// answered.
type fakeLocks struct {
	answer           locks.Answer
	takeErr, dropErr error
	lost             bool
	taken            []string         // tickets, by call
	requests         []locks.Request  // of the last take
	dropped          []store.Dropping // of the last drop
	granted          map[string]int   // by ticket: the version that it was granted for
}

func (f *fakeLocks) Take(_ context.Context, run *v1alpha1.WorkflowRun, step string, requests []locks.Request) (locks.Answer, error) {
	ticket := locks.TicketOf(run.UID, step)
	f.taken, f.requests = append(f.taken, ticket), requests
	if f.takeErr != nil && !f.lost {
		return locks.Answer{}, f.takeErr
	}
	if f.granted == nil {
		f.granted = map[string]int{}
	}
	if f.answer.State == store.LocksHeld {
		f.granted[ticket] = number(run.ResourceVersion)
	}
	if f.lost {
		return locks.Answer{}, errStore
	}
	return f.answer, nil
}

// Drop is as store.Dropping says.
func (f *fakeLocks) Drop(_ context.Context, all ...store.Dropping) error {
	f.dropped = all
	if f.dropErr != nil {
		return f.dropErr
	}
	for _, d := range all {
		if v, has := f.granted[d.Ticket]; has && (d.Seen == "" || v < number(d.Seen)) {
			delete(f.granted, d.Ticket)
		}
	}
	return nil
}

func number(version string) int {
	n, _ := strconv.Atoi(version)
	return n
}

func held(fence int64) locks.Answer {
	return locks.Answer{LocksAnswer: store.LocksAnswer{State: store.LocksHeld, Fence: fence}}
}

func runAt(version int, steps ...v1alpha1.StepStatus) *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{UID: uid, Name: "r", Namespace: "ns", ResourceVersion: strconv.Itoa(version)},
		Status:     &v1alpha1.WorkflowRunStatus{Steps: steps},
	}
}

var oneLock = []v1alpha1.LockHold{{Name: "mutex:ns/x", Permits: 1, Fence: 7}}

func ask(t *testing.T, h *Holds, st *State, run *v1alpha1.WorkflowRun, step string) (Asked, error) {
	t.Helper()
	wants := []facts.LockWant{{Name: "mutex:ns/x", Permits: 1}, {Name: "gpu/eu", Permits: 3}}
	return h.Ask(t.Context(), st, nil, run, lifecycle.LocksAsk{Part: step, Wants: wants})
}

func release(t *testing.T, h *Holds, st *State, run *v1alpha1.WorkflowRun, asked Asked) {
	t.Helper()
	if err := h.Release(t.Context(), st, run, asked); err != nil {
		t.Fatal(err)
	}
}

func wantDropped(t *testing.T, f *fakeLocks, want ...store.Dropping) {
	t.Helper()
	if !slices.Equal(f.dropped, want) {
		t.Errorf("dropped %v, not %v", f.dropped, want)
	}
}

// mutations: WaitsForOwn that looks at all steps, or at no status, or at that alone.
func TestAnAnswerIsForTheStepThatAsked(t *testing.T) {
	f := &fakeLocks{answer: locks.Answer{TTL: time.Minute, LocksAnswer: store.LocksAnswer{
		State: store.LocksWaiting, Lock: "gpu/eu", Position: 2, Waiting: 5, Ahead: "ns/a", Holders: []string{"ns/b"},
	}}}
	asked, err := ask(t, &Holds{Locks: f}, &State{}, runAt(1), "s")
	if err != nil {
		t.Fatal(err)
	}
	a := asked["s"]
	want := lifecycle.LocksAnswer{
		State: lifecycle.LocksWaiting, Lock: "gpu/eu", Position: 2, Queued: 5, Ahead: "ns/a", Holders: []string{"ns/b"}, TTL: time.Minute,
	}
	if diff := gocmp.Diff(want, a); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(f.taken, []string{"u/s"}) || !slices.Equal(f.requests, []locks.Request{{Name: "mutex:ns/x", Permits: 1}, {Name: "gpu/eu", Permits: 3}}) {
		t.Errorf("asked for %v: %v", f.taken, f.requests)
	}
	if asked.WaitsForOwn(runAt(1)) {
		t.Error("a step that waits is no run that waits")
	}
	if asked, _ = ask(t, &Holds{Locks: f}, &State{}, runAt(1), ""); !asked.WaitsForOwn(runAt(1)) {
		t.Error("the run waits, and needs no slot meanwhile")
	}
	waits := runAt(1)
	waits.Status = &v1alpha1.WorkflowRunStatus{Admission: &v1alpha1.AdmissionStatus{LockWait: &v1alpha1.LocksWait{Lock: "gpu/eu"}}}
	f.takeErr = errStore
	asked, err = (&Holds{Locks: f}).Ask(t.Context(), &State{}, nil, waits, lifecycle.LocksAsk{})
	if err == nil || !asked.WaitsForOwn(waits) || asked.WaitsForOwn(runAt(1)) {
		t.Errorf("%v: a run in line still waits, and another one may have the locks next", err)
	}
	if (Asked{}).WaitsForOwn(waits) {
		t.Error("nobody asked: its gate may be about to answer")
	}
}

// mutations: an unusable lock as an error to try again, or a store that is away as a refusal,
// makes this fail.
func TestEachAnswerOfTheStoreHasItsWord(t *testing.T) {
	answer := func(state, lock string) locks.Answer {
		return locks.Answer{LocksAnswer: store.LocksAnswer{State: state, Lock: lock}}
	}
	refused := func(why, lock, cause string) lifecycle.LocksAnswer {
		return lifecycle.LocksAnswer{State: lifecycle.LocksRefused, Reason: why, Lock: lock, Cause: cause}
	}
	unusable := &locks.UnusableError{Lock: "gpu/eu", Why: "there is no Semaphore gpu"}
	for name, c := range map[string]struct {
		answer locks.Answer
		err    error
		want   lifecycle.LocksAnswer
		fails  bool
	}{
		"held":                  {answer: held(9), want: lifecycle.LocksAnswer{State: lifecycle.LocksHeld, Fence: 9}},
		"busy":                  {answer: answer(store.LocksBusy, "x"), want: refused(store.LocksBusy, "x", "")},
		"superseded":            {answer: answer(store.LocksSuperseded, ""), want: refused(store.LocksSuperseded, "it asked for", "")},
		"no word that is known": {answer: answer("Odd", ""), want: refused("Odd", "it asked for", "")},
		"unusable":              {err: fmt.Errorf("wrapped: %w", unusable), want: refused(v1alpha1.ReasonLockUnusable, unusable.Lock, unusable.Why)},
		"away":                  {err: errStore, fails: true, want: lifecycle.LocksAnswer{State: lifecycle.LocksUnavailable, Cause: errStore.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			asked, err := ask(t, &Holds{Locks: &fakeLocks{answer: c.answer, takeErr: c.err}}, &State{}, runAt(1), "")
			if (err != nil) != c.fails || c.fails && !errors.Is(err, errStore) {
				t.Errorf("error %v", err)
			}
			if diff := gocmp.Diff(c.want, asked[""]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnOperatorWithoutLocksSaysSo(t *testing.T) {
	st := &State{}
	asked, err := ask(t, &Holds{}, st, runAt(1), "")
	if !errors.Is(err, errNoLocks) || asked[""].State != lifecycle.LocksUnavailable || asked[""].Cause == "" {
		t.Errorf("%v, %+v", err, asked)
	}
	run := runAt(1)
	run.Status.Locks = oneLock
	(&Holds{}).See(st, run)
	release(t, &Holds{}, st, run, asked) // asks nobody
}

// mutations: a ticket that is noted after the answer, a drop without the version, or a ticket that
// is forgotten while its grant can still be written makes this fail.
func TestWhatTheStoreTookWithoutAnAnswerIsGivenBack(t *testing.T) {
	f := &fakeLocks{answer: held(1), lost: true}
	h, st := &Holds{Locks: f}, &State{}
	asked, err := ask(t, h, st, runAt(3), "s")
	if !errors.Is(err, errStore) || len(f.granted) != 1 {
		t.Fatalf("%v, granted %v", err, f.granted)
	}
	release(t, h, st, runAt(3), asked) // still the version of the grant: another pass may write it
	if len(f.granted) != 1 {
		t.Fatal("a grant that can still be written was dropped")
	}
	release(t, h, st, runAt(4), nil)
	wantDropped(t, f, store.Dropping{Ticket: "u/s", Seen: "4"})
	if len(f.granted) != 0 {
		t.Error("the grant stays, though nobody can write it")
	}
	f.dropped = nil
	release(t, h, st, runAt(5), nil)
	wantDropped(t, f) // it is forgotten
}

// items is a step of which these items are under way, and five began.
func items(underWay string, locks ...v1alpha1.ItemLocks) v1alpha1.StepStatus {
	return v1alpha1.StepStatus{Name: "s", Phase: v1alpha1.StepRunning, ForEach: &v1alpha1.ForEachStatus{
		Total: 9, Begun: 5, Groups: []v1alpha1.ItemGroup{{Items: underWay, Phase: v1alpha1.StepRunning}}, Locks: locks,
	}}
}

// mutations: each case of Release taken out, or an end that is not looked at first,
// makes this fail.
func TestWhatIsNeededIsKept(t *testing.T) {
	waits := v1alpha1.LocksWait{Lock: "x"}
	for name, c := range map[string]struct {
		run   *v1alpha1.WorkflowRun
		asked Asked
		part  string // "": "s"
		want  []store.Dropping
	}{
		"status has it":                     {run: runAt(2, v1alpha1.StepStatus{Name: "s", Phase: v1alpha1.StepRunning, Locks: oneLock})},
		"status says that it waits":         {run: runAt(2, v1alpha1.StepStatus{Name: "s", Phase: v1alpha1.StepPending, LockWait: &waits})},
		"this pass may write it":            {run: runAt(2), asked: Asked{"s": {State: lifecycle.LocksHeld}}},
		"this pass may write that it waits": {run: runAt(2), asked: Asked{"s": {State: lifecycle.LocksWaiting}}},
		"granted, and not written":          {run: runAt(3), asked: Asked{"s": {State: lifecycle.LocksHeld}}, want: []store.Dropping{{Ticket: "u/s", Seen: "3"}}},
		"waits, and nobody wrote that":      {run: runAt(3), asked: Asked{"s": {State: lifecycle.LocksWaiting}}, want: []store.Dropping{{Ticket: "u/s", Seen: "3"}}},
		"refused":                           {run: runAt(2), asked: Asked{"s": {State: lifecycle.LocksRefused}}, want: []store.Dropping{{Ticket: "u/s", Seen: "2"}}},
		"another step asked":                {run: runAt(2), asked: Asked{"": {State: lifecycle.LocksHeld}}, want: []store.Dropping{{Ticket: "u/s", Seen: "2"}}},
		"status has that of an item":        {run: runAt(2, items("0-1", v1alpha1.ItemLocks{Item: 1, Locks: oneLock})), part: "s/1"},
		"an item waits":                     {run: runAt(2, items("0-1", v1alpha1.ItemLocks{Item: 1, LockWait: &waits})), part: "s/1"},
		"an item is over":                   {run: runAt(2, items("0", v1alpha1.ItemLocks{Item: 0, Locks: oneLock})), part: "s/1", want: []store.Dropping{{Ticket: "u/s/1"}}},
		"an item that did not begin":        {run: runAt(2, items("0")), part: "s/7", want: []store.Dropping{{Ticket: "u/s/7", Seen: "2"}}},
		"an item whose step is over":        {run: runAt(2, v1alpha1.StepStatus{Name: "s", Phase: v1alpha1.StepFailed}), part: "s/1", want: []store.Dropping{{Ticket: "u/s/1"}}},
		"the step is over, though it was asked for": {
			run: runAt(2, v1alpha1.StepStatus{Name: "s", Phase: v1alpha1.StepFailed}), asked: Asked{"s": {State: lifecycle.LocksHeld}},
			want: []store.Dropping{{Ticket: "u/s"}},
		},
		"the run is over": {
			run:  func() *v1alpha1.WorkflowRun { r := runAt(2); r.Status.CompletedAt = &metav1.Time{}; return r }(),
			want: []store.Dropping{{Ticket: "u/s"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeLocks{}
			st := &State{tickets: map[string]string{"u/" + cmp.Or(c.part, "s"): "2"}}
			release(t, &Holds{Locks: f}, st, c.run, c.asked)
			wantDropped(t, f, c.want...)
		})
	}
}

// What is over keeps what it has while a child run inside of it is at its clean-up, and when that
// is not known.
//
// mutations: Release that asks for the whole run, or for what has no child, that drops what it does
// not know about, or that says Kept for good, makes this fail.
func TestWhatIsOverIsKeptForAChildAtItsCleanUp(t *testing.T) {
	sub := func(name, child string) v1alpha1.StepStatus {
		return v1alpha1.StepStatus{Name: name, Phase: v1alpha1.StepCancelled, ChildRun: &v1alpha1.ChildRunStatus{Name: "c", UID: child}}
	}
	run := runAt(2, sub("a", "u-a"), sub("b", "u-b"), sub("c", ""), v1alpha1.StepStatus{Name: "d", Phase: v1alpha1.StepFailed})
	f := &fakeLocks{}
	below, failed := map[string]bool{"u-a": true}, errStore
	h := &Holds{Locks: f, Below: func(_ context.Context, _ string, children []v1alpha1.ChildRunStatus) (bool, error) {
		if len(children) != 1 || children[0].UID == "u-b" {
			return false, failed
		}
		return below[children[0].UID], nil
	}}
	st := &State{tickets: map[string]string{"u/a": "1", "u/b": "1", "u/c": "1", "u/d": "1"}}
	if err := h.Release(t.Context(), st, run, nil); !errors.Is(err, errStore) || !st.Kept() {
		t.Errorf("%v, kept %t", err, st.Kept())
	}
	wantDropped(t, f, store.Dropping{Ticket: "u/c"}, store.Dropping{Ticket: "u/d"})
	failed = nil
	release(t, h, st, run, nil)
	wantDropped(t, f, store.Dropping{Ticket: "u/b"})
	clear(below)
	if release(t, h, st, run, nil); st.Kept() {
		t.Error("it says that something is kept")
	}
	wantDropped(t, f, store.Dropping{Ticket: "u/a"})
}

// mutations: See without the run, its steps, or their items, or a ticket that is forgotten when a
// drop failed, or never, makes this fail.
func TestWhatStatusHasIsRememberedUntilItWasGivenBack(t *testing.T) {
	f := &fakeLocks{dropErr: errStore}
	h, st := &Holds{Locks: f}, &State{}
	run := runAt(2, v1alpha1.StepStatus{Name: "free", Phase: v1alpha1.StepRunning}, v1alpha1.StepStatus{Name: "s", Phase: v1alpha1.StepRunning, Locks: oneLock},
		items("0-1", v1alpha1.ItemLocks{Item: 1, Locks: oneLock}, v1alpha1.ItemLocks{Item: 0, LockWait: &v1alpha1.LocksWait{Lock: "x"}}))
	run.Status.Locks, run.Status.Steps[2].Name = oneLock, "f"
	h.See(st, run) // another process took it
	over := runAt(3)
	over.Status.CompletedAt = &metav1.Time{}
	both := []store.Dropping{{Ticket: "u"}, {Ticket: "u/f/1"}, {Ticket: "u/s"}}
	for range 3 {
		if err := h.Release(t.Context(), st, over, nil); !errors.Is(err, errStore) {
			t.Fatal(err)
		}
		wantDropped(t, f, both...)
	}
	f.dropErr = nil
	release(t, h, st, over, nil)
	wantDropped(t, f, both...)
	f.dropped = nil
	release(t, h, st, over, nil)
	wantDropped(t, f)
}

// mutation: See of a run that is over makes this fail.
func TestARunThatIsOverIsNotSeen(t *testing.T) {
	run := runAt(2)
	run.Status.Locks, run.Status.CompletedAt = oneLock, &metav1.Time{}
	st := &State{}
	h := &Holds{Locks: &fakeLocks{}}
	h.See(st, run)
	h.See(st, &v1alpha1.WorkflowRun{})
	if len(st.tickets) != 0 {
		t.Errorf("%v", st.tickets)
	}
}

func TestADeletedRunGivesBackAllOfItsTickets(t *testing.T) {
	f := &fakeLocks{answer: held(1)}
	h, st := &Holds{Locks: f}, &State{}
	for _, step := range []string{"", "a", "b"} {
		if _, err := ask(t, h, st, runAt(1), step); err != nil {
			t.Fatal(err)
		}
	}
	f.dropErr = errStore
	if err := h.ReleaseAll(t.Context(), st); !errors.Is(err, errStore) || len(f.granted) != 3 {
		t.Fatalf("%v, granted %v", err, f.granted)
	}
	f.dropErr = nil
	if err := h.ReleaseAll(t.Context(), st); err != nil || len(f.granted) != 0 {
		t.Errorf("%v, granted %v", err, f.granted)
	}
	f.dropped = nil
	if err := h.ReleaseAll(t.Context(), st); err != nil || f.dropped != nil {
		t.Errorf("%v, dropped %v again", err, f.dropped)
	}
}

// A store that hangs has each question wait for its time-out: one of a pass is enough. The next
// pass asks again.
//
// mutation: Ask without away makes this fail.
func TestAPassAsksAStoreThatIsAwayOnce(t *testing.T) {
	f := &fakeLocks{takeErr: errStore}
	h, st := &Holds{Locks: f}, &State{}
	for pass := range 2 {
		var asked Asked
		failed := 0
		for i := range 30 {
			var err error
			part := fmt.Sprint("s", i)
			if asked, err = h.Ask(t.Context(), st, asked, runAt(1), lifecycle.LocksAsk{Part: part}); err != nil {
				failed++
			}
			if a := asked[part]; a.State != lifecycle.LocksUnavailable || a.Cause == "" {
				t.Fatalf("%s has answer %+v", part, a)
			}
		}
		if len(f.taken) != pass+1 || failed != 1 {
			t.Errorf("after %d passes the store was asked %d times, %d errors", pass+1, len(f.taken), failed)
		}
	}
	f.takeErr, f.answer = nil, held(7)
	if asked, err := h.Ask(t.Context(), st, nil, runAt(1), lifecycle.LocksAsk{Part: "s0"}); err != nil || asked["s0"].State != lifecycle.LocksHeld {
		t.Errorf("%+v, %v", asked, err)
	}
}

// play is a run with three tickets, and a process that passes over it, with faults of the store.
type play struct {
	t       *testing.T
	random  *rand.Rand
	f       *fakeLocks
	h       *Holds
	st      *State
	run     *v1alpha1.WorkflowRun
	version int
}

// pass asks for what some steps lack, writes what was granted or does not, and gives back.
func (p *play) pass() {
	p.t.Helper()
	p.f.dropErr, p.f.lost, p.f.takeErr = nil, p.random.IntN(4) == 0, nil
	if p.random.IntN(4) == 0 {
		p.f.dropErr = errStore
	}
	p.h.See(p.st, p.run)
	var asked Asked
	next := p.run.DeepCopy()
	for i := range p.run.Status.Steps {
		s := &next.Status.Steps[i]
		switch {
		case s.Phase == v1alpha1.StepPending && p.random.IntN(2) == 0:
			asked, _ = p.h.Ask(p.t.Context(), p.st, asked, p.run, lifecycle.LocksAsk{Part: s.Name})
			if asked[s.Name].State == lifecycle.LocksHeld {
				s.Phase, s.Locks = v1alpha1.StepRunning, oneLock
			}
		case s.Phase == v1alpha1.StepRunning && p.random.IntN(3) == 0:
			s.Phase, s.Locks = v1alpha1.StepSucceeded, nil
		}
	}
	switch p.random.IntN(3) {
	case 0: // nothing is written: a conflict, say
	case 1: // somebody else writes the run, which makes this pass's write a conflict
		p.written(p.run.DeepCopy())
		asked = nil
	default:
		p.written(next)
		asked = nil
	}
	_ = p.h.Release(p.t.Context(), p.st, p.run, asked)
}

func (p *play) written(next *v1alpha1.WorkflowRun) {
	p.version++
	next.ResourceVersion = strconv.Itoa(p.version)
	p.run = next
}

// check says what must hold at any time: what status has, the store has.
func (p *play) check() {
	p.t.Helper()
	for i := range p.run.Status.Steps {
		s := &p.run.Status.Steps[i]
		if _, has := p.f.granted["u/"+s.Name]; len(s.Locks) > 0 && !has {
			p.t.Fatalf("status says that step %s has its locks, and the store gave them back", s.Name)
		}
	}
}

// What a pass leaves in the store, or another process's write, is given back once the store works
// again, and never while status has it.
//
// mutations: a ticket that is noted after the answer, that is forgotten while its grant can still
// be written, or when a drop failed, and a drop of what status has, make this fail.
func TestNothingIsLostAndNothingIsGivenBackTooEarly(t *testing.T) {
	for seed := range uint64(2000) {
		p := &play{
			t: t, random: rand.New(rand.NewPCG(seed, 1)), f: &fakeLocks{answer: held(1)}, st: &State{}, version: 1,
			run: runAt(1, v1alpha1.StepStatus{Name: "a", Phase: v1alpha1.StepPending}, v1alpha1.StepStatus{Name: "b", Phase: v1alpha1.StepPending}),
		}
		p.h = &Holds{Locks: p.f}
		for range 1 + p.random.IntN(12) {
			p.pass()
			p.check()
		}
		p.f.dropErr = nil
		p.written(p.run.DeepCopy())
		release(t, p.h, p.st, p.run, nil)
		p.check()
		for i := range p.run.Status.Steps {
			s := &p.run.Status.Steps[i]
			if _, has := p.f.granted["u/"+s.Name]; has && len(s.Locks) == 0 {
				t.Fatalf("seed %d: the store has locks of step %s (%s), which status has not", seed, s.Name, s.Phase)
			}
		}
	}
}
