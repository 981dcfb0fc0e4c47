// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// stored is a Redis of the tests: its name, which the first that may gives it.
type stored struct{ name chan string }

func newStored(name string) *stored {
	s := &stored{name: make(chan string, 1)}
	s.name <- name
	return s
}

// look is what a store does: it names what has no name, and tells which name it is.
func (s *stored) look(r *Redis) error {
	name := <-s.name
	if name == "" {
		name = r.Name()
	}
	s.name <- name
	_, err := r.Named(name)
	return err
}

// set has Redis be another one, or lose its data.
func (s *stored) set(name string) {
	<-s.name
	s.name <- name
}

func (s *stored) is() string {
	name := <-s.name
	s.name <- name
	return name
}

// on makes a member that has this Redis.
func (w *world) on(name string, s *stored) (*fellow, *Redis) {
	r := NewRedis("fresh-" + name)
	return w.newFellow(name, func(o *Options) {
		o.Redis = r
		o.Fit = func(context.Context) error {
			_ = s.look(r)
			return nil
		}
	}), r
}

// says is what the Lease of a member says of Redis, and why it is unfit.
func (w *world) says(member string) (uses, wants, unfit string) {
	w.t.Helper()
	var l coordinationv1.Lease
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: LeasePrefix + member}, &l); err != nil {
		return "", "", ""
	}
	return l.Annotations[RedisAnnotation], l.Annotations[RedisWantedAnnotation], l.Annotations[UnfitAnnotation]
}

// A rolling update to another Redis: the one of before goes on, and the one of now begins when it
// is gone, whether that one hands all on or not.
//
// mutations: ownsNothing without Redis, and wrote that is never told, make this fail.
func TestWhoHasAnotherRedisOwnsNothingUntilTheOthersAreGone(t *testing.T) {
	for name, fresh := range map[string]string{"one that was used": "other", "one that is new": ""} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.unowned()
			before, after := newStored(""), newStored(fresh)
			a, usesA := w.on("a", before)
			a.run()
			w.eventually("it owns all", owned(a))
			b, usesB := w.on("b", after)
			b.run()
			w.eventually("it is told", func() bool { return errors.Is(after.look(usesB), ErrOtherRedis) })
			w.eventually("its Lease says why", func() bool { uses, wants, unfit := w.says("b"); return uses+wants == "" && unfit == UnfitRedis })
			if moved := w.moves(func() bool { return a.count() == Partitions }, a, b); moved != "" {
				t.Errorf("partitions moved: %s", moved)
			}
			if err := after.look(usesB); !errors.Is(err, ErrOtherRedis) || !strings.Contains(err.Error(), "scale the operator to 0") || !strings.Contains(err.Error(), " a ") {
				t.Errorf("it is told %v", err)
			}
			if err := before.look(usesA); err != nil || before.is() != "fresh-a" || after.is() != fresh {
				t.Errorf("the first: %v; the names are %q and %q", err, before.is(), after.is())
			}
			if uses, _, unfit := w.says("a"); uses != "fresh-a" || unfit != "" {
				t.Errorf("the Lease of the first says %q, %q", uses, unfit)
			}
			a.end()
			if b.count() != 0 {
				t.Error("it was given partitions by one that used another Redis")
			}
			w.eventually("the other owns all", owned(b))
			if err := after.look(usesB); err != nil {
				t.Error(err)
			}
		})
	}
}

// A Redis is gone for good, and its replicas go on saying that they use it: nobody
// else could begin.
//
// mutations: remark that never withdraws, withdraw that keeps what the Lease says, and one of who
// has an answer, make this fail.
func TestWhoseRedisIsGoneKeepsNobodyFromAnotherOne(t *testing.T) {
	w := newWorld(t)
	w.unowned()
	before, after, nats := newStored("first"), newStored("second"), newStored("")
	usesA := NewRedis("fresh-a")
	a := w.newFellow("a", func(o *Options) {
		o.Redis = usesA
		o.Fit = func(context.Context) error {
			if before.is() == "gone" {
				return errors.New("redis: connection refused")
			}
			if _ = before.look(usesA); nats.is() == "gone" {
				return errors.New("nats: not connected")
			}
			return nil
		}
	})
	a.run()
	w.eventually("it owns all", owned(a))
	nats.set("gone")
	w.eventually("it is unfit", func() bool { uses, _, unfit := w.says("a"); return uses == "first" && unfit == UnfitDependency })
	b, usesB := w.on("b", after)
	b.run()
	w.eventually("its Redis is another one", func() bool { return errors.Is(after.look(usesB), ErrOtherRedis) })
	before.set("gone")
	nats.set("")
	w.eventually("the other owns all", owned(b))
	if uses, wants, _ := w.says("a"); uses+wants != "" || after.look(usesB) != nil {
		t.Errorf("it says %q, %q; the other: %v", uses, wants, after.look(usesB))
	}
	before.set("first")
	w.eventually("it comes too late", func() bool { return errors.Is(before.look(usesA), ErrOtherRedis) })
	if b.count() == 0 {
		t.Error("it took the partitions back")
	}
}

// mutation: Name that is another one for who uses the Redis makes this fail.
func TestARedisThatLostItsDataGetsItsNameBack(t *testing.T) {
	w := newWorld(t)
	w.unowned()
	s := newStored("given")
	a, _ := w.on("a", s)
	a.run()
	w.eventually("it owns all", owned(a))
	name := s.is()
	s.set("")
	b, _ := w.on("b", s)
	b.run()
	w.eventually("it has its name", func() bool { return s.is() == name })
	w.eventually("both have a part", divided(a, b))
}

