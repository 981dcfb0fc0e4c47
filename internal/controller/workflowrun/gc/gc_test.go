// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// broken is a broker that cannot list jobs.
type broken struct{ rounds chan struct{} }

func (b broken) List(context.Context) ([]jobs.QueuedJob, error) {
	b.rounds <- struct{}{}
	return nil, errTest
}
func (broken) Withdraw(context.Context, string, protocol.JobID) error { return nil }
func (broken) Cancel(context.Context, string, []protocol.JobID) error { return nil }

// empty is an object store with nothing in it.
type empty struct{}

func (empty) List(context.Context) ([]string, error)                      { return nil, nil }
func (empty) Drop(context.Context, []string) error                        { return nil }
func (empty) LooseParts(context.Context, time.Duration) ([]string, error) { return nil, nil }
func (empty) DropParts(context.Context, []string) error                   { return nil }
func (empty) DropStrays(context.Context, []string) error                  { return nil }

func (empty) Strays(context.Context, time.Duration, int) ([]string, error) { return nil, nil }

// mutation: Start without its first wait, or that ends with an error of a round.
func TestCollector_MakesARoundAfterAWhileAndThenAtItsPaceAndOutlivesErrors(t *testing.T) {
	b, clk := broken{make(chan struct{}, 10)}, clocktesting.NewFakeClock(time.Unix(1000, 0))
	c := &Collector{Jobs: b, Outputs: empty{}, Uploads: empty{}, Strays: empty{}, Clock: clk}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	for _, pause := range []time.Duration{firstRound, roundRetry, roundRetry} {
		for !clk.HasWaiters() {
			goruntime.Gosched()
		}
		if len(b.rounds) != 0 {
			t.Error("a round too early")
		}
		clk.Step(pause - time.Nanosecond)
		if !clk.HasWaiters() || len(b.rounds) != 0 {
			t.Errorf("a round before %s are over", pause)
		}
		clk.Step(time.Nanosecond)
		<-b.rounds
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// crowded is a queue with too many jobs for a list.
type crowded struct{ broken }

func (c crowded) List(context.Context) ([]jobs.QueuedJob, error) {
	c.rounds <- struct{}{}
	return nil, fmt.Errorf("list jobs: %w", &bus.TooManyError{Stream: "jobs", Has: 3, Most: 2})
}

// mutation: withdrawJobs that takes this for an error, after which a round comes soon again.
func TestCollector_LeavesAQueueThatIsTooLongUntilTheNextRound(t *testing.T) {
	q := crowded{broken{make(chan struct{}, 10)}}
	c := &Collector{Jobs: q, Outputs: empty{}, Uploads: empty{}, Strays: empty{}, Clock: clocktesting.NewFakeClock(time.Unix(1000, 0))}
	if err := c.Round(t.Context()); err != nil || len(q.rounds) != 1 {
		t.Errorf("%v after %d lists", err, len(q.rounds))
	}
}

// strays lists old outputs under names of no run, and remembers what was asked and dropped.
type strays struct {
	fails        bool
	old          time.Duration
	most, looked int
	dropped      []string
}

func (s *strays) Strays(_ context.Context, old time.Duration, most int) ([]string, error) {
	s.old, s.most, s.looked = old, most, s.looked+1
	if s.fails {
		return []string{"a"}, errTest
	}
	return []string{"a", "b"}, nil
}

func (s *strays) DropStrays(_ context.Context, names []string) error {
	s.dropped = append(s.dropped, names...)
	return nil
}

var errTest = errors.New("the test wants it")

// idle is a broker without jobs.
type idle struct{ broken }

func (idle) List(context.Context) ([]jobs.QueuedJob, error) { return nil, nil }

// mutations: a Round without dropStrays, one that drops what came with an error, an age that
// results outlive, or no bound.
func TestCollector_DropsSomeOldOutputsUnderNamesOfNoRun(t *testing.T) {
	s := &strays{}
	c := &Collector{Jobs: idle{}, Outputs: empty{}, Uploads: empty{}, Strays: s, Clock: clocktesting.NewFakeClock(time.Unix(1000, 0))}
	if err := c.Round(t.Context()); err != nil || len(s.dropped) != 2 {
		t.Errorf("%v, dropped %v", err, s.dropped)
	}
	if s.old <= 30*24*time.Hour || s.most < 1 || s.most > 1000 {
		t.Errorf("at most %d that are %s old", s.most, s.old)
	}
	s.fails = true
	if err := c.Round(t.Context()); !errors.Is(err, errTest) || len(s.dropped) != 2 || s.looked != 2 {
		t.Errorf("%v, dropped %v, looked %d times", err, s.dropped, s.looked)
	}
}

// runs is an API server, or a cache, that has the runs of some UIDs.
type runs struct {
	client.Reader
	uids []types.UID
}

func (r *runs) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	var all []runtime.Object
	for _, uid := range r.uids {
		all = append(all, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid}})
	}
	return meta.SetList(l, all)
}

