package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// aRun is a run of the given version whose steps, named s1, s2 and so on, are in the given phases at attempt 1.
func aRun(version string, phases ...v1alpha1.StepPhase) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "run", UID: "uid", ResourceVersion: version},
		Status:     &v1alpha1.WorkflowRunStatus{},
	}
	for i, p := range phases {
		name := fmt.Sprintf("s%d", i+1)
		run.Spec.Steps = append(run.Spec.Steps, step(name))
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: name, Phase: p, Attempt: 1})
	}
	return run
}

func attempt(step string) protocol.JobID {
	return protocol.JobID{RunUID: "uid", Step: step, Item: protocol.NoItem, Attempt: 1}
}

// mutation: newest that returns the cache's copy makes "own write, cache behind" fail.
func TestNewest(t *testing.T) {
	for name, c := range map[string]struct {
		own, cached, want string
		kept              bool
	}{
		"nothing of our own: the cache":                      {"", "5", "5", false},
		"own write, cache behind: the own one":               {"7", "5", "7", true},
		"own write, cache has it: the cache":                 {"7", "7", "7", false},
		"own write, cache has a later one: the cache":        {"7", "9", "9", false},
		"versions are numbers, not text":                     {"100", "99", "100", true},
		"a version that is no number: the cache is believed": {"7", "x", "x", false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &memory{}
			if c.own != "" {
				m.last = aRun(c.own)
			}
			if got := m.newest(aRun(c.cached)).ResourceVersion; got != c.want {
				t.Errorf("newest is %s, want %s", got, c.want)
			}
			if (m.last != nil) != c.kept {
				t.Errorf("own copy kept: %t, want %t", m.last != nil, c.kept)
			}
		})
	}
}

func TestUnpublishedAndPrune(t *testing.T) {
	run := aRun("1", v1alpha1.StepDispatched, v1alpha1.StepRunning, v1alpha1.StepSucceeded)
	m := &memory{published: map[protocol.JobID]uint64{attempt("s2"): 1, attempt("s3"): 1, attempt("old"): 1}}
	if diff := cmp.Diff([]protocol.JobID{attempt("s1")}, m.unpublished(run, 1)); diff != "" {
		t.Errorf("unpublished (-want +got):\n%s", diff)
	}
	m.prune(run)
	if diff := cmp.Diff(map[protocol.JobID]uint64{attempt("s2"): 1}, m.published); diff != "" {
		t.Errorf("after prune (-want +got):\n%s", diff)
	}
}

// mutation: resolve that withdraws what is in flight makes "the write took no effect" fail.
func TestResolve(t *testing.T) {
	old := lifecycle.Withdrawal{ID: attempt("s1"), Topic: topic}
	ended := aRun("8", v1alpha1.StepCancelled)
	ended.Status.CompletedAt = &metav1.Time{Time: epoch}
	for name, c := range map[string]struct {
		run      *v1alpha1.WorkflowRun
		want     []lifecycle.Withdrawal
		doubtful bool
	}{
		"the run is what was written to: nobody knows yet": {aRun("7", v1alpha1.StepDispatched), nil, true},
		"the attempt is over: its job is withdrawn":        {aRun("8", v1alpha1.StepBackingOff), []lifecycle.Withdrawal{old}, false},
		"the write took no effect: the job is left alone":  {aRun("8", v1alpha1.StepDispatched), nil, false},
		"the run has ended: its job is withdrawn":          {ended, []lifecycle.Withdrawal{old}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := &memory{doubt: &doubt{on: "7", withdraw: []lifecycle.Withdrawal{old}}}
			m.resolve(c.run)
			if diff := cmp.Diff(c.want, m.withdrawals); diff != "" {
				t.Errorf("withdrawals (-want +got):\n%s", diff)
			}
			if (m.doubt != nil) != c.doubtful {
				t.Errorf("doubt %t; want %t", m.doubt != nil, c.doubtful)
			}
		})
	}
}

func TestMemoriesStartAfreshForAnotherRunOfTheSameName(t *testing.T) {
	ms := newMemories()
	key := types.NamespacedName{Name: "run"}
	first := ms.of(key, "1")
	if ms.of(key, "1") != first || ms.peek(key) != first {
		t.Error("the same run has two memories")
	}
	if ms.of(key, "2") == first {
		t.Error("another run has the memory of the first")
	}
	ms.forget(key)
	if ms.peek(key) != nil {
		t.Error("not forgotten")
	}
}

