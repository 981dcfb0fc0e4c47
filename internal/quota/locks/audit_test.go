// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// tree is what a tree of runs holds and waits for.
func tree(s *store.LocksSnapshot, name string, at int, holds, waits []string) {
	of := func(id string) store.Ticket {
		return store.Ticket{ID: id, Run: "ns/" + name, Tree: "ns/" + name, Created: time.Unix(int64(at), 0)}
	}
	if len(holds) > 0 {
		h := store.Holding{Ticket: of(name), Fence: int64(at)}
		for _, l := range holds {
			h.Locks = append(h.Locks, store.Hold{Name: l, Permits: 1})
		}
		s.Holds = append(s.Holds, h)
	}
	if len(waits) > 0 {
		w := store.Waiter{Ticket: of(name + "/step")}
		for _, l := range waits {
			w.Wants = append(w.Wants, store.Want{Name: l, Permits: 1})
		}
		s.Waiters = append(s.Waiters, w)
	}
}

// mutations: deadlocked that does not let trees end, or that looks at one lock only,
// makes this fail.
func TestWhatWaitsForItselfIsFound(t *testing.T) {
	type run struct{ holds, waits []string }
	for name, c := range map[string]struct {
		runs  []run
		limit int
		want  string
	}{
		"nobody waits":                        {[]run{{[]string{"a"}, nil}}, 1, ""},
		"one waits for one that goes on":      {[]run{{[]string{"a"}, nil}, {[]string{"b"}, []string{"a"}}}, 1, ""},
		"a chain that ends":                   {[]run{{[]string{"a"}, nil}, {[]string{"b"}, []string{"a"}}, {[]string{"c"}, []string{"b"}}}, 1, ""},
		"two wait for each other":             {[]run{{[]string{"a"}, []string{"b"}}, {[]string{"b"}, []string{"a"}}}, 1, "1/step"},
		"three in a ring":                     {[]run{{[]string{"a"}, []string{"b"}}, {[]string{"b"}, []string{"c"}}, {[]string{"c"}, []string{"a"}}}, 1, "2/step"},
		"a ring with a way out":               {[]run{{[]string{"a"}, []string{"b"}}, {[]string{"b"}, []string{"a"}}, {[]string{"b"}, nil}}, 2, ""},
		"a run waits for itself":              {[]run{{[]string{"a"}, []string{"a"}}}, 1, "0/step"},
		"who waits behind a ring is not hurt": {[]run{{[]string{"a"}, []string{"b"}}, {[]string{"b"}, []string{"a"}}, {nil, []string{"a"}}}, 1, "1/step"},
		"more than there is is no deadlock":   {[]run{{[]string{"a"}, []string{"none"}}}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var s store.LocksSnapshot
			for i, r := range c.runs {
				tree(&s, string(rune('0'+i)), i+1, r.holds, r.waits)
			}
			limit := func(lock string) (int, bool) {
				if lock == "none" {
					return 0, true
				}
				return c.limit, true
			}
			if got := deadlocked(s, limit); got != c.want {
				t.Errorf("refuses %q, want %q", got, c.want)
			}
		})
	}
}

// mutations: each line of the table of audit that is left out makes this fail.
func TestWhatAResyncFinds(t *testing.T) {
	held := []v1alpha1.LockHold{{Name: "a", Permits: 1, Fence: 7}}
	run := func(p Part) map[types.UID]fact {
		return map[types.UID]fact{"r": {uid: "r", version: "10", tickets: map[string]Part{"r": p}}}
	}
	hold := func(version string) store.LocksSnapshot {
		return store.LocksSnapshot{Holds: []store.Holding{{Ticket: store.Ticket{ID: "r", Version: version}, Locks: []store.Hold{{Name: "a", Permits: 1}}}}}
	}
	place := store.LocksSnapshot{Waiters: []store.Waiter{{Ticket: store.Ticket{ID: "r"}, Wants: []store.Want{{Name: "a", Permits: 1}}}}}
	for name, c := range map[string]struct {
		runs map[types.UID]fact
		s    store.LocksSnapshot
		want findings
	}{
		"a hold of a run that is gone":         {nil, hold("9"), findings{unknown: []string{"r"}}},
		"a hold of a run that is over":         {run(Part{Over: true}), hold("9"), findings{drop: []store.Dropping{{Ticket: "r"}}}},
		"a hold that status has":               {run(Part{Holds: held}), hold("9"), findings{}},
		"one that nobody can write any more":   {run(Part{}), hold("9"), findings{drop: []store.Dropping{{Ticket: "r", Seen: "10"}}}},
		"one that can still be written":        {run(Part{}), hold("10"), findings{idle: []string{"r"}}},
		"one that is younger than what we see": {run(Part{}), hold("11"), findings{idle: []string{"r"}}},
		"a place of a run that is gone":        {nil, place, findings{unknown: []string{"r"}}},
		"a place of one that is over":          {run(Part{Over: true}), place, findings{drop: []store.Dropping{{Ticket: "r"}}}},
		"a place of one that does not wait":    {run(Part{}), place, findings{idle: []string{"r"}}},
		"held by status, and not in Redis":     {run(Part{Holds: held}), store.LocksSnapshot{}, findings{missing: []string{"r"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := audit(c.runs, c.s, oneEach)
			if !slices.Equal(got.drop, c.want.drop) || !slices.Equal(got.idle, c.want.idle) || !slices.Equal(got.missing, c.want.missing) ||
				!slices.Equal(got.unknown, c.want.unknown) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
	if f := audit(run(Part{Waits: true}), store.LocksSnapshot{}, oneEach); !f.wake["r"] {
		t.Error("one that waits, and has no place, is not woken")
	}
	if f := audit(run(Part{Waits: true}), place, oneEach); !f.wake["r"] {
		t.Error("one that could have its lock is not woken")
	}
}
