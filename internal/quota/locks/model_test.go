// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/quota/store/locktable"
	"github.com/syncopate-dev/syncopate/internal/testenv/norace"
)

// The model: two runs that want the same two locks, named in both orders, with one permit each.
// Each run has two processes, one of which may be paused at any point while the other takes over.
// There is the API server with its resourceVersions, Redis as the reference table, and the resync,
// which uses the audit as it is shipped. Processes crash, Redis loses its data, and somebody edits
// runs or suspends them, at any point between any two steps.

// fault is a part of the protocol that is left out, to show that the model notices.
type fault string

const (
	none        fault = ""
	oneByOne    fault = "locks are taken one after the other"
	anyVersion  fault = "a grant is dropped whatever its version"
	lowVersion  fault = "a question of an older version lowers that of the grant"
	noMark      fault = "a rebuild does not mark runs"
	noHolds     fault = "a rebuild enters no holds"
	earlyDrop   fault = "locks are dropped before the end is written"
	noResync    fault = "there is no resync"
	resetFences fault = "fences begin anew after a loss"
	openEarly   fault = "the first portion of a rebuild opens the data"
)

// server is a run as the API server has it.
type server struct {
	version   int
	fence     int64 // of its holds; 0: it has none
	finished  bool
	suspended bool
}

// process drives a run.
type process struct {
	seen  *server // as it read it, or wrote it
	grant int64   // fence that it was granted for what it has seen; 0: none
	drops []store.Dropping
}

// keeper is the resync.
type keeper struct {
	snap  *store.LocksSnapshot // nil: it reads nothing
	whole bool                 // it has read holds, too, and not only places
	token string
	fence int64
	found []store.Holding
	next  int  // run that a rebuild marks next
	began bool // it has entered a portion of what it found: none yet
}

type world struct {
	off     fault
	table   *locktable.Table
	runs    [2]server
	procs   [4]process // two of each run: 0 and 1 of run 0
	keeper  keeper
	version int // last one that the API server gave
	tokens  int
	last    int64 // fence of the last hold in status

	crashes, losses, edits int // that may still come
	broken                 string
}

func newWorld(off fault, crashes, losses, edits int) *world {
	w := &world{off: off, table: locktable.New(), crashes: crashes, losses: losses, edits: edits, version: 2}
	for r := range w.runs {
		w.runs[r] = server{version: r + 1}
	}
	w.table.Restore(w.table.Begin("0"), 0)
	return w
}

func (w *world) clone() *world {
	c := *w
	c.table = w.table.Clone()
	for i := range c.procs {
		c.procs[i].drops = slices.Clone(w.procs[i].drops)
		if s := w.procs[i].seen; s != nil {
			seen := *s
			c.procs[i].seen = &seen
		}
	}
	c.keeper.found = slices.Clone(w.keeper.found)
	return &c
}

// ranks are numbers by their order: of versions and fences only that matters.
type ranks []int64

func (r *ranks) add(n int64) { *r = append(*r, n) }

func (r ranks) of(n int64) byte {
	i, _ := slices.BinarySearch(r, n)
	return byte('A' + i)
}

func rankOf(add func(*ranks)) ranks {
	r := ranks{0}
	add(&r)
	slices.Sort(r)
	return slices.Compact(r)
}

func versionOf(text string) int64 { n, _ := strconv.ParseInt(text, 10, 64); return n }

// key tells states apart.
func (w *world) key() string {
	fences := rankOf(func(r *ranks) {
		r.add(w.last)
		r.add(w.table.Fence)
		r.add(w.keeper.fence)
		for _, h := range w.table.Holds {
			r.add(h.Fence)
		}
		for i := range w.procs {
			r.add(w.procs[i].grant)
		}
	})
	b := make([]byte, 0, 128)
	flag := func(is bool) {
		if is {
			b = append(b, '1')
			return
		}
		b = append(b, '0')
	}
	b = append(b, byte(w.crashes), byte(w.losses), byte(w.edits), byte(w.keeper.next), fences.of(w.last), fences.of(w.table.Fence), fences.of(w.keeper.fence))
	flag(w.table.Open)
	flag(w.table.Token != "")
	flag(w.keeper.token != "")
	flag(w.keeper.token == w.table.Token)
	flag(w.keeper.snap != nil)
	flag(w.keeper.whole)
	flag(w.keeper.began)
	for r := range w.runs {
		versions := w.versions(r)
		b = append(b, '|', versions.of(int64(w.runs[r].version)), fences.of(w.runs[r].fence))
		flag(w.runs[r].finished)
		flag(w.runs[r].suspended)
		for i := 2 * r; i < 2*r+2; i++ {
			p := &w.procs[i]
			b = append(b, '/', fences.of(p.grant))
			for _, d := range p.drops {
				b = append(b, versions.of(versionOf(d.Seen)))
			}
			if p.seen != nil {
				b = append(b, ':', versions.of(int64(p.seen.version)), fences.of(p.seen.fence))
				flag(p.seen.finished)
				flag(p.seen.suspended)
			}
		}
		for _, t := range tickets(r) {
			h := w.table.Holds[t]
			b = append(b, '+', fences.of(h.Fence), versions.of(versionOf(h.Ticket.Version)))
			_, waits := w.table.Places[t]
			flag(waits)
		}
		for _, h := range w.snapped(r) {
			b = append(b, '*', versions.of(versionOf(h.Ticket.Version)))
		}
		flag(w.snappedPlace(r))
	}
	for _, h := range w.keeper.found {
		b = append(b, h.Ticket.ID...)
	}
	return string(b)
}