// mutation: remove or takeAll that does not give room back makes "room comes back" fail; put that keeps a place, when there are no bytes
// left, the last line.
func TestInbox(t *testing.T) {
	b := newInbox(6, 1<<20)
	var letters []*letter
	for i := range 5 {
		letters = append(letters, &letter{size: i})
	}
	for i, uid := range []types.UID{"a", "a", "a", "b", "b"} {
		if ok := b.put("ns-"+string(uid), uid, letters[i]); ok != (i != 2 && i != 4) {
			t.Errorf("put %d: %t", i, ok)
		}
	}
	if got := b.waiting("a"); len(got) != 2 || got[0] != letters[0] || got[1] != letters[1] {
		t.Errorf("a's results are not in order of arrival: %v", got)
	}
	if got := b.backlog(); got.results != 3 || got.bytes != 3*letterBytes+0+1+3 || got.limit != 1<<20 {
		t.Errorf("%+v wait", got)
	}
	b.remove("a", letters[:1])
	b.remove("a", letters[:1])                // again
	b.remove("a", []*letter{letters[3]})      // another run's
	b.remove("nobody", []*letter{letters[3]}) // no run
	if got := b.waiting("a"); len(got) != 1 || got[0] != letters[1] {
		t.Errorf("a has %v", got)
	}
	if got := b.backlog(); got.results != 2 || got.bytes != 2*letterBytes+1+3 {
		t.Errorf("room comes back: %+v", got)
	}
	if got := b.takeAll("a"); len(got) != 1 || b.backlog().results != 1 || len(b.waiting("a")) != 0 {
		t.Errorf("takeAll gave %v, %+v left", got, b.backlog())
	}
	b.takeAll("b")
	if got := b.backlog(); got.results != 0 || got.bytes != 0 || len(b.byRun) != 0 {
		t.Errorf("empty inbox: %+v, %d runs", got, len(b.byRun))
	}
	large := &letter{size: 1 << 19}
	if !b.put("ns", "a", large) || b.put("ns", "a", large) || b.backlog().results != 1 {
		t.Errorf("large results: %+v", b.backlog())
	}
}

func TestInboxIsSafeForConcurrentUse(t *testing.T) {
	b := newInbox(1000, 1<<20)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				l := &letter{}
				b.put("ns", "a", l)
				b.waiting("a")
				b.backlog()
				b.remove("a", []*letter{l})
			}
		})
	}
	wg.Wait()
	if b.backlog().results != 0 || len(b.byRun) != 0 {
		t.Errorf("%+v of %d runs left", b.backlog(), len(b.byRun))
	}
}

func TestDirectory(t *testing.T) {
	d := newDirectory()
	run := aRun("1", v1alpha1.StepPending)
	key := types.NamespacedName{Namespace: "ns", Name: "run"}
	d.see(run)
	d.see(run)
	if got, ok := d.find("uid"); !ok || got != key {
		t.Errorf("find: %v, %t", got, ok)
	}
	if diff := cmp.Diff(map[string]int{"Pending": 1}, d.countPhases()); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
	d.remove(run)
	if _, ok := d.find("uid"); ok {
		t.Error("a removed run is found")
	}
	gone := d.takeDeleted(key)
	want := []remains{{uid: "uid"}}
	if diff := cmp.Diff(want, gone, cmp.AllowUnexported(remains{})); diff != "" {
		t.Errorf("remains (-want +got):\n%s", diff)
	}
	if len(d.takeDeleted(key)) != 0 {
		t.Error("remains are handed out twice")
	}
	d.putBack(key, gone)
	if len(d.takeDeleted(key)) != 1 {
		t.Error("remains put back are lost")
	}
}

// mutation: open that does not look at the clock makes "closed after the pause" fail.
func TestBreaker(t *testing.T) {
	c := clocktesting.NewFakeClock(epoch)
	b := &breaker{clock: c}
	if b.open() != nil {
		t.Error("open before anything failed")
	}
	cause := errors.New("refused")
	b.trip(cause)
	c.Step(breakerPause - time.Nanosecond)
	if !errors.Is(b.open(), cause) {
		t.Error("not open during the pause")
	}
	c.Step(time.Nanosecond)
	if b.open() != nil {
		t.Error("not closed after the pause")
	}
}

