// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"testing"
	"time"
)

// record implements Handler.
type record struct{ gained, lost chan []int }

func (r record) TakeOver(_ context.Context, partitions []int) { r.gained <- partitions }

func (r record) Gain(_ context.Context, partitions []int)                { r.gained <- partitions }
func (r record) Lose(_ context.Context, partitions []int, _ func([]int)) { r.lost <- partitions }

// Who is alone owns all partitions from its start to its end, and contexts end with them.
// mutation: Start without the end of users, or Owns that is true before Start, makes this fail.
func TestAloneOwnsAllUntilItEnds(t *testing.T) {
	r := record{make(chan []int, 1), make(chan []int, 1)}
	a := NewAlone(r, time.Second)
	if a.Owns(0) {
		t.Error("owns a partition before it starts")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Start(ctx) }()
	if n := len(<-r.gained); n != Partitions {
		t.Errorf("gained %d partitions, want %d", n, Partitions)
	}
	work, cancel := a.While(t.Context(), Singletons)
	defer cancel()
	if work.Err() != nil || !a.Owns(Singletons) || a.Owns(Partitions) || a.Owns(-1) {
		t.Errorf("context: %v, owns the last: %v, beyond it: %v", work.Err(), a.Owns(Singletons), a.Owns(Partitions))
	}
	stop()
	if n := len(<-r.lost); n != Partitions {
		t.Errorf("lost %d partitions, want %d", n, Partitions)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if cause := context.Cause(work); !errors.Is(cause, ErrNotOwned) {
		t.Errorf("the work ended for %v, want %v", cause, ErrNotOwned)
	}
	if a.Owns(0) {
		t.Error("owns a partition after its end")
	}
}
