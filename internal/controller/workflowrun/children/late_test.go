// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// runLate makes passes until its children are there. Each pass comes so long after what has it
// made. It says how long that took.
func (d *driven) runLate(t *testing.T, n int, late func() time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	for d.there() < n && time.Since(began) < time.Hour {
		if at := d.pass(t); !at.IsZero() && !at.After(time.Now()) || d.there() >= n {
			continue
		}
		select {
		case <-d.woken:
			time.Sleep(late())
		case <-time.After(10 * time.Minute):
			t.Errorf("nobody makes a pass: %+v", d.observes().Children)
			return time.Since(began)
		}
	}
	return time.Since(began)
}

// A pass may wait for a desk, for a place aside, or for the lock of an owner that died. Where all
// passes of a namespace do, its places are not only handed from one late run to the next.
//
// mutations: lineUp that takes no place which another run leaves empty; lose that does not note
// that a run is late.
func TestChildren_RunsWhosePassesAreLateCreateChildren(t *testing.T) {
	const runs = 60
	for _, late := range []time.Duration{time.Second, 11 * time.Second, 30 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				places, took := shares.New(AtOnce, true, shares.KindMetrics{}), make(chan time.Duration, runs)
				for i := range runs {
					d := drive(t, places, 1, every(50*time.Millisecond))
					go func() {
						time.Sleep(time.Duration(i) * time.Millisecond)
						took <- d.runLate(t, 1, func() time.Duration { return late + time.Duration(i)*10*time.Millisecond })
					}()
				}
				other := drive(t, places, 1, every(50*time.Millisecond))
				other.parent.Namespace = "m"
				time.Sleep(time.Second)
				if took := other.until(t, 1); took > time.Second {
					t.Errorf("the run of another namespace waited for %s", took)
				}
				for range runs { // each place is empty for leftEmpty at most before another run is called
					if took := <-took; took > runs/8*leftEmpty+3*late {
						t.Errorf("a child is there after %s", took)
					}
				}
				synctest.Wait()
				if places.Waiting() != 0 || !places.Has(places.Take("n", nil)) {
					t.Error("somebody is in line yet, or has a place")
				}
			})
		})
	}
}

// Whoever was late goes before those that came after it, once all places are in use.
//
// mutation: lineUp that takes a new number for a run that was late.
func TestChildren_ARunThatIsLateKeepsItsPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, places, free := full(t)
		busy := make(chan struct{})
		next := places.Take("n", func() { close(busy) })
		later := places.Take("n", func() {})
		free()
		<-busy // its pass did not come in time
		d.pass(t)
		places.Give(next)
		if places.Has(later) {
			t.Error("one that came later went before it")
		}
		d.until(t, 1)
		places.Give(later)
		d.until(t, 2)
	})
}

// A place that a run was called for is no newcomer's. One that was late itself takes it, and then
// the other one is late.
//
// mutations: lineUp that has any run take such a place; lose that wakes nobody, or that takes what
// a pass has taken.
func TestChildren_OnlyARunThatWasLateTakesAPlaceThatWaitsForItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, places, free := full(t)
		second := drive(t, places, 1, every(time.Second))
		second.pass(t)
		began := time.Now()
		free()
		<-second.woken // as the first was late
		if took := time.Since(began); took != leftEmpty {
			t.Errorf("the second was called after %s", took)
		}
		newcomer := drive(t, places, 1, every(time.Second))
		if newcomer.pass(t); newcomer.there() != 0 {
			t.Error("a newcomer has the place that the second was called for")
		}
		<-first.woken
		first.pass(t)
		if first.there() != 1 {
			t.Error("the first, which was late, has no place though one is empty")
		}
		select {
		case <-second.woken:
		default:
			t.Error("nobody has the second look again")
		}
		if took := second.until(t, 1); took > 5*time.Second {
			t.Errorf("the second was there after %s", took)
		}
		first.until(t, 2)
		newcomer.until(t, 1)
	})
}

// The place may come just after a pass has waited for it, or while a pass over a run that is in
// line is made for something else. It is not given up.
//
// mutations: each that does not note a child for which there was no place, or that the run is in
// line.
func TestChildren_APlaceThatComesAtTheEndOfAPassIsUsed(t *testing.T) {
	for name, passes := range map[string]int{"of the first pass": 1, "of a later pass": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				places := shares.New(1, true, shares.KindMetrics{})
				taken := places.Take("n", nil)
				d := drive(t, places, 1, every(time.Second))
				render := func(_ context.Context, step string) (lifecycle.ChildToCreate, error) {
					return lifecycle.ChildToCreate{Step: step, Name: "p-" + step}, nil
				}
				for nth := range passes {
					d.observes()
					sum := d.each(t.Context(), t.Context(), d.while(), &d.state, d.parent, d.site, nil, render)
					last := nth == passes-1
					if last {
						places.Give(taken)
					}
					if atOnce := d.state.stay(d.Children, sum.more); atOnce != last {
						t.Errorf("pass %d: another one at once: %t", nth, atOnce)
					}
				}
				if took := d.until(t, 1); took > time.Second {
					t.Errorf("the child is there after %s", took)
				}
			})
		})
	}
}