func (*runs) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), key.Name)
}

// leftovers is an object store with an output of each of some runs. A run may begin while they are
// listed.
type leftovers struct {
	empty
	of      []string
	begins  func()
	dropped []string
	silent  time.Duration
}

func (l *leftovers) List(context.Context) (names []string, err error) {
	l.begins()
	for _, uid := range l.of {
		names = append(names, uid+"/output")
	}
	return names, nil
}

func (l *leftovers) Drop(_ context.Context, names []string) error {
	l.dropped = append(l.dropped, names...)
	return nil
}

func (l *leftovers) LooseParts(_ context.Context, silent time.Duration) ([]string, error) {
	l.silent = silent
	return nil, nil
}

// queued is a broker with jobs of some runs.
type queued struct {
	*talker
	of []string
}

func (q queued) List(context.Context) (list []jobs.QueuedJob, err error) {
	for i, uid := range q.of {
		list = append(list, jobs.QueuedJob{Topic: "t", ID: protocol.JobID{RunUID: uid, Step: "s", Item: strconv.Itoa(i), Attempt: 1}})
	}
	return list, nil
}

// A run that is missing from a list is gone if the list is the API server's, and was made after its
// outputs and jobs were listed. The cache may not have it yet.
//
// mutations: withdrawJobs, or dropOutputs, that asks the cache for all runs; dropOutputs that lists
// the runs first; an uploadSilence of a minute, after which a worker that pauses loses its output.
func TestCollector_TakesNothingFromARunThatIsNewOrThatTheCacheLacks(t *testing.T) {
	api := &runs{uids: []types.UID{"uncached"}}
	l := &leftovers{of: []string{"new", "uncached", "gone"}, begins: func() { api.uids = append(api.uids, "new") }}
	q := queued{&talker{told: map[int]int{}, fails: func(int) error { return nil }}, []string{"uncached", "gone"}}
	c := &Collector{Jobs: q, Outputs: l, Uploads: l, Strays: empty{}, Cache: &runs{}, Live: api, Clock: clocktesting.NewFakeClock(time.Unix(1000, 0))}
	if err := c.Round(t.Context()); err != nil {
		t.Error(err)
	}
	if !slices.Equal(l.dropped, []string{"gone/output"}) || !slices.Equal(q.asked, []int{1}) {
		t.Errorf("outputs %v are dropped, and jobs %v withdrawn; want those of the run that is gone", l.dropped, q.asked)
	}
	if l.silent != time.Hour { // protocol.md promises it to those who write workers
		t.Errorf("uploads are broken off after %s", l.silent)
	}
}

// partless cannot say which parts are loose.
type partless struct {
	empty

	asked *int
}

func (p partless) LooseParts(context.Context, time.Duration) ([]string, error) {
	*p.asked++
	return nil, errTest
}

// mutation: Round that fails for parts, after which all runs are listed again soon.
func TestCollector_MakesNoRoundSoonForPartsThatStay(t *testing.T) {
	asked := 0
	c := &Collector{Jobs: idle{}, Outputs: empty{}, Uploads: partless{asked: &asked}, Strays: empty{}, Clock: clocktesting.NewFakeClock(time.Unix(1000, 0))}
	if err := c.Round(t.Context()); err != nil || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
}