func TestRetryDelay(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"an error without a wish":        {errTest, actRetryDelay},
		"a wish deep in the chain":       {fmt.Errorf("a: %w", fmt.Errorf("b: %w", &again{after: 7, cause: errTest})), 7},
		"a wish in one of several":       {errors.Join(errTest, &again{after: 7, cause: errTest}), 7},
		"a wish of 0 would make it spin": {&again{cause: errTest}, actRetryDelay},
	} {
		t.Run(name, func(t *testing.T) {
			if got := retryDelay(c.err); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// A settled letter leaves the inbox even when its settlement fails: the message comes again and is recognised.
func TestSettleEachEmptiesTheInbox(t *testing.T) {
	r := &Reconciler{inbox: newInbox(1000, 96<<20)}
	p := &pass{Reconciler: r, run: aRun("1")}
	var list []settlement
	for range 3 * settleParallel {
		l := &letter{delivery: &fakeDelivery{settled: []error{nil}}} // fails: it was settled before
		r.inbox.put("ns", "uid", l)
		list = append(list, settlement{letter: l})
	}
	p.settleEach(context.Background(), list)
	if left := r.inbox.backlog().results; left != 0 {
		t.Errorf("%d letters left", left)
	}
	for _, s := range list {
		fake, ok := s.letter.delivery.(*fakeDelivery)
		if !ok || !cmp.Equal(fake.settled, []error{nil, nil}, cmpopts.EquateErrors()) {
			t.Fatalf("settled with %v", s.letter.delivery)
		}
	}
}

// An unusable result becomes a dead letter whatever the verdict: after a crash between the status write and the dead letter it
// comes again as a duplicate, and acknowledging it would lose its bytes. mutation: nil for duplicates makes this fail.
func TestAnUnusableResultIsNeverAcknowledged(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := &Reconciler{inbox: newInbox(10, 96<<20), clock: clocktesting.NewFakeClock(epoch), metrics: NewMetrics(registry), results: bus.NewMetrics(registry)}
	for _, verdict := range []lifecycle.Verdict{lifecycle.Applied, lifecycle.Duplicate, lifecycle.Stale} {
		fake := &fakeDelivery{}
		p := &pass{Reconciler: r, run: aRun("1"), letters: []*letter{{fact: lifecycle.Result{Rejected: "no JSON"}, delivery: fake}}}
		p.settleAll(t.Context(), lifecycle.Decision{Verdicts: []lifecycle.Verdict{verdict}})
		if len(fake.settled) != 1 {
			t.Fatalf("%s: settled %d times", verdict, len(fake.settled))
		}
		if _, ok := errors.AsType[*bus.PermanentError](fake.settled[0]); !ok {
			t.Errorf("%s: settled with %v", verdict, fake.settled[0])
		}
	}
}

func TestByAnotherSaysWhoseStatusItIs(t *testing.T) {
	r := &Reconciler{holder: "me"}
	mine, theirs, none := aRun("1"), aRun("1"), aRun("1")
	mine.Status.Lock = &v1alpha1.RunLockStatus{LeaseID: "x", Holder: "me"}
	theirs.Status.Lock = &v1alpha1.RunLockStatus{LeaseID: "x", Holder: "them"}
	none.Status.Lock = nil
	if r.byAnother(mine) || !r.byAnother(theirs) || r.byAnother(none) {
		t.Errorf("mine %t, theirs %t, none %t", r.byAnother(mine), r.byAnother(theirs), r.byAnother(none))
	}
}

// mutation: mayWrite without the exception makes this fail, as does one that does not give its place back.
func TestAWriteThatLetsARunInWaitsForNoOther(t *testing.T) {
	waits, admitted := aRun("7", v1alpha1.StepPending), aRun("7", v1alpha1.StepPending)
	admitted.Status.Admission = &v1alpha1.AdmissionStatus{AdmittedAt: &metav1.Time{Time: epoch}}
	r, none, desk := &Reconciler{writes: shares.New(1, false, shares.KindMetrics{})}, &memory{}, (*shares.Desks)(nil).For("ns")
	done, err := (&pass{Reconciler: r, run: waits, mem: none, desk: desk}).mayWrite(t.Context(), waits)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	if _, err := (&pass{Reconciler: r, run: admitted, mem: none, desk: desk}).mayWrite(ctx, admitted); !errors.Is(err, errTest) {
		t.Errorf("a write of a run that is in already did not wait: %v", err)
	}
	if _, err := (&pass{Reconciler: r, run: waits, mem: none, desk: desk}).mayWrite(ctx, admitted); err != nil {
		t.Errorf("a write that lets a run in: %v", err)
	}
	done()
	if _, err := (&pass{Reconciler: r, run: admitted, mem: none, desk: desk}).mayWrite(t.Context(), admitted); err != nil {
		t.Errorf("after a write was done: %v", err)
	}
}

// mutation: outputsOf without those of the run makes this fail.
func TestOutputsOfNamesAllObjectsOfARun(t *testing.T) {
	run := aRun("7", v1alpha1.StepSucceeded, v1alpha1.StepSucceeded)
	run.Status.Steps[1].OutputRef = &v1alpha1.OutputReference{Name: "of a step"}
	run.Status.OutputsRef = &v1alpha1.OutputReference{Name: "of the run"}
	if diff := cmp.Diff([]string{"of a step", "of the run"}, outputsOf(run)); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
}
