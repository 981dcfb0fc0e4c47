// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// scenario is a part of the world to explore.
type scenario struct {
	members    int
	partitions int
	begin      beginning
	left       budget
	fresh      Time
	longer     Time // by so much the Lease of the second member is longer
}

// beginning is where an exploration starts.
type beginning int

const (
	empty   beginning = iota
	alone             // the first member owns everything
	given             // the second one was just given a partition, and has not looked yet
	settled           // all have joined, and nothing is to be done
)

// settings of the model: a Lease of two ticks, no margin.
func settingsOf(s scenario, off rule) Settings {
	return Settings{Partitions: s.partitions, Lease: 2, Settle: 1, Chunk: 1, Fresh: s.fresh, off: off}
}

// found is what an exploration found.
type found struct {
	states, edges int
	complete      bool
	broken        string
	trace         []string
}

// node is a state that was reached, and how.
type node struct {
	w      *world
	parent int
	event  int
}

// explore visits all states of a scenario, breadth first. Each is checked for what must never be
// the case, and each of every-th for whether the members recover from it.
func explore(s scenario, off rule, every, limit int) (f found) {
	all := events(s.members)
	w := newWorld(s.members, settingsOf(s, off), s.left)
	w.procs[1].m.Lease += s.longer
	w.start(s.begin, all)
	nodes := []node{{w: w, parent: -1}}
	visited := map[string]struct{}{w.key(): {}}
	report := func(i int, w *world, last string) found {
		f.broken, f.states = w.broken, len(nodes)
		f.trace = []string{last, w.String()}
		for ; nodes[i].parent >= 0; i = nodes[i].parent {
			f.trace = append([]string{all[nodes[i].event].name}, f.trace...)
		}
		return f
	}
	for i := 0; i < len(nodes) && len(nodes) < limit; i++ {
		at := nodes[i].w
		if every > 0 && i%every == 0 {
			if c := at.apart(); !c.recovers(all) {
				return report(i, c, "(recovery)")
			}
		}
		for e, ev := range all {
			if !ev.can(at) {
				continue
			}
			next := at.clone()
			if !ev.do(next) {
				continue
			}
			f.edges++
			next.check()
			if next.broken != "" {
				return report(i, next, ev.name)
			}
			key := next.key()
			if _, old := visited[key]; !old && next.inBounds() {
				visited[key] = struct{}{}
				nodes = append(nodes, node{next, i, e})
			}
		}
		nodes[i].w = nil
	}
	f.states, f.complete = len(nodes), len(nodes) < limit
	return f
}

// mostTerms bounds how often the owner of a partition changes in one history.
const mostTerms = 7

func (w *world) inBounds() bool { return slices.Max(w.written) <= mostTerms }

// round lets each member do all that it can, with answers at once, and then time passes.
func (w *world) round(all []event, members int) {
	for i := range members {
		if w.procs[i].crashed {
			continue
		}
		each := all[1+i*(len(memberEvents)+1):]
		for _, name := range []string{"has its write applied", "has an answer", "has the answer to its renewal", "renews"} {
			e := slices.IndexFunc(memberEvents, func(of ofMember) bool { return of.name == name })
			if each[e].can(w) {
				each[e].do(w)
				w.check()
			}
		}
		p := w.own(i)
		for range 3 {
			w.look(p, i)
			w.answered(p, i)
			w.list(p, i)
			w.answered(p, i)
			w.write(p, i)
			w.act(p)
			w.check()
			p.m.Handled(p.losing, w.now)
			p.losing = nil
		}
		w.act(p)
		w.write(p, i)
		w.act(p)
		w.check()
	}
	w.pass()
}

// start brings a new world to where an exploration starts.
func (w *world) start(begin beginning, all []event) {
	left := w.left
	for range 8 * min(1, int(begin)) {
		w.round(all, 1)
	}
	for begin == given && w.object.e.Claims[0].Owner != names[1] && w.now < 200 {
		p := w.own(1)
		w.renew(p, 1)
		w.renewed(p, 1)
		w.round(all, 1)
	}
	for range 8 * (int(begin) / int(settled)) {
		w.round(all, len(w.procs))
	}
	w.origins, w.left = min(1, int(begin)), left
}