func (w *world) snapped(r int) (all []store.Holding) {
	if w.keeper.snap != nil {
		for _, h := range w.keeper.snap.Holds {
			if h.Ticket.ID == tickets(r)[0] {
				all = append(all, h)
			}
		}
	}
	return all
}

func (w *world) snappedPlace(r int) bool {
	return w.keeper.snap != nil && slices.ContainsFunc(w.keeper.snap.Waiters, func(p store.Waiter) bool { return p.Ticket.ID == tickets(r)[0] })
}

// versions of a run, wherever they are remembered.
func (w *world) versions(r int) ranks {
	return rankOf(func(v *ranks) {
		v.add(int64(w.runs[r].version))
		for i := 2 * r; i < 2*r+2; i++ {
			if p := &w.procs[i]; p.seen != nil {
				v.add(int64(p.seen.version))
			}
			for _, d := range w.procs[i].drops {
				v.add(versionOf(d.Seen))
			}
		}
		for _, t := range tickets(r) {
			v.add(versionOf(w.table.Holds[t].Ticket.Version))
		}
		for _, h := range w.snapped(r) {
			v.add(versionOf(h.Ticket.Version))
		}
	})
}

// tickets of a run: one; with oneByOne one for each lock, in the order in which the run names them.
func tickets(r int) []string {
	id := strconv.Itoa(r)
	return []string{id, id + "/a", id + "/b"}
}

func want(name string) store.Want { return store.Want{Name: name, Permits: 1, Limit: 1, Longest: 9} }

func (w *world) ticket(r int, id string, version int) store.Ticket {
	name := "ns/" + strconv.Itoa(r)
	return store.Ticket{ID: id, Run: name, Tree: name, Version: strconv.Itoa(version)}
}

// fact is a run for the audit.
func (s server) fact(r int) fact {
	p := Part{Over: s.finished, Waits: !s.finished && s.fence == 0}
	if s.fence > 0 {
		p.Holds = []v1alpha1.LockHold{{Name: "a", Permits: 1, Fence: s.fence}, {Name: "b", Permits: 1, Fence: s.fence}}
	}
	name := "ns/" + strconv.Itoa(r)
	return fact{
		uid: types.UID(strconv.Itoa(r)), name: types.NamespacedName{Namespace: "ns", Name: strconv.Itoa(r)}, tree: name,
		version: strconv.Itoa(s.version), suspended: s.suspended, finished: s.finished, tickets: map[string]Part{strconv.Itoa(r): p},
	}
}

// write is a write of a run to a version; not ok: it is refused.
func (w *world) write(r, on int, change func(*server)) bool {
	if w.runs[r].version != on {
		return false
	}
	w.version++
	change(&w.runs[r])
	w.runs[r].version = w.version
	w.check()
	return true
}

// check is what must always be so.
func (w *world) check() {
	if w.runs[0].fence > 0 && w.runs[1].fence > 0 {
		w.broken = "both runs hold the locks"
	}
}

type event struct {
	name string
	do   func(w *world) bool // false: it cannot happen
}

