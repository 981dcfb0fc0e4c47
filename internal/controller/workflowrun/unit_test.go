package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	busresults "github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
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
		"a wish deep in the chain":       {fmt.Errorf("a: %w", fmt.Errorf("b: %w", &results.RetryError{After: 7, Cause: errTest})), 7},
		"a wish in one of several":       {errors.Join(errTest, &results.RetryError{After: 7, Cause: errTest}), 7},
		"a wish of 0 would make it spin": {&results.RetryError{Cause: errTest}, actRetryDelay},
	} {
		t.Run(name, func(t *testing.T) {
			if got := retryDelay(c.err); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// An unusable result becomes a dead letter whatever the verdict: after a crash between the status write and the dead letter it
// comes again as a duplicate, and acknowledging it would lose its bytes. mutation: nil for duplicates makes this fail.
func TestAnUnusableResultIsNeverAcknowledged(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := &Reconciler{inbox: results.NewInbox(10, 96<<20), clock: clocktesting.NewFakeClock(epoch), metrics: NewMetrics(registry), resultMetrics: busresults.NewMetrics(registry)}
	r.settler = results.NewSettler(r.inbox, r.resultMetrics)
	for _, verdict := range []lifecycle.Verdict{lifecycle.Applied, lifecycle.Duplicate, lifecycle.Stale} {
		fake := &fakeDelivery{}
		p := &pass{Reconciler: r, run: aRun("1"), letters: []*results.Pending{{Fact: lifecycle.Result{Rejected: "no JSON"}, Delivery: fake}}}
		p.settleAll(t.Context(), lifecycle.Decision{Verdicts: []lifecycle.Verdict{verdict}})
		if len(fake.settled) != 1 {
			t.Fatalf("%s: settled %d times", verdict, len(fake.settled))
		}
		if _, ok := errors.AsType[*busresults.PermanentError](fake.settled[0]); !ok {
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