// recovers says whether, from here on without faults, each partition gets its one owner within
// bounded time, and then nothing changes any more.
func (w *world) recovers(all []event) bool {
	w.left = budget{skips: 1_000}
	w.late = nil
	for _, p := range w.procs {
		p.m.Marked(Mark{Leaving: p.m.mark.Leaving}, w.now)
	}
	for range 16 {
		w.round(all, len(w.procs))
	}
	var eligible []string
	for i, p := range w.procs {
		if !p.crashed && !p.m.mark.Leaving {
			eligible = append(eligible, names[i])
		}
	}
	before := w.object
	for range 6 {
		w.round(all, len(w.procs))
	}
	if w.broken != "" {
		return false
	}
	desired := desiredOf(len(w.acted), eligible)
	for p, owner := range desired {
		i := slices.Index(names, owner)
		if owner != "" && !w.procs[i].m.Acts(p, w.now) {
			w.fail("no owner of %d acts, want %s", p, owner)
			return false
		}
	}
	if w.object.version != before.version {
		w.fail("writes though nothing changes: %v, then %v", before.e, w.object.e)
		return false
	}
	return true
}

func scenarios() map[string]scenario {
	return map[string]scenario{
		"two members begin":            {members: 2, partitions: 1, left: budget{skips: 3, slow: 1}},
		"a member joins":               {members: 2, partitions: 1, begin: alone, left: budget{skips: 4, slow: 1}},
		"a partition was given":        {members: 2, partitions: 1, begin: given, left: budget{skips: 4, slow: 1}},
		"answers are late":             {members: 2, partitions: 1, begin: settled, left: budget{skips: 3, slow: 2}},
		"members pause":                {members: 2, partitions: 1, begin: settled, left: budget{skips: 6}},
		"a member dies":                {members: 2, partitions: 1, begin: settled, left: budget{skips: 3, crashes: 1, slow: 1}},
		"a member leaves":              {members: 2, partitions: 1, begin: settled, left: budget{skips: 3, leaves: 1, slow: 1}, fresh: 1},
		"Leases are deleted":           {members: 2, partitions: 1, begin: settled, left: budget{skips: 3, deletedLeases: 2}},
		"the object is deleted":        {members: 2, partitions: 1, begin: settled, left: budget{skips: 4, deletedObject: 1}},
		"both are deleted":             {members: 2, partitions: 1, begin: alone, left: budget{skips: 3, deletedObject: 1, deletedLeases: 1}},
		"the object is garbage":        {members: 2, partitions: 1, begin: settled, left: budget{skips: 3, garbage: 1, slow: 1}},
		"a write arrives late":         {members: 2, partitions: 1, begin: alone, left: budget{skips: 3, late: 1, slow: 1}},
		"two members leave":            {members: 2, partitions: 2, begin: settled, left: budget{skips: 2, leaves: 2, ends: 2}, fresh: 1},
		"two of three members leave":   {members: 3, partitions: 1, begin: settled, left: budget{skips: 1, leaves: 2, ends: 2}, fresh: 1},
		"news is late":                 {members: 2, partitions: 1, begin: alone, left: budget{skips: 2, slow: 2, deletedObject: 1}},
		"two partitions":               {members: 2, partitions: 2, begin: alone, left: budget{skips: 2, leaves: 1}},
		"three members":                {members: 3, partitions: 1, begin: settled, left: budget{skips: 3, crashes: 1}},
		"one has a longer Lease":       {members: 2, partitions: 1, begin: settled, left: budget{skips: 5, slow: 1}, longer: 1},
		"that, and the object is lost": {members: 2, partitions: 1, begin: settled, left: budget{skips: 3, deletedObject: 1}, longer: 1},
		"another mode comes and goes":  {members: 2, partitions: 1, begin: settled, left: budget{skips: 3, blocks: 2}},
	}
}

// TestModel explores what a few members, an API server and bad luck can do together.
func TestModel(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	states, edges := 0, 0
	limit := bound(t, 20_000)
	for name, s := range scenarios() {
		began := time.Now()
		f := explore(s, 0, 50, limit)
		states, edges = states+f.states, edges+f.edges
		t.Logf("%-40s %8d states, %9d edges, complete: %v, %v", name, f.states, f.edges, f.complete, time.Since(began).Round(time.Millisecond))
		if f.broken != "" {
			t.Errorf("%s: %s\n%s", name, f.broken, strings.Join(f.trace, "\n"))
		}
	}
	t.Logf("%d states, %d edges", states, edges)
}

