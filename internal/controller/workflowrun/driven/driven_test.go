// SPDX-License-Identifier: Apache-2.0

package driven_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/driven"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const run types.UID = "7d2b1c1e-0000-4000-8000-000000000001"

// owner owns everything, or nothing.
type owner struct{ owns bool }

func (o *owner) Owns(int) bool { return o.owns }

func (o *owner) While(ctx context.Context, _ int) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func newPartitions(o *owner) (*driven.Partitions, int) {
	return driven.New(clocktesting.NewFakePassiveClock(time.Unix(100, 0)), o), protocol.Partition(string(run))
}

// mutation: Enter without owns, or without since, makes this fail.
func TestPartitions_EnterWhatIsDrivenAndOwned(t *testing.T) {
	o := &owner{owns: true}
	p, n := newPartitions(o)
	if _, _, ok := p.Enter(t.Context(), run); ok || p.Drives(run) {
		t.Error("a run is driven before its partition began")
	}
	p.Begin([]int{n})
	while, leave, ok := p.Enter(t.Context(), run)
	if !ok || !p.Drives(run) || !p.Since(run).Equal(time.Unix(100, 0)) || while.Err() != nil {
		t.Fatal("a run of a partition that began is not driven")
	}
	leave()
	if while.Err() == nil {
		t.Error("the context of a pass outlives it")
	}
	o.owns = false
	if _, _, ok := p.Enter(t.Context(), run); ok {
		t.Error("a run is driven though another may own it")
	}
	if !p.Drives(run) {
		t.Error("its partition was not ended")
	}
	other := (n + 1) % protocol.Partitions
	if err := p.End(t.Context(), []int{n, other}); err != nil || p.Drives(run) {
		t.Errorf("it is driven after its end (%v)", err)
	}
}

// mutation: End that does not wait, or an Enter after End, makes this fail.
func TestPartitions_EndWaitsForPasses(t *testing.T) {
	p, n := newPartitions(&owner{owns: true})
	p.Begin([]int{n})
	_, first, _ := p.Enter(t.Context(), run)
	_, second, _ := p.Enter(t.Context(), run)
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.End(short, []int{n}); !errors.Is(err, driven.ErrPassesLast) {
		t.Errorf("end with passes under way: %v", err)
	}
	if _, _, ok := p.Enter(t.Context(), run); ok {
		t.Error("a pass began after the end")
	}
	ended := make(chan error, 1)
	go func() { ended <- p.End(t.Context(), []int{n}) }()
	if !first() {
		t.Error("a pass that outlasted an end is not late")
	}
	select {
	case err := <-ended:
		t.Fatalf("it ended with a pass under way: %v", err)
	default:
	}
	if !second() {
		t.Error("the other one is not late")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	p.Begin([]int{n})
	if _, leave, ok := p.Enter(t.Context(), run); !ok {
		t.Error("it does not begin again")
	} else if leave() {
		t.Error("a pass of the owner is late")
	}
}

// mutation: outlasted that does not ask who drives now, or Begin that leaves passes late, makes
// this fail.
func TestPartitions_APassOfAnOwnerThatCameBackIsNotLate(t *testing.T) {
	for name, back := range map[string]func(p *driven.Partitions, n int, end func()){
		"before the end was given up": func(p *driven.Partitions, n int, end func()) {
			p.Begin([]int{n})
			end()
		},
		"after it": func(p *driven.Partitions, n int, end func()) {
			end()
			p.Begin([]int{n})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, n := newPartitions(&owner{owns: true})
			p.Begin([]int{n})
			_, leave, _ := p.Enter(t.Context(), run)
			waiting, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			ended := make(chan error, 1)
			go func() { ended <- p.End(waiting, []int{n}) }()
			for p.Drives(run) {
				runtime.Gosched()
			}
			back(p, n, func() {
				giveUp()
				if err := <-ended; !errors.Is(err, driven.ErrPassesLast) {
					t.Errorf("end: %v", err)
				}
			})
			if leave() {
				t.Error("it is late")
			}
		})
	}
}
