// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
)

// driven is a family over which passes are made as the controller does: when it is woken, or when
// it said so.
type driven struct {
	*site
	woken  chan struct{}
	passes int
	longer int           // passes that took longer than briefly
	ends   chan struct{} // closed when no more passes are to be made; nil: never
}

// emptiesOf are the turns whose places are left empty, by *shares.Shares: in a process there is one
// Children, and in a test one for each parent.
var emptiesOf sync.Map

// drive is a parent of so many children in a bubble, whose creations take as long as takes says.
func drive(t *testing.T, places *shares.Shares, n int, takes func(child string) time.Duration) *driven {
	t.Helper()
	s, _, _ := family(t, n)
	d := &driven{site: s, woken: make(chan struct{}, 1)}
	s.Clock, s.Places = clock.RealClock{}, places
	common, _ := emptiesOf.LoadOrStore(places, &empties{})
	if shared, ok := common.(*empties); ok {
		s.empty.Store(shared)
	}
	s.Wake = func(types.NamespacedName) {
		select {
		case d.woken <- struct{}{}:
		default:
		}
	}
	s.answer = func(ctx context.Context, o client.Object) error {
		select {
		case <-time.After(takes(o.GetName())):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return d
}

// pass makes a pass, and says when another one is to be made unless it is woken; zero: never.
func (d *driven) pass(t *testing.T) time.Time {
	t.Helper()
	began := time.Now()
	rel := d.observes()
	render := func(_ context.Context, step string) (lifecycle.ChildToCreate, error) {
		return lifecycle.ChildToCreate{Step: step, Name: "p-" + step}, nil
	}
	ctx, stop := context.WithTimeout(t.Context(), 8*time.Second)
	defer stop()
	news, err := d.Create(ctx, d.while(), &d.state, d.parent, d.site, nil, render)
	if err != nil {
		t.Errorf("%v", err)
	}
	d.passes++
	if time.Since(began) > briefly {
		d.longer++
	}
	if news {
		return time.Now()
	}
	return rel.RetryAt
}

// there is how many of the children are.
func (d *driven) there() (n int) {
	for _, c := range d.observes().Children {
		if c.State == lifecycle.ChildThere {
			n++
		}
	}
	return n
}

// until makes passes until so many children are there, and says how long that took.
func (d *driven) until(t *testing.T, n int) time.Duration {
	t.Helper()
	began := time.Now()
	for d.there() < n {
		var again <-chan time.Time
		if at := d.pass(t); !at.IsZero() {
			again = time.After(time.Until(at))
		}
		if d.there() >= n {
			break
		}
		select {
		case <-d.woken:
		case <-again:
		case <-d.ends:
			return time.Since(began)
		case <-time.After(10 * time.Minute):
			t.Errorf("nobody makes a pass: %+v", d.observes().Children)
			return time.Since(began)
		}
	}
	return time.Since(began)
}

func every(long time.Duration) func(string) time.Duration {
	return func(string) time.Duration { return long }
}

// Where all places of a namespace are taken, runs take their turns, also one of which a creation
// hangs.
//
// mutations: place that gives up its turn with its pass, or that makes a new one though it has one.
func TestChildren_ACreationThatHangsKeepsNoSiblingFromItsTurn(t *testing.T) {
	for range 3 { // who is first is a matter of chance
		synctest.Test(t, func(t *testing.T) {
			places := shares.New(AtOnce, true, shares.KindMetrics{})
			var others sync.WaitGroup
			ends := make(chan struct{})
			for range 10 {
				d := drive(t, places, 30, every(3*time.Second))
				d.ends = ends
				others.Go(func() { d.until(t, 40) })
			}
			time.Sleep(3 * time.Second)
			d := drive(t, places, 6, func(child string) time.Duration {
				if child == "p-c0" {
					return time.Minute
				}
				return 3 * time.Second
			})
			if took := d.until(t, 5); took > 40*time.Second {
				t.Errorf("the five others were there after %s, and %d passes", took, d.passes)
			}
			if d.longer > 2 {
				t.Errorf("%d of %d passes took longer than %s", d.longer, d.passes, briefly)
			}
			close(ends)
			others.Wait()
			time.Sleep(time.Minute) // what is under way ends
		})
	}
}

// Places that come free are used at once.
//
// mutation: a turn that wakes nobody when it has its place.
func TestChildren_FreePlacesAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, shares.New(AtOnce, true, shares.KindMetrics{}), 40, every(20*time.Second))
		if took := d.until(t, 40); took > 101*time.Second {
			t.Errorf("all were there after %s, and %d passes", took, d.passes)
		}
	})
}