// wander plays histories by chance, of length events each, until so many events have happened. What
// is beyond the bounds of explore, as more members and faults, is met here.
func wander(s scenario, off rule, length, most int) (f found) {
	all := events(s.members)
	begin := newWorld(s.members, settingsOf(s, off), s.left)
	begin.procs[1].m.Lease += s.longer
	begin.start(s.begin, all)
	rng := rand.New(rand.NewPCG(uint64(off), 1))
	possible := make([]int, 0, len(all))
	for f.edges < most {
		w := begin.apart()
		f.states++
		f.trace = f.trace[:0]
		for range length {
			possible = possible[:0]
			for e := range all {
				if all[e].can(w) {
					possible = append(possible, e)
				}
			}
			if len(possible) == 0 {
				break
			}
			e := all[possible[rng.IntN(len(possible))]]
			e.do(w)
			f.edges++
			f.trace = append(f.trace, e.name)
			if w.check(); w.broken != "" {
				f.broken = w.broken
				f.trace = append(f.trace, w.String())
				return f
			}
		}
		if f.states%10 == 0 && !w.recovers(all) {
			f.broken = w.broken
			f.trace = append(f.trace, "(recovery)", w.String())
			return f
		}
	}
	return f
}

// wild is for histories by chance: everything may happen.
var wild = []scenario{
	{members: 2, partitions: 1, begin: given, left: budget{skips: 6, slow: 2}},
	{members: 2, partitions: 1, begin: settled, left: budget{skips: 8, slow: 2, late: 1}},
	{members: 2, partitions: 1, begin: settled, left: budget{skips: 8, deletedObject: 2, garbage: 1}},
	{members: 2, partitions: 1, begin: settled, left: budget{skips: 8, slow: 1, deletedLeases: 3}},
	{members: 3, partitions: 2, begin: settled, left: budget{skips: 8, slow: 4, leaves: 2, ends: 2}, fresh: 1},
	{members: 3, partitions: 2, begin: settled, left: budget{skips: 12, slow: 6, crashes: 1, deletedObject: 1}},
	{members: 3, partitions: 2, begin: settled, left: budget{skips: 12, slow: 4, late: 1, crashes: 1, leaves: 1, blocks: 2, deletedLeases: 1, deletedObject: 1, garbage: 1}, fresh: 1},
}

// TestModelWanders plays histories by chance in larger worlds.
func TestModelWanders(t *testing.T) {
	for i, s := range wild {
		f := wander(s, 0, 80, bound(t, 200_000))
		t.Logf("world %d: %d histories, %d events", i, f.states, f.edges)
		if f.broken != "" {
			t.Errorf("world %d: %s\n%s", i, f.broken, strings.Join(f.trace, "\n"))
		}
	}
}

// mutations are the rules, by what the members do without them.
var mutations = map[rule]string{
	ruleSentAt:               "a renewal counts from its answer",
	ruleLapse:                "a late renewal saves a session",
	ruleBaseline:             "old entries count in a new session",
	ruleBaselineAfterRenewal: "a look of before the renewal begins a session",
	ruleConfirm:              "a member acts without looking",
	ruleLeaseGone:            "a session outlives its Lease",
	ruleVoidAtStop:           "a member acts again on what it stopped",
	ruleLoseBeforeWrite:      "an entry is given before the work has ended",
	ruleEvidence:             "entries of the living are taken",
	ruleListAfterLook:        "an old list proves that a member is gone",
	ruleWholeLease:           "half a Lease is enough",
	ruleDeletedIsNotOver:     "a deleted Lease is over at once",
	ruleGrantIsLife:          "a member without Lease may be given an entry, and is gone",
	ruleHold:                 "a new object is claimed from at once",
	ruleTermGrows:            "a term is used twice",
	ruleOwnVoid:              "own void entries stay",
	ruleCompareAndSwap:       "writes replace whatever stands",
	ruleLeaving:              "who leaves is given partitions",
	ruleListBeforeGift:       "an old list says whom partitions are given to",
	ruleToldIsOld:            "what a watch tells confirms what is acted on",
}

// history is a world and what happens in it, in order.
type history struct {
	begin  beginning
	lease  Time
	events string // separated by commas
}

