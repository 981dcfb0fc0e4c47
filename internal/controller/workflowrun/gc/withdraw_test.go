// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// talker is a broker that fails at the jobs of some items, and notes what it is asked.
type talker struct {
	fails func(item int) error

	mu    sync.Mutex
	asked []int
	told  map[int]int // how often its worker was told to stop
	first int         // how many were told before the first job was asked about
}

func (k *talker) Withdraw(_ context.Context, _ string, id protocol.JobID) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.asked) == 0 {
		k.first = len(k.told)
	}
	k.asked = append(k.asked, itemOf(id))
	return k.fails(itemOf(id))
}

func (k *talker) Cancel(_ context.Context, _ string, ids []protocol.JobID) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		k.told[itemOf(id)]++
	}
	return nil
}

func itemOf(id protocol.JobID) int {
	n, _ := strconv.Atoi(id.Item)
	return n
}

func items(n int) (list []lifecycle.Withdrawal) {
	for i := range n {
		list = append(list, lifecycle.Withdrawal{ID: protocol.JobID{RunUID: "u", Step: "s", Item: strconv.Itoa(i), Attempt: 1}, Topic: "t"})
	}
	return list
}

// mutations: Withdraw that cancels only what was taken back; that gives back all of the list, or
// none, after one failure; that tells nobody before a long list is through.
func TestWithdraw_OneJobThatCannotBeTakenBackKeepsNoWorkerAtWork(t *testing.T) {
	const many, bad = 1000, 7
	k := &talker{told: map[int]int{}, fails: func(item int) error {
		if item == bad {
			return errTest
		}
		return nil
	}}
	left, err := Withdraw(t.Context(), k, "u", items(many))
	if !errors.Is(err, errTest) || len(left) != 1 || itemOf(left[0].ID) != bad {
		t.Fatalf("left %d, %v; want the one that failed", len(left), err)
	}
	if len(k.told) != many || len(k.asked) != many || k.first != many {
		t.Errorf("%d were told, %d before the first was asked about, and %d asked about; want %d", len(k.told), k.first, len(k.asked), many)
	}
	for i, n := range k.told {
		if n != 2 {
			t.Fatalf("the worker of item %d was told %d times; want once more, as it may have begun since", i, n)
		}
	}
	k.asked, k.fails = nil, func(int) error { return nil }
	if left, err = Withdraw(t.Context(), k, "u", left); err != nil || len(left) != 0 || !slices.Equal(k.asked, []int{bad}) {
		t.Errorf("then: asked for %v, left %d, %v", k.asked, len(left), err)
	}
}

// hanging is a broker whose streams do not answer, until the time of the pass is over.
type hanging struct {
	talker
	over   context.CancelFunc
	asking atomic.Int32
}

func (h *hanging) Withdraw(ctx context.Context, _ string, _ protocol.JobID) error {
	if h.asking.Add(1) == withdrawParallel {
		h.over()
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hanging) Cancel(ctx context.Context, run string, ids []protocol.JobID) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return h.talker.Cancel(ctx, run, ids)
}

// mutation: a Withdraw that tells workers first only where it has more than a part to do.
func TestWithdraw_WorkersAreToldThoughNoJobCanBeTakenBackInTheTimeOfThePass(t *testing.T) {
	const n = withdrawParallel + 24
	ctx, over := context.WithCancel(t.Context())
	h := &hanging{talker: talker{told: map[int]int{}}, over: over}
	left, err := Withdraw(ctx, h, "u", items(n))
	if !errors.Is(err, context.Canceled) || len(left) != n {
		t.Fatalf("left %d, %v", len(left), err)
	}
	if len(h.told) != n {
		t.Errorf("%d workers were told, want %d", len(h.told), n)
	}
}

// mutation: a Deleted that leaves the tombstone as it was asks for all of them again.
func TestCollector_AsksAgainOnlyForTheJobsOfADeletedRunThatAreLeft(t *testing.T) {
	const many, bad = 100, 7
	k := &talker{told: map[int]int{}, fails: func(item int) error {
		if item == bad {
			return errTest
		}
		return nil
	}}
	c := &Collector{Jobs: speaking{k}, Outputs: empty{}}
	g := results.Tombstone{UID: "u", Jobs: items(many)}
	if err := c.Deleted(t.Context(), &g); !errors.Is(err, errTest) || len(g.Jobs) != 1 {
		t.Fatalf("left %d, %v", len(g.Jobs), err)
	}
	k.asked, k.fails = nil, func(int) error { return nil }
	if err := c.Deleted(t.Context(), &g); err != nil || !slices.Equal(k.asked, []int{bad}) {
		t.Errorf("then: asked for %v, %v", k.asked, err)
	}
}

// speaking is a talker whose queue nobody lists.
type speaking struct{ *talker }

func (speaking) List(context.Context) ([]jobs.QueuedJob, error) { return nil, nil }

// mutations: Withdraw that goes on with the rest when a whole part of it failed; that begins with
// the same part again.
func TestWithdraw_ABrokerThatFailsAtAPartIsAskedForTheRestFirst(t *testing.T) {
	k := &talker{told: map[int]int{}, fails: func(item int) error {
		if item < withdrawPart {
			return errTest
		}
		return nil
	}}
	left, err := Withdraw(t.Context(), k, "u", items(3*withdrawPart))
	if !errors.Is(err, errTest) || len(left) != 3*withdrawPart || len(k.asked) != withdrawPart {
		t.Fatalf("asked for %d, left %d, %v", len(k.asked), len(left), err)
	}
	if left, err = Withdraw(t.Context(), k, "u", left); !errors.Is(err, errTest) || len(left) != withdrawPart {
		t.Errorf("then: left %d, %v", len(left), err)
	}
}
