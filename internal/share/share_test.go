// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fill takes places one by one until there is none for the owner.
func fill(r *Room, tenant, run string) (n int64) {
	for r.Take(tenant, run, 1) {
		n++
	}
	return n
}

// mutation: shares of the limit instead of what is free, runPart 1, or a look at the run or the
// tenant only, makes a case fail.
func TestWhoFloodsARoomLeavesSomeOfItToOthers(t *testing.T) {
	for name, c := range map[string]struct {
		fill func(r *Room)
		held int64 // of 1,200
	}{
		"one run has a third":                  {func(r *Room) { fill(r, "a", "a1") }, 400},
		"one tenant with many runs has a half": {func(r *Room) { floodBy(r, "a", 100) }, 600},
		"a second one a half of the rest":      {func(r *Room) { floodBy(r, "a", 100); floodBy(r, "b", 100) }, 900},
		"runs of nobody share as runs":         {func(r *Room) { fill(r, "", "x") }, 400},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRoom(1200)
			c.fill(r)
			if r.Used() > c.held || r.Used() < c.held-2 {
				t.Errorf("%d are held, want %d", r.Used(), c.held)
			}
			if n := fill(r, "new", "new1"); n < (1200-c.held)/3-1 {
				t.Errorf("a newcomer gets %d of the %d that are free", n, 1200-c.held)
			}
		})
	}
}

func floodBy(r *Room, tenant string, runs int) {
	for i := range runs {
		fill(r, tenant, fmt.Sprint(tenant, i))
	}
}

// mutation: no exception for the empty room, or one for every room, makes this fail.
func TestWhatIsLargerThanTheRoomComesInAlone(t *testing.T) {
	r := NewRoom(10)
	if !r.Take("a", "a1", 11) {
		t.Error("it can never come in")
	}
	if r.Take("b", "b1", 1) {
		t.Error("something came in beside it")
	}
	r.Free("a", "a1", 11)
	if !r.Take("b", "b1", 10) || r.Used() != 10 || r.Limit() != 10 {
		t.Errorf("%d of %d are used", r.Used(), r.Limit())
	}
}

// mutation: Free that leaves a run or a tenant behind, Add that does not count one of them, or a
// Take that goes beyond a limit that shrank makes this fail.
func TestARoomKeepsItsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type entry struct {
			tenant, run string
			n           int64
		}
		r := NewRoom(rapid.Int64Range(1, 100).Draw(t, "limit"))
		var held []entry
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "free") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				r.Free(held[i].tenant, held[i].run, held[i].n)
				held = append(held[:i], held[i+1:]...)
				continue
			}
			tenant := rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "tenant")
			e := entry{tenant, tenant + rapid.SampledFrom([]string{"1", "2"}).Draw(t, "run"), rapid.Int64Range(1, 20).Draw(t, "n")}
			switch before := r.Used(); rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				r.SetLimit(rapid.Int64Range(1, 100).Draw(t, "limit"))
			case 1:
				r.Add(e.tenant, e.run, e.n)
				held = append(held, e)
			default:
				if !r.Take(e.tenant, e.run, e.n) {
					break
				}
				held = append(held, e)
				if r.Used() > r.Limit() && before > 0 {
					t.Fatalf("%d of %d are used by %d", r.Used(), r.Limit(), len(held))
				}
			}
		}
		for _, e := range held {
			r.Free(e.tenant, e.run, e.n)
		}
		if r.Used() != 0 || len(r.byRun) != 0 || len(r.byTenant) != 0 {
			t.Fatalf("after all is freed: %d used, runs %v, tenants %v", r.Used(), r.byRun, r.byTenant)
		}
	})
}

// mutation: one line for all owners makes the neighbour wait as long as the flood; no part of the
// rate per owner lets two come at twice the rate.
func TestAPaceGivesEachOwnerItsPart(t *testing.T) {
	now := time.Unix(1000, 0)
	p := NewPace(time.Minute)
	var last time.Duration
	for range 1000 {
		last = p.Wait("flood", time.Millisecond, now)
	}
	if last != time.Second {
		t.Errorf("the last of a thousand waits %s, want one second", last)
	}
	if w := p.Wait("neighbour", time.Millisecond, now); w != 2*time.Millisecond {
		t.Errorf("a neighbour waits %s, want its part of the rate", w)
	}
	if w := p.Wait("flood", time.Millisecond, now); w != time.Second+2*time.Millisecond {
		t.Errorf("the next of the flood waits %s", w)
	}
	if w := p.Wait("flood", time.Millisecond, now.Add(time.Hour)); w != time.Millisecond || len(p.next) != 1 {
		t.Errorf("after an hour it waits %s, %d owners are known", w, len(p.next))
	}
}

// mutation: no bound makes this fail.
func TestAPaceHasALongestWait(t *testing.T) {
	p := NewPace(time.Second)
	for range 10 {
		if w := p.Wait("flood", 300*time.Millisecond, time.Unix(1000, 0)); w > time.Second {
			t.Fatalf("a wait of %s", w)
		}
	}
}
