// SPDX-License-Identifier: Apache-2.0

package driven_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
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

// none is told of no partition.
func none(t *testing.T) func([]int) {
	t.Helper()
	return func(ended []int) { t.Errorf("%v ended", ended) }
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
	var ended []int
	late := p.End(t.Context(), []int{n, other}, func(idle []int) { ended = append(ended, idle...) })
	if len(late) > 0 || !slices.Equal(ended, []int{n, other}) || p.Drives(run) {
		t.Errorf("ended %v, late %v: it is driven after its end", ended, late)
	}
}

// mutation: End that does not wait, that has all partitions wait for one, or an Enter after End,
// makes this fail.
func TestPartitions_EndWaitsForPasses(t *testing.T) {
	p, n := newPartitions(&owner{owns: true})
	p.Begin([]int{n})
	_, first, _ := p.Enter(t.Context(), run)
	_, second, _ := p.Enter(t.Context(), run)
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if late := p.End(short, []int{n}, none(t)); !slices.Equal(late, []int{n}) {
		t.Errorf("end with passes under way: late %v", late)
	}
	if _, _, ok := p.Enter(t.Context(), run); ok {
		t.Error("a pass began after the end")
	}
	ended, returned := make(chan []int, 2), make(chan []int)
	idle := (n + 1) % protocol.Partitions
	go func() { returned <- p.End(t.Context(), []int{n, idle}, func(of []int) { ended <- of }) }()
	if of := <-ended; !slices.Equal(of, []int{idle}) {
		t.Errorf("ended %v at once, want the partition without passes", of)
	}
	if !first() {
		t.Error("a pass that outlasted an end is not late")
	}
	select {
	case of := <-ended:
		t.Fatalf("it ended with a pass under way: %v", of)
	default:
	}
	if !second() {
		t.Error("the other one is not late")
	}
	if of := <-ended; !slices.Equal(of, []int{n}) {
		t.Errorf("ended %v", of)
	}
	if late := <-returned; len(late) > 0 {
		t.Errorf("late: %v", late)
	}
	p.Begin([]int{n})
	if _, leave, ok := p.Enter(t.Context(), run); !ok {
		t.Error("it does not begin again")
	} else if leave() {
		t.Error("a pass of the owner is late")
	}
}

// mutation: End that does not end Early, Early that begins after End, or that outlives its cancel,
// makes this fail.
func TestPartitions_WhatPassesWaitForEndsAtOnce(t *testing.T) {
	p, n := newPartitions(&owner{owns: true})
	p.Begin([]int{n})
	one, done := p.Early(t.Context(), run)
	defer done()
	over, cancel := p.Early(t.Context(), run)
	if cancel(); one.Err() != nil || over.Err() == nil {
		t.Errorf("of two, the first: %v, the one that is over: %v", one.Err(), over.Err())
	}
	p.End(t.Context(), []int{(n + 1) % protocol.Partitions}, func([]int) {})
	if one.Err() != nil {
		t.Error("it ends with another partition")
	}
	p.End(t.Context(), []int{n}, func([]int) {})
	late, cancel := p.Early(t.Context(), run)
	defer cancel()
	for name, early := range map[string]context.Context{"one that began before": one, "one that began later": late} {
		if cause := context.Cause(early); !errors.Is(cause, driven.ErrHandedOver) {
			t.Errorf("%s ends with %v", name, cause)
		}
	}
	p.Begin([]int{n})
	again, cancel := p.Early(t.Context(), run)
	defer cancel()
	if again.Err() != nil {
		t.Error("it does not begin again")
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
			ended := make(chan []int, 1)
			go func() { ended <- p.End(waiting, []int{n}, none(t)) }()
			for p.Drives(run) {
				runtime.Gosched()
			}
			back(p, n, func() {
				giveUp()
				if late := <-ended; !slices.Equal(late, []int{n}) {
					t.Errorf("late: %v", late)
				}
			})
			if leave() {
				t.Error("it is late")
			}
		})
	}
}

// mutation: Part that counts what has ended, or not what has begun.
func TestPartitions_PartIsWhatIsDriven(t *testing.T) {
	p, n := newPartitions(&owner{owns: true})
	p.Begin([]int{n, (n + 1) % protocol.Partitions})
	p.End(t.Context(), []int{n}, func([]int) {})
	if driven, of := p.Part(); driven != 1 || of != protocol.Partitions {
		t.Errorf("%d of %d are driven", driven, of)
	}
}
