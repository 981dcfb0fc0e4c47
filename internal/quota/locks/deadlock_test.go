// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// refuses are the tickets of the waits that have to end, with spaces between them; "": none.
func refuses(t *testing.T, s store.LocksSnapshot, limit limitOf, v *view) string {
	t.Helper()
	all, left, err := deadlocked(t.Context(), s, limit, v, refusedIn(s), false)
	must(t, err)
	var ids []string
	for _, w := range all {
		ids = append(ids, w.Ticket.ID)
	}
	if left && len(ids) == 0 {
		t.Error("rings are left for the sake of none")
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// Each of 2,000 runs waits for the eight locks of one run, of which 3,500 child runs wait for what
// the youngest of them holds: that is a ring. What a look at it takes is some hundred bytes for
// each of them, and not for each of the others that each of them waits for.
//
// mutation: edges that names for each wait, or for each lock, all that have to go on before makes
// this fail.
func TestARingWithManyThatWaitTakesLittleMemory(t *testing.T) {
	const below, outside, eight = 3500, 2000, 8
	s, v := store.LocksSnapshot{}, view{runs: map[types.UID]fact{}, parents: map[string]string{}}
	var locks []string
	for i := range eight {
		locks = append(locks, fmt.Sprint("l", i))
	}
	tied{run: "root", holds: locks}.enter(&s, 1)
	for i := range below {
		tied{run: fmt.Sprint("child", i), tree: "root", waits: []string{"back"}}.enter(&s, 2)
		v.parents[fmt.Sprint("ns/child", i)] = "ns/root"
	}
	for i := range outside {
		tied{run: fmt.Sprint("run", i), part: "step", waits: locks}.enter(&s, 3)
	}
	tied{run: "last", holds: []string{"back"}}.enter(&s, 4)
	tied{run: "last", part: "step", waits: locks}.enter(&s, 5)

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := refuses(t, s, oneEach, &v)
	runtime.ReadMemStats(&after)
	if got != "last/step" {
		t.Errorf("refuses %q, want last/step", got)
	}
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(32<<20); took > most {
		t.Errorf("it takes %d bytes, want %d at most", took, most)
	}
}

// Each step of a run holds a lock, and has an item that waits for that of the next step: the last
// one ends first, and then one after the other. How often a limit is asked for tells how often what
// there is was looked at.
//
// mutation: deadlocked that looks at all of them again after each that ends makes this fail.
func TestAChainOfLocksIsFollowedOnce(t *testing.T) {
	const links = 300
	s, v := store.LocksSnapshot{}, view{runs: map[types.UID]fact{}, parents: map[string]string{}}
	for i := range links {
		tied{run: "run", part: fmt.Sprint("s", i), holds: []string{fmt.Sprint("l", i)}}.enter(&s, i+1)
		tied{run: "run", part: fmt.Sprint("s", i, "/1"), waits: []string{fmt.Sprint("l", i+1)}}.enter(&s, i+1)
	}
	asked := 0
	limit := func(string) (int, bool) {
		asked++
		return 1, true
	}
	if got := refuses(t, s, limit, &v); got != "" {
		t.Errorf("refuses %s", got)
	}
	if most := 10 * links; asked > most {
		t.Errorf("%d limits are asked for, want %d at most", asked, most)
	}
}

// byChance are some runs, with child runs, steps and items, that hold and wait for some locks.
func byChance(r *rand.Rand) (store.LocksSnapshot, view, limitOf) {
	s, v := store.LocksSnapshot{}, view{runs: map[types.UID]fact{}, parents: map[string]string{}}
	limits := map[string]int{}
	for i := range 2 + r.IntN(4) {
		limits[fmt.Sprint("l", i)] = r.IntN(3)
	}
	some := func() (names []string) {
		for i := range len(limits) + 1 { // the last one has no limit
			if r.IntN(len(limits)+1) < 2 {
				names = append(names, fmt.Sprint("l", i))
			}
		}
		return names
	}
	ordered := r.IntN(2) == 0
	runs := 2 + r.IntN(4)
	for i := range runs {
		name, tree := fmt.Sprint(i), fmt.Sprint(i)
		status := &v1alpha1.WorkflowRunStatus{}
		for above := range i {
			if r.IntN(2*i) == 0 && v.parents["ns/"+name] == "" {
				v.parents["ns/"+name] = "ns/" + fmt.Sprint(above)
				steps := v.runs[types.UID(fmt.Sprint(above))].status
				steps.Steps = append(steps.Steps, v1alpha1.StepStatus{Name: fmt.Sprint("s", r.IntN(2)), ChildRun: &v1alpha1.ChildRunStatus{Name: name}})
				for up := v.parents["ns/"+name]; up != ""; up = v.parents[up] {
					tree = up[len("ns/"):]
				}
			}
		}
		v.runs[types.UID(name)] = fact{uid: types.UID(name), name: types.NamespacedName{Namespace: "ns", Name: name}, status: status}
		for _, part := range []string{"", "s0", "s0/1", "s0/2", "s1", "s1/1", "s10"} {
			k := tied{run: name, part: part, tree: tree}
			switch r.IntN(4) {
			case 0:
				k.holds = some()
			case 1:
				k.waits = some()
			}
			k.enter(&s, 1+r.IntN(3))
		}
	}
	for i := range s.Holds {
		for j := range s.Holds[i].Locks {
			s.Holds[i].Locks[j].Permits = 1 + r.IntN(2)
		}
		if r.IntN(10) == 0 {
			s.Holds[i].Locks = store.Reserved(s.Holds[i].Locks)
		}
	}
	for i := range s.Waiters {
		if r.IntN(8) == 0 {
			s.Waiters[i].Refused = store.LocksDeadlock
		}
		for j := range s.Waiters[i].Wants {
			want := &s.Waiters[i].Wants[j]
			want.Permits, want.Ordered = 1+r.IntN(2), ordered && want.Name < "l2"
		}
	}
	r.Shuffle(len(s.Holds), func(i, j int) { s.Holds[i], s.Holds[j] = s.Holds[j], s.Holds[i] })
	r.Shuffle(len(s.Waiters), func(i, j int) { s.Waiters[i], s.Waiters[j] = s.Waiters[j], s.Waiters[i] })
	return s, v, func(lock string) (int, bool) {
		n, ok := limits[lock]
		return n, ok
	}
}

// mutations: a lock whose line does not move on, a hold that ends before all parts that it needs,
// one in no line that others stand behind, a hold that is reserved and needs what waits, and rings
// that takes each way for one, make this fail. So do a youngest of all, one of a set that waits for
// another one, and holds that wait for one that was refused.
func TestWhatWaitsForItselfIsFoundAsByALookAtAll(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found, lines, reserved, many := 0, 0, 0, 0
	for i := range 20_000 {
		s, v, limit := byChance(r)
		want := plainlyDeadlocked(s, limit, v.plainlyNeeds)
		if want != "" {
			found++
			if strings.Contains(want, " ") {
				many++
			}
			if slices.ContainsFunc(s.Waiters, func(w store.Waiter) bool { return len(w.Wants) > 0 && w.Wants[0].Ordered }) {
				lines++
			}
			if slices.ContainsFunc(s.Holds, store.Holding.IsReserved) {
				reserved++
			}
		}
		if got := refuses(t, s, limit, &v); got != want {
			t.Fatalf("graph %d: refuses %q, want %q\n%+v", i, got, want, s)
		}
	}
	if found < 1000 || lines < 300 || reserved < 300 || many < 10 {
		t.Errorf("%d graphs have a ring, %d of them an Ordered line, %d a hold that is reserved, and %d many rings", found, lines, reserved, many)
	}
}

// mutation: deadlocked that does not look at its context makes this fail.
func TestTheLookForARingEndsWithItsContext(t *testing.T) {
	var s store.LocksSnapshot
	tied{run: "run", waits: []string{"l"}}.enter(&s, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if all, _, err := deadlocked(ctx, s, oneEach, &view{}, nil, false); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", all, err)
	}
}

// Child runs of one tree have one age, that of the run at the top.
//
// mutation: youngest that goes by when a ticket was created.
func TestTheYoungestOfARingIsWhoCameLast(t *testing.T) {
	s, v := store.LocksSnapshot{}, view{runs: map[types.UID]fact{}, parents: map[string]string{}}
	for _, run := range []string{"a", "b"} {
		tied{run: run, tree: "root", holds: []string{run}}.enter(&s, 1)
	}
	tied{run: "a", part: "step", tree: "root", waits: []string{"b"}}.enter(&s, 1)
	tied{run: "b", part: "step", tree: "root", waits: []string{"a"}}.enter(&s, 1)
	for i, want := range []string{"a/step", "b/step"} {
		for j := range s.Waiters {
			s.Waiters[j].Ticket.Came = time.Unix(int64(100+i*j*9-j), 0)
		}
		if got := refuses(t, s, oneEach, &v); got != want {
			t.Errorf("refuses %q, want %q", got, want)
		}
	}
}
