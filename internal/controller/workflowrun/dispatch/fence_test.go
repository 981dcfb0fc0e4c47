// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

var errTest = errors.New("the test wants it")

// told is a queue that notes what it is told; refuse says which step it fences not.
type told struct {
	mu     sync.Mutex
	fenced []string
	epochs map[string]uint64 // with which each step was published or recovered last
	refuse string
	seq    uint64
}

func (q *told) Fence(_ context.Context, j jobs.Job) (uint64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if j.ID.Step == q.refuse {
		return 0, errTest
	}
	q.fenced = append(q.fenced, j.ID.Step)
	q.seq++
	return q.seq, nil
}

func (q *told) Publish(_ context.Context, j jobs.Job) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.epochs[j.ID.Step] = j.Epoch
	return nil
}

func (q *told) Recover(ctx context.Context, j jobs.Job) (jobs.RecoverOutcome, error) {
	return jobs.Published, q.Publish(ctx, j)
}

func (q *told) Gone(context.Context, string, []protocol.JobID) ([]protocol.JobID, error) {
	return nil, nil
}

func (q *told) Found(context.Context, string, []protocol.JobID) (map[protocol.JobID]jobs.RecoverOutcome, error) {
	return nil, nil
}

// take gives the steps that were fenced since the last call.
func (q *told) take() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.fenced
	q.fenced = nil
	slices.Sort(list)
	return list
}

// healthy is a lease that is held.
type healthy struct{}

func (healthy) Err() error { return nil }

// mutations: notFenced that forgets with each pass, or that does not look who wrote the run or what
// was lost, or each that lets an epoch be used again, makes this fail.
func TestSession_FencesAgainOnlyWhatMayBePublishedAgain(t *testing.T) {
	run := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Fence: new(int64(7)), Lock: &v1alpha1.RunLockStatus{LeaseID: "theirs"}}}
	run.UID = "uid"
	for _, name := range []string{"a", "b", "c"} {
		run.Spec.Steps = append(run.Spec.Steps, v1alpha1.Step{Name: name, Job: &v1alpha1.Job{Topic: "t"}})
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{
			Name: name, Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: &metav1.MicroTime{Time: time.Unix(0, 0)},
		})
	}
	q := &told{epochs: map[string]uint64{}, refuse: "c"}
	all := &Dispatcher{
		Jobs: q, Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)), Latency: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "latency", Help: "Latency."}),
		Recoveries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "recoveries_total", Help: "Recoveries."}, []string{"outcome"}),
	}
	st := &State{}
	ahead := []lifecycle.Job{{ID: attempt("ahead"), Topic: "t"}, {ID: attempt("a"), Topic: "t"}}
	fence := func(s *Session, ours string, want ...string) {
		t.Helper()
		err := s.Fence(t.Context(), run, ours, ahead, 8)
		if got := q.take(); cmp.Diff(want, got) != "" || err != nil {
			t.Errorf("fenced %v, want %v (%v)", got, want, err)
		}
	}
	if err := all.Session(st, 0).Fence(t.Context(), run, "mine", ahead, 8); !errors.Is(err, errTest) {
		t.Errorf("c is not fenced: %v", err)
	}
	first := q.take() // which are tried before c is a matter of chance
	q.refuse = ""
	rest := slices.DeleteFunc([]string{"a", "ahead", "b", "c"}, func(name string) bool { return slices.Contains(first, name) })
	fence(all.Session(st, 0), "mine", rest...)
	fence(all.Session(st, 0), "mine")
	fence(all.Session(st, 1), "mine", "a", "ahead", "b", "c") // NATS lost data
	run.Status.Lock.LeaseID = "another"
	s := all.Session(st, 1)
	fence(s, "mine", "a", "ahead", "b", "c")

	of := st.fenced.epochs[attempt("b")]
	if err := s.Publish(t.Context(), run, healthy{}, []lifecycle.Job{{ID: attempt("b"), Topic: "t"}}); err != nil {
		t.Fatal(err)
	}
	if q.epochs["b"] != of || of == 0 {
		t.Errorf("b goes out in epoch %d, want %d", q.epochs["b"], of)
	}
	fence(all.Session(st, 1), "mine", "b") // that publish may be late as well
	fence(all.Session(st, 1), "another")
	run.Status.Lock.LeaseID = "mine"
	fence(all.Session(st, 1), "mine", "a", "ahead")
	later := all.Session(st, 1)
	if err := later.Publish(t.Context(), run, healthy{}, []lifecycle.Job{{ID: attempt("c"), Topic: "t"}}); err != nil || q.epochs["c"] != 0 {
		t.Errorf("c goes out in epoch %d of another pass (%v)", q.epochs["c"], err)
	}
}