func events() []event {
	var all []event
	for i := range 4 {
		r := i / 2
		add := func(name string, do func(*world, *process) bool) {
			all = append(all, event{fmt.Sprintf("process %d of run %d %s", i%2, r, name), func(w *world) bool { return do(w, &w.procs[i]) }})
		}
		add("reads", func(w *world, p *process) bool {
			if p.seen != nil && *p.seen == w.runs[r] {
				return false
			}
			p.seen, p.grant = new(w.runs[r]), 0
			return true
		})
		add("asks", func(w *world, p *process) bool { return w.ask(r, p) })
		add("is admitted", func(w *world, p *process) bool { return w.admit(r, p) })
		add("ends", func(w *world, p *process) bool { return w.end(r, p) })
		add("drops", func(w *world, p *process) bool {
			if len(p.drops) == 0 {
				return false
			}
			if _, _, ok := w.table.Drop(w.dropping(p.drops)...); ok {
				p.drops = nil
			}
			return p.drops == nil
		})
		add("dies", func(w *world, p *process) bool {
			if w.crashes == 0 || (p.seen == nil && p.drops == nil) {
				return false
			}
			w.crashes--
			*p = process{}
			return true
		})
	}
	for r := range 2 {
		all = append(all,
			event{fmt.Sprintf("somebody suspends or resumes run %d", r), func(w *world) bool {
				if w.edits == 0 || w.runs[r].finished {
					return false
				}
				w.edits--
				return w.write(r, w.runs[r].version, func(s *server) { s.suspended = !s.suspended })
			}},
			event{fmt.Sprintf("the resync marks run %d", r), func(w *world) bool { return w.mark(r) }})
	}
	return append(all,
		event{"Redis loses its data", func(w *world) bool {
			if w.losses == 0 {
				return false
			}
			w.losses--
			w.table.Lose()
			return true
		}},
		event{"the resync reads places", (*world).readPlaces}, event{"the resync reads holds", (*world).readHolds},
		event{"the resync settles", (*world).settle},
		event{"a rebuild begins", (*world).begin}, event{"a rebuild marks", (*world).rebuildMark},
		event{"a rebuild enters a portion", (*world).enter}, event{"a rebuild ends", (*world).finish})
}

func (w *world) dropping(all []store.Dropping) []store.Dropping {
	if w.off != anyVersion {
		return all
	}
	all = slices.Clone(all)
	for i := range all {
		all[i].Seen = ""
	}
	return all
}

func (w *world) ask(r int, p *process) bool {
	if p.seen == nil || p.seen.finished || p.seen.fence > 0 || p.grant > 0 {
		return false
	}
	if p.seen.suspended { // gives up what it may have been granted before
		d := store.Dropping{Ticket: tickets(r)[0], Seen: strconv.Itoa(p.seen.version)}
		if slices.Contains(p.drops, d) {
			return false
		}
		p.drops = append(p.drops, d)
		return true
	}
	if !w.table.Open {
		return false
	}
	if w.off == oneByOne {
		return w.askOneByOne(r, p)
	}
	id := tickets(r)[0]
	before := w.table.Holds[id]
	a, _ := w.table.Take(w.ticket(r, id, p.seen.version), []store.Want{want("a"), want("b")})
	if h, ok := w.table.Holds[id]; ok && w.off == lowVersion && before.Fence > 0 {
		h.Ticket.Version = strconv.Itoa(p.seen.version)
		w.table.Holds[id] = h
	}
	p.grant = a.Fence
	return true
}

func (w *world) askOneByOne(r int, p *process) bool {
	names := []string{"a", "b"}
	if r == 1 {
		names = []string{"b", "a"}
	}
	for _, name := range names {
		a, _ := w.table.Take(w.ticket(r, strconv.Itoa(r)+"/"+name, p.seen.version), []store.Want{want(name)})
		if _, held := w.table.Holds[strconv.Itoa(r)+"/"+name]; !held {
			return true
		}
		p.grant = max(p.grant, a.Fence)
		if name == names[0] && a.Wake == nil && len(w.table.Holds) == 1 {
			p.grant = 0
			return true // a step of its own
		}
	}
	return true
}

func (w *world) admit(r int, p *process) bool {
	if p.grant == 0 || p.seen == nil {
		return false
	}
	fence, on := p.grant, p.seen.version
	p.grant = 0
	if !w.write(r, on, func(s *server) { s.fence = fence }) {
		p.seen = nil
		return true
	}
	if fence <= w.last {
		w.broken = fmt.Sprintf("fence %d after %d", fence, w.last)
	}
	w.last, p.seen = fence, new(w.runs[r])
	return true
}