// histories are for rules that matter in rare ones only: each breaks without its rule, and not
// with it.
var histories = map[rule]history{
	// a gives to d, finds its Lease over, and claims slowly what d accepts meanwhile.
	ruleBaseline: {alone, 2, "a renews,d renews,d ticks,a ticks,time passes," +
		"a renews,a ticks,a has ended its work,a lists slowly,a has an answer,a writes slowly,a has its write applied,a has an answer,time passes," +
		"a renews,a looks slowly,a has an answer,a lists slowly,a has an answer,a writes slowly,d renews,time passes," +
		"d ticks,a has its write applied,a has an answer"},
	// The same, and d begins its session with what it read before it was given anything.
	ruleBaselineAfterRenewal: {alone, 2, "a renews,d renews,a ticks,time passes," +
		"a renews,a ticks,a has ended its work,d looks slowly,a lists slowly,a has an answer,a writes slowly,a has its write applied,a has an answer,time passes," +
		"a renews,a looks slowly,a has an answer,a lists slowly,a has an answer,a writes slowly," +
		"d renews,d has an answer,d glances,a has its write applied,a has an answer"},
	// d sees that it is given the partition before a knows that its own write stands.
	ruleLoseBeforeWrite: {alone, 2, "a renews,d renews,d ticks,a ticks,time passes," +
		"a renews,d renews,d ticks,a lists slowly,a has an answer,a writes slowly,a has its write applied,d glances"},
	// The Lease of d is deleted, made again, and deleted again; a sees neither Lease.
	ruleLeaseGone: {settled, 3, "d renews,d ticks,a renews,a ticks,time passes," +
		"the Lease of d is deleted by hand,a renews,a ticks,d renews,d ticks,time passes," +
		"d renews,d ticks,the Lease of d is deleted by hand,a renews,a ticks,time passes," +
		"a renews,a ticks,d ticks,time passes,a renews,a ticks"},
	// d leaves, works on and renews, and does not see that the object was made anew.
	ruleConfirm: {settled, 2, "d renews,d ticks,a renews,a ticks,time passes," +
		"d leaves,d renews,the object is deleted by hand,a renews,a ticks,time passes," +
		"d renews,a renews,a ticks,time passes,d renews,a renews,a ticks,time passes,d renews,a renews,a ticks"},
	// d is told that it was given the partition when the object has been made anew. It leaves then,
	// and a claims the partition.
	ruleToldIsOld: {alone, 2, "a renews,d renews,d ticks,a ticks,time passes," +
		"a renews,d renews,d ticks,a ticks,a has ended its work,a gives,d is to be told,the object is deleted by hand,a glances,time passes," +
		"d is told late,d leaves,d renews,a renews,a ticks,time passes," +
		"d renews,a renews,a ticks"},
}

// play has these events happen; those that cannot are left out.
func (h history) play(off rule) (broken, text string) {
	all := events(2)
	settings := settingsOf(scenario{partitions: 1}, off)
	settings.Lease = h.lease
	w := newWorld(2, settings, budget{})
	w.alone = true
	w.start(h.begin, all)
	w.left = budget{skips: 100, slow: 100, leaves: 1, deletedLeases: 2, deletedObject: 1}
	for name := range strings.SplitSeq(h.events, ",") {
		e := all[slices.IndexFunc(all, func(e event) bool { return e.name == name })]
		if e.can(w) {
			e.do(w)
			w.check()
		}
	}
	return w.broken, w.String()
}

// TestRareHistories plays histories with each rule, and without it.
func TestRareHistories(t *testing.T) {
	for r, h := range histories {
		if broken, text := h.play(0); broken != "" {
			t.Errorf("%s is a rule: %s\n%s", mutations[r], broken, text)
		}
		broken, text := h.play(r)
		if t.Logf("%s: %s", mutations[r], broken); broken == "" {
			t.Errorf("not found\n%s", text)
		}
	}
}

// TestModelFindsMutations switches each rule off that has no history of its own, and has the model
// find what that breaks.
func TestModelFindsMutations(t *testing.T) {
	for r := ruleSentAt; r <= ruleToldIsOld; r <<= 1 {
		if histories[r].events != "" {
			continue
		}
		broken := ""
		for i, s := range wild {
			if broken != "" {
				break
			}
			if f := wander(s, r, 80, bound(t, 400_000)); f.broken != "" {
				broken = f.broken
				t.Logf("%s: world %d, after %d events in %d histories: %s", mutations[r], i, f.edges, f.states, broken)
			}
		}
		if broken == "" {
			t.Errorf("%s: not found", mutations[r])
		}
	}
}

// bound is $MODEL_BOUND, for those who have time, else n.
func bound(t *testing.T, n int) int {
	t.Helper()
	if text := os.Getenv("MODEL_BOUND"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	return n
}
