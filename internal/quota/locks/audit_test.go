// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// tied is what a run, a step or an item holds, and what waits in the same tree of runs.
type tied struct {
	run, part, tree string // tree "": the run itself
	holds, waits    []string
}

func (k tied) enter(s *store.LocksSnapshot, at int) {
	id := k.run
	if k.part != "" {
		id += "/" + k.part
	}
	t := store.Ticket{ID: id, Run: "ns/" + k.run, Tree: "ns/" + cmp.Or(k.tree, k.run), Created: time.Unix(int64(at), 0)}
	if len(k.holds) > 0 {
		h := store.Holding{Ticket: t, Fence: int64(at)}
		for _, l := range k.holds {
			h.Locks = append(h.Locks, store.Hold{Name: l, Permits: 1})
		}
		s.Holds = append(s.Holds, h)
	}
	if len(k.waits) > 0 {
		w := store.Waiter{Ticket: t}
		for _, l := range k.waits {
			w.Wants = append(w.Wants, store.Want{Name: l, Permits: 1})
		}
		s.Waiters = append(s.Waiters, w)
	}
}

// locking is a run with locks of its own, and a step that waits.
func locking(name string, holds, waits []string) []tied {
	return []tied{{run: name, holds: holds}, {run: name, part: "step", waits: waits}}
}