func (w *world) end(r int, p *process) bool {
	if p.seen == nil || p.seen.fence == 0 || p.seen.finished {
		return false
	}
	if w.off == earlyDrop && len(p.drops) == 0 {
		w.table.Drop(store.Dropping{Ticket: tickets(r)[0]})
	}
	if !w.write(r, p.seen.version, func(s *server) { s.finished, s.fence = true, 0 }) {
		p.seen = nil
		return true
	}
	p.seen, p.drops = new(w.runs[r]), []store.Dropping{{Ticket: tickets(r)[0]}}
	if w.off == oneByOne {
		p.drops = []store.Dropping{{Ticket: tickets(r)[1]}, {Ticket: tickets(r)[2]}}
	}
	return true
}

// readPlaces is the first part of a snapshot. Places are read first: see store.Store.SnapshotLocks.
func (w *world) readPlaces() bool {
	if !w.table.Open || w.keeper.snap != nil || w.off == noResync || w.off == oneByOne {
		return false
	}
	s := store.LocksSnapshot{}
	for r := range w.runs {
		if p, ok := w.table.Places[tickets(r)[0]]; ok {
			s.Waiters = append(s.Waiters, p.Waiter)
		}
	}
	w.keeper.snap = &s
	return true
}

// readHolds is the rest of it; there is none if the data was lost since.
func (w *world) readHolds() bool {
	if w.keeper.snap == nil || w.keeper.whole {
		return false
	}
	if !w.table.Open { // a rebuild begins with no snapshot
		w.keeper.snap = nil
		return true
	}
	s := *w.keeper.snap
	for r := range w.runs {
		if h, ok := w.table.Holds[tickets(r)[0]]; ok {
			s.Holds = append(s.Holds, h)
		}
	}
	w.keeper.snap, w.keeper.whole = &s, true
	return true
}

func (w *world) view() map[types.UID]fact {
	v := map[types.UID]fact{}
	for r := range w.runs {
		v[types.UID(strconv.Itoa(r))] = w.runs[r].fact(r)
	}
	return v
}

func oneEach(string) (int, bool) { return 1, true }

func noneRated(string) bool { return false }

func noneBelow(string) bool { return false }

// settle is as the controller does it: a hold that is missing is restored after a live read, which
// is this one.
func (w *world) settle() bool {
	if !w.keeper.whole || !w.table.Open {
		return false
	}
	v := w.view()
	f := audit(v, *w.keeper.snap, oneEach, noneRated, noneBelow)
	w.keeper.snap, w.keeper.whole = nil, false
	w.table.Drop(w.dropping(f.drop)...)
	for _, ticket := range f.missing {
		if h, ok := v[uidOf(ticket)].holding(ticket); ok {
			w.table.Restore("", 0, h)
		}
	}
	return true
}

// mark is what becomes of a grant that nobody uses, and that can still be written.
func (w *world) mark(r int) bool {
	h, held := w.table.Holds[tickets(r)[0]]
	s := w.runs[r]
	if !held || !w.table.Open || s.finished || s.fence > 0 || newer(strconv.Itoa(s.version), h.Ticket.Version) || w.off == noResync || w.edits == 0 {
		return false
	}
	w.edits--
	w.write(r, s.version, func(*server) {})
	w.table.Drop(w.dropping([]store.Dropping{{Ticket: tickets(r)[0], Seen: strconv.Itoa(w.runs[r].version)}})...)
	return true
}

func (w *world) begin() bool {
	if w.table.Open || w.table.Token != "" && w.keeper.token == w.table.Token {
		return false
	}
	w.tokens++
	w.keeper = keeper{token: w.table.Begin(strconv.Itoa(w.tokens))}
	return true
}

func (w *world) rebuildMark() bool {
	k := &w.keeper
	if k.token == "" || k.next == len(w.runs) {
		return false
	}
	r := k.next
	k.next++
	if s := w.runs[r]; !s.finished && w.off != noMark {
		w.write(r, s.version, func(*server) {})
	}
	ticket := tickets(r)[0]
	if h, ok := w.runs[r].fact(r).holding(ticket); ok && w.off != noHolds {
		k.found = append(k.found, h)
	}
	k.fence = max(k.fence, w.last)
	return true
}

// enter is the first call of the end of a rebuild: an empty portion, of two; what it found is in
// the last.
func (w *world) enter() bool {
	k := &w.keeper
	if k.token == "" || k.next < len(w.runs) || k.began {
		return false
	}
	into := w.table.Enter
	if w.off == openEarly {
		into = w.table.Restore
	}
	if k.began = into(k.token, w.above()); !k.began {
		w.keeper = keeper{} // the data was lost since
	}
	return true
}

// above is the fence that all later ones exceed after a rebuild.
func (w *world) above() int64 {
	if w.off == resetFences {
		return 0
	}
	return w.keeper.fence
}