// full is a family of two whose places another run has for ten minutes, so that it is in line.
func full(t *testing.T) (d *driven, places *shares.Shares, free func()) {
	t.Helper()
	places = shares.New(1, true, shares.KindMetrics{})
	taken := places.Take("n", nil)
	d = drive(t, places, 2, every(time.Second))
	d.pass(t)
	if places.Waiting() != 1 {
		t.Fatalf("in line: %d", places.Waiting())
	}
	return d, places, func() { places.Give(taken) }
}

// Whoever does not want its turn any more gives it to others.
//
// mutations: a turn of which the end of the ownership is not heeded; Observe that leaves no line;
// one that a run whose last child is there keeps; LeaveLine that does nothing.
func TestChildren_WhoDoesNotCreateIsNotInLine(t *testing.T) {
	for name, stop := range map[string]func(d *driven, lose func()){
		"as the run is another process's": func(_ *driven, lose func()) { lose() },
		"as it waits for no child any more": func(d *driven, _ func()) {
			d.parent.Status.Steps = nil
			d.observes()
		},
		"as a quota is full": func(d *driven, _ func()) {
			d.state.full.until = time.Now().Add(time.Hour)
			d.observes()
		},
		"as it has ended, or was deleted": func(d *driven, _ func()) { d.state.LeaveLine() },
	} {
		for when, comes := range map[string]bool{"in line": false, "with its place": true} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d, places, free := full(t)
					d.state.LeaveLine()
					owned, lose := context.WithCancel(t.Context())
					defer lose()
					d.owned = owned
					d.pass(t)
					if comes {
						free()
						<-d.woken
					}
					stop(d, lose)
					synctest.Wait()
					if places.Waiting() != 0 {
						t.Error("it is in line yet")
					}
					if !comes {
						free()
					}
					if !places.Has(places.Take("n", nil)) {
						t.Error("it has its place yet")
					}
				})
			})
		}
	}
}

// A pass may be late, or never come to its creations.
//
// mutations: a place without a limit, or with one that does not begin where the pass has just
// ended; a limit that wakes nobody; place that waits for a turn that is over.
func TestChildren_APlaceIsNotLeftEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, places, free := full(t)
		began := time.Now()
		free()
		<-d.woken
		other := make(chan struct{})
		next := places.Take("n", func() { close(other) })
		<-other
		if took := time.Since(began); took != leftEmpty {
			t.Errorf("it was empty for %s", took)
		}
		<-d.woken
		d.pass(t) // in line again
		places.Give(next)
		if took := d.until(t, 2); took > 3*time.Second {
			t.Errorf("with its place: %s", took)
		}
	})
}

// What a pass leaves to the next one, at a desk, say, has its place then.
//
// mutation: stay that gives up a place though there is more.
func TestChildren_WhatIsLeftToTheNextPassKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, places, free := full(t)
		free()
		<-d.woken
		enough := func(context.Context, string) (lifecycle.ChildToCreate, error) {
			return lifecycle.ChildToCreate{}, render.ErrEnough
		}
		d.observes()
		if more, err := d.Create(t.Context(), d.while(), &d.state, d.parent, d.site, nil, enough); !more || err != nil {
			t.Fatalf("another pass at once: %t, %v", more, err)
		}
		if places.Has(places.Take("n", func() {})) {
			t.Error("it has no place for the next pass")
		}
		away := func(context.Context, string) (lifecycle.ChildToCreate, error) {
			return lifecycle.ChildToCreate{}, errLost
		}
		if _, err := d.Create(t.Context(), d.while(), &d.state, d.parent, d.site, nil, away); err == nil || places.Waiting() != 0 {
			t.Errorf("one that cannot be rendered keeps the place: %v", err)
		}
	})
}

// mutations: seen that says nothing, that says it at once, or that has nobody look again by then.
func TestChildren_ARunSaysThatItIsInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, free := full(t)
		rel := d.observes()
		if seen := rel.Children["p-c0"]; seen.State != lifecycle.ChildUnknown || !rel.RetryAt.Equal(time.Now().Add(tellLine)) {
			t.Errorf("at first: %+v, it looks again in %s", seen, time.Until(rel.RetryAt))
		}
		time.Sleep(tellLine)
		rel = d.observes()
		want := lifecycle.Child{State: lifecycle.ChildPostponed, Cause: lineText}
		if diff := cmp.Diff(map[string]lifecycle.Child{"p-c0": want, "p-c1": want}, rel.Children); diff != "" || !rel.RetryAt.IsZero() {
			t.Errorf("it looks again at %s, %s", rel.RetryAt, diff)
		}
		free()
		d.until(t, 2)
		if seen := d.observes().Children["p-c1"]; seen.State != lifecycle.ChildThere || !d.state.lacks.IsZero() {
			t.Errorf("%+v, it lacks places since %s", seen, d.state.lacks)
		}
	})
}
