// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/ahead"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// aRun is a run of the given version whose steps, named s1, s2 and so on, are in the given phases
// at attempt 1.
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

// mutation: a doubtful that notes what is noted already.
func TestTheSameDoubtIsKeptOnce(t *testing.T) {
	list := []lifecycle.Withdrawal{{ID: attempt("s1"), Topic: topic}, {ID: attempt("s2"), Topic: topic}}
	m := &memory{}
	m.doubtful("7", epoch, list[:1])
	for range 3 {
		m.doubtful("7", epoch, list)
	}
	if diff := cmp.Diff(list, m.doubt.withdraw); diff != "" {
		t.Errorf("in doubt (-want +got):\n%s", diff)
	}
}

func TestMemoriesStartAfreshForAnotherRunOfTheSameName(t *testing.T) {
	ms := &memories{}
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

func TestByAnotherSaysWhoseStatusItIs(t *testing.T) {
	r := &Reconciler{Holder: "me"}
	mine, theirs, none := aRun("1"), aRun("1"), aRun("1")
	mine.Status.Lock = &v1alpha1.RunLockStatus{LeaseID: "x", Holder: "me"}
	theirs.Status.Lock = &v1alpha1.RunLockStatus{LeaseID: "x", Holder: "them"}
	none.Status.Lock = nil
	if r.byAnother(mine) || !r.byAnother(theirs) || r.byAnother(none) {
		t.Errorf("mine %t, theirs %t, none %t", r.byAnother(mine), r.byAnother(theirs), r.byAnother(none))
	}
}

// mutation: mayWrite without the exception makes this fail, as does one that does not give
// its place back.
func TestAWriteThatLetsARunInWaitsForNoOther(t *testing.T) {
	waits, admitted := aRun("7", v1alpha1.StepPending), aRun("7", v1alpha1.StepPending)
	admitted.Status.Admission = &v1alpha1.AdmissionStatus{AdmittedAt: &metav1.Time{Time: epoch}}
	r, none, desk := &Reconciler{Writes: shares.New(1, false, shares.KindMetrics{})}, &memory{}, (*shares.Desks)(nil).For("ns")
	done, err := (&pass{r: r, ahead: &ahead.Session{Stored: waits}, mem: none, desk: desk}).mayWrite(t.Context(), waits)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	if _, err := (&pass{r: r, ahead: &ahead.Session{Stored: admitted}, mem: none, desk: desk}).mayWrite(ctx, admitted); !errors.Is(err, errTest) {
		t.Errorf("a write of a run that is in already did not wait: %v", err)
	}
	if _, err := (&pass{r: r, ahead: &ahead.Session{Stored: waits}, mem: none, desk: desk}).mayWrite(ctx, admitted); err != nil {
		t.Errorf("a write that lets a run in: %v", err)
	}
	done()
	if _, err := (&pass{r: r, ahead: &ahead.Session{Stored: admitted}, mem: none, desk: desk}).mayWrite(t.Context(), admitted); err != nil {
		t.Errorf("after a write was done: %v", err)
	}
}

// mutation: rootOf that stops at what names a job, or at several errors, makes this fail: while
// NATS is away each pass would have a cause of its own.
func TestRootOf_IsTheSameForAllJobs(t *testing.T) {
	away := errors.New("away")
	for name, err := range map[string]error{
		"the cause itself":   away,
		"of a job":           fmt.Errorf("job 1: %w", away),
		"of another, joined": errors.Join(nil, fmt.Errorf("job 2: %w", away), errTest),
		"with what it says":  fmt.Errorf("withdraw: %w", fmt.Errorf("%w: %w", away, errTest)),
	} {
		if got := rootOf(err); got != "away" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// mutation: each of the outcomes for all errors.
func TestOutcomeOf(t *testing.T) {
	runs := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "workflowruns"}
	for want, errs := range map[string][]error{
		"accepted": {nil},
		"outdated": {
			apierrors.NewConflict(runs, "run", errors.New("somebody else was faster")), apierrors.NewNotFound(runs, "run"),
			fmt.Errorf("write: %w", apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("WorkflowRun").GroupKind(), "run",
				field.ErrorList{field.Forbidden(field.NewPath("status"), "stale writer: status.fence must not decrease")})),
		},
		"refused":    {fmt.Errorf("write: %w", apierrors.NewInternalError(errors.New("full"))), apierrors.NewTimeoutError("late", 1)},
		"unanswered": {context.DeadlineExceeded, errors.New("connection reset")},
	} {
		for _, err := range errs {
			if got := outcomeOf(err); got != want {
				t.Errorf("%v: %s, want %s", err, got, want)
			}
		}
	}
}

// liveRun is an API server that has a run.
type liveRun struct {
	client.Reader
	run *v1alpha1.WorkflowRun
	err error
}

func (l liveRun) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if run, ok := o.(*v1alpha1.WorkflowRun); ok && l.run != nil {
		l.run.DeepCopyInto(run)
	}
	return l.err
}

// mutations: inDoubt that does not wait, or does not look at what is stored, or takes another run
// of the name for it.
func TestAWriteIsInDoubtUntilItCannotBeUnderWay(t *testing.T) {
	was := aRun("7")
	was.UID = "u"
	other := was.DeepCopy()
	other.UID = "other"
	newer := aRun("8")
	newer.UID = "u"
	gone := apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), "a")
	for name, c := range map[string]struct {
		after    time.Duration
		live     liveRun
		doubtful bool
		fails    bool
	}{
		"it may be under way":      {doubtTime - 1, liveRun{run: was}, true, false},
		"nothing was taken":        {doubtTime, liveRun{run: was}, false, false},
		"it was taken":             {doubtTime, liveRun{run: newer}, true, false},
		"another run has its name": {doubtTime, liveRun{run: other}, true, false},
		"it is gone":               {doubtTime, liveRun{err: gone}, true, false},
		"it cannot be read":        {doubtTime, liveRun{err: errTest}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pass{r: &Reconciler{}, mem: &memory{uid: "u"}}
			p.r.Live, p.r.Clock = c.live, clocktesting.NewFakeClock(epoch.Add(c.after))
			p.mem.doubtful("7", epoch, nil)
			is, err := inDoubt(t.Context(), p)
			if is != c.doubtful || (err != nil) != c.fails || (p.mem.doubt != nil) != is {
				t.Errorf("in doubt %t, %v; want %t", is, err, c.doubtful)
			}
		})
	}
}