// All see another Redis at the same address, as by DNS, one after the other.
//
// mutations: Named that goes on where the name is another one makes this fail.
func TestWhoSeesAnotherRedisStopsUntilAllDo(t *testing.T) {
	w := newWorld(t)
	w.unowned()
	first, second := newStored("first"), newStored("first")
	a, usesA := w.on("a", first)
	b, usesB := w.on("b", second)
	a.run()
	b.run()
	w.eventually("both have a part", divided(a, b))
	first.set("second")
	w.eventually("one stops", func() bool { return errors.Is(first.look(usesA), ErrOtherRedis) && a.count() == 0 })
	w.eventually("the other has all", owned(b))
	if err := second.look(usesB); err != nil {
		t.Error(err)
	}
	second.set("second")
	w.eventually("both use the other one", func() bool { return first.look(usesA) == nil && second.look(usesB) == nil })
	w.eventually("both have a part again", divided(a, b))
}

// A member of a version before this one says nothing, and a Lease that was edited is written again.
// mutation: decide that never gives way once it is settled makes this fail.
func TestOfTwoThatUseTwoRedisTheLaterStops(t *testing.T) {
	older := saying{member: "a", name: "first", settled: true}
	for name, c := range map[string]struct {
		other saying
		stays bool
	}{
		"an earlier one uses another": {other: older},
		"an earlier one wants it":     {other: saying{member: "a", name: "first"}, stays: true},
		"a later one uses another":    {other: saying{member: "c", name: "first", settled: true}, stays: true},
		"it says nothing":             {other: saying{member: "a"}, stays: true},
	} {
		r := NewRedis("fresh")
		_, _ = r.Named("second")
		r.wrote(r.saying(), 1)
		own := saying{member: "b"}
		none := func(string) bool { return false }
		r.heardOf(2, 0, "b", []saying{own}, none)
		if _, err := r.Named("second"); err != nil {
			t.Fatal(err)
		}
		r.heardOf(3, 0, "b", []saying{own, c.other}, none)
		if _, err := r.Named("second"); (err == nil) != c.stays || err != nil && !errors.Is(err, ErrOtherRedis) {
			t.Errorf("%s: %v", name, err)
		}
		if gives := r.Name(); (gives == "second") != c.stays {
			t.Errorf("%s: if it loses its data it is called %q", name, gives)
		}
	}
}

// mutation: heardOf that forgets who is not in the list makes this fail.
func TestWhatAMemberSaidOfRedisCountsUntilItIsGone(t *testing.T) {
	a, own, over := saying{member: "a", name: "first", settled: true}, saying{member: "b"}, false
	gone := func(string) bool { return over }
	r := NewRedis("fresh")
	_, _ = r.Named("second")
	r.heardOf(1, 0, "b", []saying{own, a}, gone)
	r.heardOf(2, 0, "b", []saying{own}, gone)
	if _, err := r.Named("second"); !errors.Is(err, ErrOtherRedis) || r.saying().name != "" {
		t.Errorf("the Lease of the other was deleted: %v, says %v", err, r.saying())
	}
	over = true
	r.heardOf(3, 0, "b", []saying{own}, gone)
	r.wrote(r.saying(), 4)
	r.heardOf(5, 0, "b", []saying{own}, gone)
	if _, err := r.Named("second"); err != nil || r.saying() != (saying{name: "second", settled: true}) {
		t.Errorf("the other is gone: %v, says %v", err, r.saying())
	}
}

// After an outage of the API server all want theirs again: those of before have the earlier Leases.
// mutations: decide whose earlier member gives way, too, or whose later one does not, make this
// fail.
func TestOfTwoThatWantTwoRedisTheLaterGivesWay(t *testing.T) {
	a := saying{member: "a", name: "first", created: time.Unix(1, 0)}
	b := saying{member: "b", name: "second", created: time.Unix(2, 0)}
	none := func(string) bool { return false }
	for _, own := range []saying{a, b} {
		r := NewRedis("fresh")
		_, _ = r.Named(own.name)
		r.wrote(r.saying(), 1)
		r.heardOf(2, 0, own.member, []saying{a, b}, none)
		if wants := r.saying().name != ""; wants != (own.member == "a") {
			t.Errorf("%s wants its own: %v", own.member, wants)
		}
		if _, err := r.Named(own.name); !errors.Is(err, ErrOtherRedis) {
			t.Errorf("%s may use its own: %v", own.member, err)
		}
	}
}

// mutation: blocks that asks for an answer of Redis makes this fail.
func TestARedisThatDoesNotAnswerBlocksNobody(t *testing.T) {
	r := NewRedis("fresh")
	if !r.blocks(false) || r.blocks(true) {
		t.Error("it is blocked though Redis does not answer, or is not before it was asked")
	}
	_, _ = r.Named("name")
	if !r.blocks(true) {
		t.Error("it owns partitions before the others were asked")
	}
	if nobody := (*Redis)(nil); nobody.blocks(false) || nobody.saying() != (saying{}) || nobody.wrote(saying{}, 1) || nobody.wantsList(0) {
		t.Error("where one leads somebody is blocked")
	}
}