func (w *world) finish() bool {
	k := &w.keeper
	if !k.began {
		return false
	}
	w.table.Restore(k.token, w.above(), k.found...)
	w.keeper = keeper{}
	return true
}

// recovers says whether both runs end, and nothing stays held, when there are no more faults and
// all do what they should.
func (w *world) recovers(all []event) bool {
	w.crashes, w.losses, w.edits = 0, 0, 2
	for r := range w.runs {
		w.runs[r].suspended = false
		w.procs[2*r+1] = process{} // one of the two is gone
	}
	for range 12 {
		for _, ev := range all {
			if !strings.Contains(ev.name, "suspends") {
				ev.do(w)
			}
		}
	}
	w.edits = 0
	w.procs = [4]process{}
	for range 3 {
		for _, ev := range all[len(all)-7:] {
			ev.do(w)
		}
	}
	return w.broken == "" && w.runs[0].finished && w.runs[1].finished && w.table.Open && len(w.table.Holds) == 0
}

type explored struct {
	states, edges int
	broken        string
	trace         []string
}

// explore visits all states, breadth first, up to a limit.
func explore(w *world, limit, every int) (x explored) {
	type node struct {
		w      *world
		parent int
		event  string
	}
	all := events()
	nodes, visited := []node{{w: w, parent: -1}}, map[string]bool{w.key(): true}
	fail := func(i int, last, broken string) explored {
		x.states, x.broken, x.trace = len(nodes), broken, []string{last}
		for ; i > 0; i = nodes[i].parent {
			x.trace = append([]string{nodes[i].event}, x.trace...)
		}
		return x
	}
	for i := 0; i < len(nodes) && len(nodes) < limit; i++ {
		if i%every == 0 {
			if c := nodes[i].w.clone(); !c.recovers(all) {
				return fail(i, "(recovery)", cmpOr(c.broken, "not all ends, or something stays held"))
			}
		}
		for _, ev := range all {
			next := nodes[i].w.clone()
			if !ev.do(next) {
				continue
			}
			x.edges++
			if next.broken != "" {
				return fail(i, ev.name, next.broken)
			}
			if k := next.key(); !visited[k] {
				visited[k] = true
				nodes = append(nodes, node{next, i, ev.name})
			}
		}
		nodes[i].w = nil
	}
	x.states = len(nodes)
	return x
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// modelStates bounds each exploration; LOCKS_STATES is another bound.
func modelStates(t *testing.T) int {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv("LOCKS_STATES")); err == nil {
		return n
	}
	return 20_000
}

// Whatever dies, is paused, or loses its data: the two runs never hold the locks both, fences grow,
// no two wait for each other, and nothing stays held.
func TestTwoRunsTwoLocks(t *testing.T) {
	norace.Only(t)
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	for name, w := range map[string]*world{
		"crashes": newWorld(none, 2, 0, 0),
		"losses":  newWorld(none, 0, 2, 0),
		"edits":   newWorld(none, 0, 0, 2),
		"all":     newWorld(none, 1, 1, 1),
	} {
		t.Run(name, func(t *testing.T) {
			x := explore(w, modelStates(t), 7)
			if x.broken != "" {
				t.Fatalf("%s:\n%s", x.broken, strings.Join(x.trace, "\n"))
			}
			t.Logf("%d states, %d edges", x.states, x.edges)
		})
	}
}

// Each part of the protocol is needed: without it the model finds a way to break what it promises.
func TestTheModelOfLocksFindsFaults(t *testing.T) {
	norace.Only(t)
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	for off, w := range map[fault]*world{
		oneByOne: newWorld(oneByOne, 0, 0, 0), anyVersion: newWorld(anyVersion, 0, 0, 1), lowVersion: newWorld(lowVersion, 0, 0, 1),
		noMark: newWorld(noMark, 0, 1, 0), noHolds: newWorld(noHolds, 0, 1, 0), earlyDrop: newWorld(earlyDrop, 0, 0, 1),
		noResync: newWorld(noResync, 1, 0, 0), resetFences: newWorld(resetFences, 0, 1, 0), openEarly: newWorld(openEarly, 0, 1, 0),
	} {
		t.Run(string(off), func(t *testing.T) {
			x := explore(w, 8*modelStates(t), 50)
			if x.broken == "" {
				t.Fatalf("%d states, and nothing is broken", x.states)
			}
			t.Logf("after %d states: %s\n%s", x.states, x.broken, strings.Join(x.trace, "\n"))
		})
	}
}