// mutations: deadlocked that does not let ends follow from ends, or that looks at one lock only,
// needs that says yes to each step of a tree, to none, or to those of other runs only, makes
// this fail.
func TestWhatWaitsForItselfIsFound(t *testing.T) {
	a, b, c, d := []string{"a"}, []string{"b"}, []string{"c"}, []string{"d"}
	step := func(run, part string, holds, waits []string) []tied {
		return []tied{{run: run, part: part, holds: holds, waits: waits}}
	}
	below := func(run string, holds, waits []string) []tied { // in the child run of step "child" of a run
		return []tied{{run: run + "-child", part: "s", tree: run, holds: holds, waits: waits}}
	}
	for name, c := range map[string]struct {
		all   [][]tied
		limit int
		want  string
	}{
		"nobody waits":                         {[][]tied{locking("0", a, nil)}, 1, ""},
		"one waits for one that goes on":       {[][]tied{locking("0", a, nil), locking("1", b, a)}, 1, ""},
		"a chain that ends":                    {[][]tied{locking("0", a, nil), locking("1", b, a), locking("2", c, b)}, 1, ""},
		"the same the other way round":         {[][]tied{locking("0", c, b), locking("1", b, a), locking("2", a, nil)}, 1, ""},
		"two wait for each other":              {[][]tied{locking("0", a, b), locking("1", b, a)}, 1, "1/step"},
		"three in a ring":                      {[][]tied{locking("0", a, b), locking("1", b, c), locking("2", c, a)}, 1, "2/step"},
		"a ring with a way out":                {[][]tied{locking("0", a, b), locking("1", b, a), locking("2", b, nil)}, 2, ""},
		"a run waits for itself":               {[][]tied{locking("0", a, a)}, 1, "0/step"},
		"who waits behind a ring is not hurt":  {[][]tied{locking("0", a, b), locking("1", b, a), locking("2", nil, a)}, 1, "1/step"},
		"nor one that holds what nobody wants": {[][]tied{locking("0", a, b), locking("1", b, a), locking("2", c, a), locking("3", d, c)}, 1, "1/step"},
		"nor one that stands between two": {
			[][]tied{locking("0", a, []string{"b", "s"}), locking("1", b, a), locking("2", c, d), locking("3", d, c), locking("4", []string{"s"}, c)}, 1, "3/step",
		},
		"more than there is is no deadlock": {[][]tied{locking("0", a, []string{"none"})}, 1, ""},
		"steps side by side that cross": {
			[][]tied{step("0", "x", a, nil), step("0", "y", nil, b), step("1", "x", b, nil), step("1", "y", nil, a)}, 1, "",
		},
		"items that cross": {
			[][]tied{step("0", "x/1", a, nil), step("0", "x/2", nil, b), step("1", "x/7", b, nil), step("1", "x/9", nil, a)}, 1, "",
		},
		"an item waits for its step": {[][]tied{step("0", "x", a, nil), step("0", "x/1", nil, a), step("0", "xy/1", nil, b)}, 1, "0/x/1"},
		"items of steps that cross": {
			[][]tied{step("0", "x", a, nil), step("0", "x/1", nil, b), step("1", "x", b, nil), step("1", "x/1", nil, a)}, 1, "1/x/1",
		},
		"items of another step":              {[][]tied{step("0", "x", a, nil), step("0", "xy/1", nil, a), step("0", "xy", b, nil)}, 1, ""},
		"an item waits for its run":          {[][]tied{locking("0", a, nil), step("0", "x/1", nil, a)}, 1, "0/x/1"},
		"a step waits for its own child":     {[][]tied{step("0", "child", a, nil), below("0", nil, a)}, 1, "0-child/s"},
		"by way of children":                 {[][]tied{step("0", "child", a, nil), below("0", nil, b), step("1", "child", b, nil), below("1", nil, a)}, 1, "1-child/s"},
		"beside a child that goes on":        {[][]tied{step("0", "child", a, nil), step("0", "y", nil, b), step("1", "child", b, nil), step("1", "y", nil, a)}, 1, ""},
		"a child waits for a step beside it": {[][]tied{step("0", "x", a, nil), step("0", "child", b, nil), below("0", nil, a)}, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var s store.LocksSnapshot
			v := view{runs: map[types.UID]fact{}, parents: map[string]string{}}
			for i, some := range c.all {
				for _, k := range some {
					k.enter(&s, i+1)
					status := &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{{Name: "child", ChildRun: &v1alpha1.ChildRunStatus{Name: k.run + "-child"}}}}
					v.runs[types.UID(k.run)] = fact{uid: types.UID(k.run), name: types.NamespacedName{Namespace: "ns", Name: k.run}, status: status}
					v.parents["ns/"+k.run+"-child"] = "ns/" + k.run
				}
			}
			limit := func(lock string) (int, bool) {
				if lock == "none" {
					return 0, true
				}
				return c.limit, true
			}
			if got := refuses(t, s, limit, &v); got != c.want {
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
	reserved := hold("9")
	reserved.Holds[0].Locks = store.Reserved(reserved.Holds[0].Locks)
	place := store.LocksSnapshot{Waiters: []store.Waiter{{Ticket: store.Ticket{ID: "r"}, Wants: []store.Want{{Name: "a", Permits: 1}}}}}
	for name, c := range map[string]struct {
		runs map[types.UID]fact
		s    store.LocksSnapshot
		want findings
	}{
		"a hold of a run that is gone":         {nil, hold("9"), findings{unknown: []string{"r"}}},
		"a hold of a run that is over":         {run(Part{Over: true}), hold("9"), findings{drop: []store.Dropping{{Ticket: "r"}}}},
		"a hold that status has":               {run(Part{Holds: held}), hold("9"), findings{}},
		"a reserved one that status has":       {run(Part{Holds: held}), reserved, findings{real: []string{"r"}}},
		"a reserved one that it has not":       {run(Part{}), reserved, findings{drop: []store.Dropping{{Ticket: "r", Seen: "10"}}}},
		"one that nobody can write any more":   {run(Part{}), hold("9"), findings{drop: []store.Dropping{{Ticket: "r", Seen: "10"}}}},
		"one that can still be written":        {run(Part{}), hold("10"), findings{idle: []string{"r"}}},
		"one that is younger than what we see": {run(Part{}), hold("11"), findings{idle: []string{"r"}}},
		"a place of a run that is gone":        {nil, place, findings{unknown: []string{"r"}}},
		"a place of one that is over":          {run(Part{Over: true}), place, findings{drop: []store.Dropping{{Ticket: "r"}}}},
		"a place of one that does not wait":    {run(Part{}), place, findings{places: []string{"r"}}},
		"a place that was a hold meanwhile":    {run(Part{Holds: held}), place, findings{}},
		"held by status, and not in Redis":     {run(Part{Holds: held}), store.LocksSnapshot{}, findings{missing: []string{"r"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := audit(c.runs, c.s, oneEach, noneRated, noneBelow)
			if !slices.Equal(got.drop, c.want.drop) || !slices.Equal(got.idle, c.want.idle) || !slices.Equal(got.missing, c.want.missing) || !slices.Equal(got.real, c.want.real) ||
				!slices.Equal(got.unknown, c.want.unknown) || !slices.Equal(got.places, c.want.places) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
	if f := audit(run(Part{Waits: true}), store.LocksSnapshot{}, oneEach, noneRated, noneBelow); !f.wake["r"] {
		t.Error("one that waits, and has no place, is not woken")
	}
	if f := audit(run(Part{Waits: true}), place, oneEach, noneRated, noneBelow); !f.wake["r"] {
		t.Error("one that could have its lock is not woken")
	}
}

// What is over keeps what it has while a child run inside of it has not ended: it may be at its
// clean-up. A place is looked at as a hold is: it may have become one.
//
// mutations: audit that does not ask, below that looks at all children for a step, at children of
// the run only, at those that say so themselves, or again and again, makes a row fail.
func TestWhatIsOverKeepsItsLocksForAChildAtItsCleanUp(t *testing.T) {
	ended := func(uid string, children ...v1alpha1.StepStatus) *v1alpha1.WorkflowRun {
		run := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{CompletedAt: &metav1.Time{}, Steps: children}}
		run.UID, run.Name, run.Namespace, run.ResourceVersion = types.UID(uid), uid, "ns", "10"
		run.Spec.WorkflowRef = &v1alpha1.WorkflowReference{Name: "w"}
		return run
	}
	sub := func(step, child string) v1alpha1.StepStatus {
		return v1alpha1.StepStatus{Name: step, Phase: v1alpha1.StepCancelled, ChildRun: &v1alpha1.ChildRunStatus{Name: child, UID: child}}
	}
	open := ended("open")
	open.Status.CompletedAt = nil
	fresh := ended("fresh")
	fresh.Status = nil
	all := map[types.UID]*v1alpha1.WorkflowRun{
		"open": open, "fresh": fresh, "done": ended("done"), "middle": ended("middle", sub("in", "open")), "self": ended("self", sub("in", "self")),
	}
	for name, c := range map[string]struct {
		steps  []v1alpha1.StepStatus
		ticket string
		kept   bool
	}{
		"no child":                       {nil, "r", false},
		"a child":                        {[]v1alpha1.StepStatus{sub("a", "open")}, "r", true},
		"a child that is not seen yet":   {[]v1alpha1.StepStatus{sub("a", "fresh")}, "r", true},
		"a child that ended":             {[]v1alpha1.StepStatus{sub("a", "done")}, "r", false},
		"a child that is gone":           {[]v1alpha1.StepStatus{sub("a", "gone")}, "r", false},
		"a child of a child":             {[]v1alpha1.StepStatus{sub("a", "done"), sub("b", "middle")}, "r", true},
		"a child that names itself":      {[]v1alpha1.StepStatus{sub("a", "self")}, "r", false},
		"a child of the step":            {[]v1alpha1.StepStatus{sub("a", "open")}, "r/a", true},
		"a child of another step":        {[]v1alpha1.StepStatus{sub("a", "done"), sub("b", "open")}, "r/a", false},
		"a child that was never let in":  {[]v1alpha1.StepStatus{sub("a", "")}, "r", false},
		"an item of a step with a child": {[]v1alpha1.StepStatus{sub("a", "open")}, "r/a/1", false},
	} {
		t.Run(name, func(t *testing.T) {
			v := view{runs: map[types.UID]fact{"r": factOf(ended("r", c.steps...))}, children: all}
			ticket := store.Ticket{ID: c.ticket, Version: "9"}
			held := audit(v.runs, store.LocksSnapshot{Holds: []store.Holding{{Ticket: ticket}}}, oneEach, v.rated, v.below)
			waits := audit(v.runs, store.LocksSnapshot{Waiters: []store.Waiter{{Ticket: ticket}}}, oneEach, v.rated, v.below)
			want := []store.Dropping{{Ticket: c.ticket}}
			if c.kept {
				want = nil
			}
			if !slices.Equal(held.drop, want) || !slices.Equal(waits.drop, want) || len(held.idle)+len(waits.places) > 0 {
				t.Errorf("drops %v and %v, want %v", held, waits, want)
			}
		})
	}
}

// mutation: a resync that takes a hold for one of nobody's, as status does not name the steps yet,
// gives a lock to a second run while the first one is about to write it.
func TestAHoldThatABeginningRunIsAboutToWriteStays(t *testing.T) {
	run := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{WorkflowRef: &v1alpha1.WorkflowReference{Name: "w"}}}
	run.UID, run.Name, run.Namespace, run.ResourceVersion = "r", "r", "ns", "10"
	s := store.LocksSnapshot{Holds: []store.Holding{{Ticket: store.Ticket{ID: "r/build", Version: "10"}, Locks: []store.Hold{{Name: "a", Permits: 1}}}}}
	if f := audit(map[types.UID]fact{"r": factOf(run)}, s, oneEach, noneRated, noneBelow); len(f.drop) > 0 || !slices.Equal(f.idle, []string{"r/build"}) || NeverHas(run, "r/build") {
		t.Errorf("before it begins: drops %v, idle %v", f.drop, f.idle)
	}
	run.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{{Name: "other", Phase: v1alpha1.StepPending}}}
	if f := audit(map[types.UID]fact{"r": factOf(run)}, s, oneEach, noneRated, noneBelow); len(f.drop) != 1 || !NeverHas(run, "r/build") {
		t.Errorf("a step that it does not have: drops %v", f.drop)
	}
}

// mutations: HasLocks and TicketsOf without those of items, part that knows tickets of status only,
// and itemOf that takes those for over that did not begin, or none, make this fail.
func TestTicketsOfItems(t *testing.T) {
	step := v1alpha1.Step{Name: "all", ForEach: &v1alpha1.ForEach{Locks: []v1alpha1.LockRequest{{Mutex: "x"}}}}
	plain := v1alpha1.Step{Name: "plain", ForEach: &v1alpha1.ForEach{}}
	one := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{step, plain}}}
	one.UID, one.Name, one.Namespace, one.ResourceVersion = "r", "r", "ns", "10"
	if !HasLocks(one) || len(TicketsOf(one)) > 0 {
		t.Errorf("before it begins: %t, %v", HasLocks(one), TicketsOf(one))
	}
	if p, ok := saidOf(one, "r/all/3"); !ok || p.Over {
		t.Errorf("before it begins: %+v, %t", p, ok)
	}
	held := []v1alpha1.LockHold{{Name: "a", Permits: 1, Fence: 7}}
	one.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{
		{Name: "all", Phase: v1alpha1.StepRunning, ForEach: &v1alpha1.ForEachStatus{
			Begun: 5, Groups: []v1alpha1.ItemGroup{{Items: "1,4", Phase: v1alpha1.StepRunning}, {Items: "3", Phase: v1alpha1.StepPending}},
			Locks: []v1alpha1.ItemLocks{{Item: 1, Locks: held}, {Item: 3, LockWait: &v1alpha1.LocksWait{Lock: "a"}}},
		}},
		{Name: "plain", ForEach: &v1alpha1.ForEachStatus{}},
	}}
	if got := TicketsOf(one); !slices.Equal(got, []string{"r/all/1", "r/all/3"}) {
		t.Errorf("tickets %v", got)
	}
	if got := HeldBy(one); !slices.Equal(got, []string{"r/all/1"}) {
		t.Errorf("it holds %v", got)
	}
	for ticket, want := range map[string]Part{
		"r/all/1": {Holds: held}, "r/all/3": {Waits: true}, "r/all/4": {}, "r/all/0": {Over: true}, "r/all/5": {}, "r/all/odd": {},
	} {
		if p, ok := saidOf(one, ticket); !ok || p.Over != want.Over || p.Waits != want.Waits || len(p.Holds) != len(want.Holds) {
			t.Errorf("%s: %+v, %t", ticket, p, ok)
		}
	}
	for _, ticket := range []string{"r", "r/all", "r/plain/1", "r/none/1", "other/all/1"} {
		if p, ok := saidOf(one, ticket); ok {
			t.Errorf("%s is one of it: %+v", ticket, p)
		}
	}
	runs := map[types.UID]fact{"r": factOf(one)}
	hold := func(item string, version string) store.LocksSnapshot {
		return store.LocksSnapshot{Holds: []store.Holding{{Ticket: store.Ticket{ID: "r/all/" + item, Version: version}, Locks: []store.Hold{{Name: "a", Permits: 1}}}}}
	}
	for name, c := range map[string]struct {
		s    store.LocksSnapshot
		want findings
	}{
		"held by status":     {hold("1", "9"), findings{}},
		"over":               {hold("0", "9"), findings{drop: []store.Dropping{{Ticket: "r/all/0"}}, missing: []string{"r/all/1"}}},
		"not written":        {hold("5", "10"), findings{idle: []string{"r/all/5"}, missing: []string{"r/all/1"}}},
		"cannot be any more": {hold("5", "9"), findings{drop: []store.Dropping{{Ticket: "r/all/5", Seen: "10"}}, missing: []string{"r/all/1"}}},
	} {
		got := audit(runs, c.s, oneEach, noneRated, noneBelow)
		if !slices.Equal(got.drop, c.want.drop) || !slices.Equal(got.idle, c.want.idle) || !slices.Equal(got.missing, c.want.missing) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	one.Spec.WorkflowRef, one.Spec.Steps = &v1alpha1.WorkflowReference{Name: "w"}, nil
	if _, ok := saidOf(one, "r/all/4"); !ok || !HasLocks(one) {
		t.Error("a run of a Workflow has no items")
	}
}

// saidOf is what a run says of one of its tickets; not ok: it is none of them.
func saidOf(run *v1alpha1.WorkflowRun, ticket string) (p Part, ok bool) {
	p, ok, _ = PartsOfTickets(run)(ticket)
	return p, ok
}

// A rate lets few begin, and each that begins has the script name the next one. Who waits for the
// same rates waits behind the first; who waits for others, for another lock as well, or for a
// semaphore that is gone, does not.
//
// mutations: runnable that looks at permits only, or that takes all rates for one, makes this fail,
// as does promise that counts all.
func TestAResyncWakesTheFirstInLineForARate(t *testing.T) {
	rated := &v1alpha1.Semaphore{Spec: v1alpha1.SemaphoreSpec{Permits: 1000, Rate: &v1alpha1.LockRate{Starts: 10, PerSeconds: 60}}}
	v := view{runs: map[types.UID]fact{}, semaphores: map[string]*v1alpha1.Semaphore{
		"api": rated, "mail": rated, "gpus": {Spec: v1alpha1.SemaphoreSpec{Permits: 1000}}, "few": {Spec: v1alpha1.SemaphoreSpec{Permits: 10}},
	}}
	waiting := func(n int, locks ...string) (s store.LocksSnapshot) {
		for i := range n {
			tied{run: fmt.Sprint(i), waits: locks}.enter(&s, i)
		}
		return s
	}
	for name, c := range map[string]struct {
		s    store.LocksSnapshot
		want int
	}{
		"for a rate":       {waiting(100, "api"), aheadInLine},
		"for two":          {waiting(100, "api", "mail"), aheadInLine},
		"by a part":        {waiting(100, "api/eu"), aheadInLine},
		"for permits":      {waiting(100, "gpus"), 100},
		"behind a queue":   {store.LocksSnapshot{Waiters: slices.Concat(waiting(100, "api", "gpus").Waiters, waiting(102, "api").Waiters[100:])}, 102},
		"behind a rate":    {store.LocksSnapshot{Waiters: slices.Concat(waiting(10, "api", "few").Waiters, waiting(11, "few").Waiters[10:])}, 11},
		"for one gone":     {waiting(100, "api", "gone"), 100},
		"for one of each":  {store.LocksSnapshot{Waiters: slices.Concat(waiting(20, "api", "mail").Waiters, waiting(22, "mail").Waiters[20:])}, aheadInLine + 2},
		"beside no rate":   {store.LocksSnapshot{Waiters: slices.Concat(waiting(20, "api").Waiters, waiting(22, "gpus").Waiters[20:])}, aheadInLine + 2},
		"for others of it": {store.LocksSnapshot{Waiters: slices.Concat(waiting(20, "api/eu").Waiters, waiting(22, "api/us").Waiters[20:])}, aheadInLine + 2},
	} {
		t.Run(name, func(t *testing.T) {
			if f := audit(v.runs, c.s, v.limit, v.rated, v.below); len(f.wake) != c.want {
				t.Errorf("%d are woken, want %d", len(f.wake), c.want)
			}
		})
	}
}

// Who is behind one that waits on, in an Ordered line, cannot have its locks, though there is room
// for them: that is for who comes after it.
//
// mutations: a runnable that promises to who stands behind another, one that has nobody stand in a
// line, and one that has those stand in it that want more than there is, or that were refused.
func TestAResyncWakesWhoIsBesideALineThatStands(t *testing.T) {
	line := func(locks string) (wants []store.Want) {
		for name := range strings.FieldsSeq(locks) {
			want := store.Want{Name: strings.TrimRight(name, "!2"), Permits: 1, Ordered: strings.Contains(name, "!")}
			if strings.HasSuffix(name, "2") {
				want.Permits = 2
			}
			wants = append(wants, want)
		}
		return wants
	}
	many := strings.Split(strings.Repeat("line! db,", 300)+"db", ",")
	many = slices.Insert(many, 0, "line! ext")
	last := fmt.Sprint(len(many) - 1)
	for name, c := range map[string]struct {
		waiters []string // their locks
		want    string   // who is woken
	}{
		"the first cannot have the other one":    {[]string{"line! ext", "line! db", "db"}, "2"},
		"with many behind it":                    {many, last},
		"who waits in vain stands in all lines":  {[]string{"line! ext", "line! next!", "next! db", "db"}, "3"},
		"each in turn":                           {[]string{"line! db", "line! mail", "mail", "next!"}, "0 2 3"},
		"beside the one before it":               {[]string{"wide! db", "wide! mail", "mail"}, "0 1"},
		"a line of its own":                      {[]string{"line! ext", "next! db", "db"}, "1"},
		"it wants more than there is":            {[]string{"line!2", "line! db", "db"}, "1"},
		"it wants more of another than there is": {[]string{"line! ext2", "line! db", "db"}, "1"},
		"it waits for a rate":                    {[]string{"rated line!", "line! db", "db"}, "0 2"},
		"in line for a rate":                     {[]string{"rated!", "rated! db", "db"}, "0 2"},
		"its semaphore is gone":                  {[]string{"line! gone", "mail"}, "0 1"},
		"a lock that is not Ordered":             {[]string{"line ext", "line db", "db"}, "1"},
		"it was refused":                         {[]string{"", "line! db", "db"}, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := store.LocksSnapshot{Holds: []store.Holding{{Locks: []store.Hold{{Name: "ext", Permits: 1}}}}}
			for i, locks := range c.waiters {
				w := store.Waiter{Ticket: store.Ticket{ID: fmt.Sprint(i)}, Wants: line(locks)}
				if locks == "" {
					w.Refused = store.LocksSuperseded
				}
				s.Waiters = append(s.Waiters, w)
			}
			var got []string
			rated := func(lock string) bool { return lock == "rated" }
			limit := func(lock string) (int, bool) {
				return cmp.Or(map[string]int{"wide": 2, "rated": 5}[lock], 1), lock != "gone"
			}
			for _, w := range runnable(s, limit, rated) {
				got = append(got, w.Ticket.ID)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("wakes %v, want %s", got, c.want)
			}
		})
	}
}
