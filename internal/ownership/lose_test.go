// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// slow implements Handler: the work of partition 2 does not end in time.
type slow struct {
	calls
	during func()
}

func (s slow) Lose(ctx context.Context, _ []int, ended func([]int)) {
	ended([]int{1})
	s.during()
	<-ctx.Done()
}

// mutation: lose that notes an end only when all have ended, or that notes one again at the end,
// makes this fail: by then the partition may be this member's again.
func TestKeeper_APartitionIsHandedOnBeforeTheRestHasEnded(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var first, again, second context.Context
	var k *Keeper
	s := slow{during: func() {
		if first.Err() == nil || second.Err() != nil {
			t.Errorf("of the partition that has ended %v, of the other %v", first.Err(), second.Err())
		}
		again, _ = k.users.add(t.Context(), &k.mu, 1, true)
		stop()
	}}
	k = New(Options{Member: "me", Handler: s, Clock: clock.RealClock{}, Log: logr.Discard()})
	first, _ = k.users.add(t.Context(), &k.mu, 1, true)
	second, _ = k.users.add(t.Context(), &k.mu, 2, true)
	k.lose(ctx, order{partitions: []int{1, 2}})
	if second.Err() == nil {
		t.Error("the work that did not end in time goes on")
	}
	if again.Err() != nil {
		t.Error("what began anew ended")
	}
}

// waits implements Handler: the work of partition 1 does not end before ctx does.
type waits struct {
	calls
	called chan []int
}

func (w waits) Lose(ctx context.Context, partitions []int, ended func([]int)) {
	w.called <- partitions
	if partitions[0] == 1 {
		<-ctx.Done()
		return
	}
	ended(partitions)
}

// mutation: work that waits for a Lose before the next order makes this hang, and one that does not
// count it as under way makes it fail.
func TestKeeper_NoOrderWaitsForAnother(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	w := waits{called: make(chan []int)}
	k := New(Options{Member: "me", Handler: w, Clock: clock.RealClock{}, Log: logr.Discard(), Timing: Timing{Drain: time.Hour}})
	k.hands.add(nil, []int{1}, 0)
	k.hands.add(nil, []int{3}, 0)
	over := make(chan struct{})
	go func() {
		defer close(over)
		k.work(ctx)
	}()
	<-w.called
	<-w.called
	for waits := false; !waits; { // for another order
		k.hands.mu.Lock()
		waits = k.hands.idle
		k.hands.mu.Unlock()
		runtime.Gosched()
	}
	if k.hands.isIdle() {
		t.Error("it is idle while the work of a partition ends")
	}
	stop()
	<-over
	if k.hands.losing > 0 {
		t.Errorf("%d calls are under way after all have returned", k.hands.losing)
	}
}
