// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The model: an API server with a Lease per member and one object, and members that run the shipped
// rules. In each unit of time each member renews and looks once, in any order. Faults have a
// budget. A member that does not is paused, or cut off. A call that is slow takes effect at one
// moment, and is answered at a later one or never. Clocks run equally fast, and the margin is 0:
// the rules must hold exactly.

// served is the one object at the API server.
type served struct {
	version int // 0: there is none
	garbage bool
	e       Effective
}

// leaseOf is a Lease at the API server; uid 0: there is none.
type leaseOf struct {
	uid, rv        int
	leaving, unfit bool
}

// call is what a member's loop waits for.
type call uint8

const (
	noCall call = iota
	lookCall
	listCall
	writeSent    // not yet at the API server
	writeApplied // answer on its way
	writeRefused
)

// process is one member as a process.
type process struct {
	m       *Member
	crashed bool // or ended
	// openly: its last write stood after its Lease had said that it leaves. left: it has ended
	// after that.
	openly, left bool
	uid          int // of the Lease that it made

	// hasRenewed and hasLooked are of this unit of time.
	hasRenewed, hasLooked bool

	renewal     bool // in flight
	renewalSent Time
	renewalGone bool // it found the Lease deleted

	told        *Effective // by the watch, on its way
	toldVersion string

	call  call
	look  Look
	list  List
	write *Effective
	base  int

	losing []int
}

// budget bounds faults. Each is an event that may happen at any moment.
type budget struct {
	skips, slow, crashes, leaves, ends, blocks, deletedLeases, deletedObject, garbage, late int
}

type world struct {
	now     Time
	object  served
	leases  []leaseOf
	procs   []process
	uids    int
	origins int
	left    budget
	// late is a write that its sender has given up, and that is still in the network.
	late     *Effective
	lateBase int

	// acted is the highest term that a partition was acted on under, and by whom; written the
	// highest that stood.
	acted   []int64
	actor   []int8
	written []int64

	alone  bool   // no other world shares its processes
	broken string // what was violated
}

// names are such that the second of two should have the first partition, and the first
// the second one.
var names = []string{"a", "d", "f"}

func (w *world) clone() *world {
	c := *w
	c.leases, c.procs = slices.Clone(w.leases), slices.Clone(w.procs)
	c.acted, c.actor, c.written = slices.Clone(w.acted), slices.Clone(w.actor), slices.Clone(w.written)
	return &c
}

// own gives the world a copy of a process that may be changed, unless nobody else has it.
func (w *world) own(i int) *process {
	p := &w.procs[i]
	if w.alone {
		return p
	}
	p.m = p.m.Clone()
	p.losing = slices.Clone(p.losing)
	return p
}

// apart is a copy that shares nothing.
func (w *world) apart() *world {
	c := w.clone()
	c.alone = false
	for i := range c.procs {
		c.own(i)
	}
	c.alone = true
	return c
}

func newWorld(members int, s Settings, left budget) *world {
	w := &world{now: 100, leases: make([]leaseOf, members), left: left}
	for i := range members {
		w.procs = append(w.procs, process{m: NewMember(names[i], s)})
	}
	w.acted, w.actor, w.written = make([]int64, s.Partitions), make([]int8, s.Partitions), make([]int64, s.Partitions)
	return w
}

// fail notes the first violation.
func (w *world) fail(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

// store puts a content at the API server.
func (w *world) store(e *Effective) {
	w.object = served{version: w.object.version + 1, e: *e}
	for p, c := range e.Claims {
		w.written[p] = max(w.written[p], c.Term)
	}
}

// apply is what the API server does with a write: it is refused unless base is what stands.
func (w *world) apply(e *Effective, base int) bool {
	if base != w.object.version {
		return false
	}
	if w.object.version > 0 && !w.object.garbage {
		for p, c := range e.Claims {
			if c != w.object.e.Claims[p] && c.Term <= w.written[p] {
				w.fail("the term of %d does not grow: %v after %d", p, c, w.written[p])
			}
		}
	}
	if w.object.version == 0 {
		w.object.version = w.origins * 1000 // another object: its versions are others
	}
	for i, p := range w.procs {
		if p.left && gives(e, &w.object, names[i]) {
			w.fail("%s is given a partition after it has left: it would stand still for a Lease", names[i])
		}
	}
	w.store(e)
	return true
}

// gives says whether a content gives a member an entry that it has not in the object.
func gives(e *Effective, o *served, name string) bool {
	for p, c := range e.Claims {
		if c.Owner == name && (len(o.e.Claims) == 0 || o.e.Claims[p] != c) {
			return true
		}
	}
	return false
}

// check is evaluated after each event.
func (w *world) check() {
	for p := range w.acted {
		user := -1
		for i, proc := range w.procs {
			if proc.crashed || !proc.m.uses(p, w.now) {
				continue
			}
			if user >= 0 {
				w.fail("%s and %s act on %d", names[user], names[i], p)
			}
			user = i
			switch term := proc.m.places[p].term; {
			case term < w.acted[p], term == w.acted[p] && w.actor[p] != int8(i):
				w.fail("%s acts on %d under term %d, %s did under %d", names[i], p, term, names[w.actor[p]], w.acted[p])
			default:
				w.acted[p], w.actor[p] = term, int8(i)
			}
		}
	}
}

// key is the state without what cannot matter: ages instead of times, and which versions are equal
// instead of versions.
func (w *world) key() string {
	k := &keyer{w: w}
	k.object()
	for i := range w.procs {
		k.process(i)
	}
	k.put(int64(w.left.skips), int64(w.left.slow), int64(w.left.crashes), int64(w.left.leaves), int64(w.left.ends), int64(w.left.blocks), int64(w.left.deletedLeases),
		int64(w.left.deletedObject), int64(w.left.garbage), int64(w.left.late))
	k.effective(w.late)
	k.flag(w.late != nil && w.lateBase == w.object.version)
	for p := range w.acted {
		k.put(w.acted[p], int64(w.actor[p]), w.written[p])
	}
	return string(k.b)
}

type keyer struct {
	w *world
	b []byte
}

func (k *keyer) put(all ...int64) {
	for _, v := range all {
		k.b = binary.AppendVarint(k.b, v)
	}
}

func (k *keyer) flag(all ...bool) {
	for _, v := range all {
		if v {
			k.b = append(k.b, 1)
		} else {
			k.b = append(k.b, 0)
		}
	}
}

// age is how long ago t was; beyond all bounds it does not matter how long. The second member may
// have the longest Lease.
func (k *keyer) age(t Time) {
	k.put(int64(min(k.w.now-t, k.w.procs[1].m.Lease)))
}

func (k *keyer) name(name string) { k.put(int64(slices.Index(names, name))) }

func (k *keyer) effective(e *Effective) {
	if e == nil {
		k.put(-1)
		return
	}
	k.b = append(append(k.b, e.Origin...), 0)
	k.flag(e.Young)
	for _, c := range e.Claims {
		k.name(c.Owner)
		k.put(c.Term)
	}
}

func (k *keyer) object() {
	o := k.w.object
	k.flag(o.version > 0, o.garbage)
	if o.version > 0 && !o.garbage {
		k.effective(&o.e)
	}
	k.put(int64(k.w.origins))
	for i, l := range k.w.leases {
		k.flag(l.uid > 0, l.uid == k.w.procs[i].uid, l.leaving, l.unfit)
	}
}

// version names the version of a Lease: the one that stands, one of an answer that is on its way,
// or an older one.
func (k *keyer) version(member int, v string) {
	at := int64(2)
	switch {
	case v == "":
		at = 0
	case v == versionOf(k.w.leases[member]):
		at = 1
	}
	k.put(at)
}

func (k *keyer) process(i int) {
	p := &k.w.procs[i]
	k.flag(p.crashed, p.left)
	if p.crashed {
		return
	}
	k.flag(p.uid > 0, p.renewal, p.renewalGone, p.hasRenewed, p.hasLooked, p.openly)
	if p.renewal {
		k.age(p.renewalSent)
	}
	k.call(i)
	k.effective(p.told)
	k.flag(p.told != nil && p.toldVersion == versionOfObject(k.w.object))
	k.put(int64(len(p.losing)))
	for _, n := range p.losing {
		k.put(int64(n))
	}
	k.member(i)
}

func (k *keyer) call(i int) {
	p := &k.w.procs[i]
	k.put(int64(p.call))
	switch p.call {
	case lookCall:
		k.age(p.look.Sent)
		k.flag(p.look.Sent > p.m.joinedAt, p.look.Version == versionOfObject(k.w.object), p.look.Version == "")
		k.effective(p.look.Effective)
	case listCall:
		k.age(p.list.Sent)
		for _, l := range p.list.Leases {
			n := slices.Index(names, l.Name)
			k.put(int64(n))
			k.version(n, l.Version)
			k.flag(l.Leaving, l.Unfit, l.Version == p.m.peers[l.Name].version)
		}
	case writeSent, writeApplied, writeRefused:
		k.age(p.look.Sent)
		k.flag(p.look.Sent > p.m.joinedAt, p.base == k.w.object.version, p.look.Version == versionOfObject(k.w.object))
		k.effective(p.write)
	case noCall:
	}
}

func (k *keyer) member(i int) {
	m := k.w.procs[i].m
	k.flag(m.joined, m.session, m.mark.Leaving, m.mark.Blocked, m.mark.Unfit, m.everListed, m.noneFit, m.reborn)
	if m.joined {
		k.age(m.renewed)
		k.flag(m.session || m.joinedAt < k.w.now)
	}
	if m.session {
		k.age(m.confirmed)
	}
	k.put(int64(m.looked))
	k.flag(m.version == versionOfObject(k.w.object), m.version == "", m.proving, m.outdated)
	k.put(int64(min(k.w.now-m.heard, m.Fresh+1)))
	if m.mark.Leaving {
		k.put(int64(min(k.w.now-m.leftAt, m.Fresh+1)))
		k.flag(k.w.procs[i].list.Sent < m.leftAt)
	}
	k.effective(&m.known)
	if m.known.Young || m.reborn {
		k.age(m.born)
	}
	k.age(m.listed)
	if m.noneFit {
		k.put(int64(min(k.w.now-m.noneSince, m.Settle)))
	}
	k.put(int64(min(k.w.now-m.settled, m.Settle)))
	for _, at := range m.places {
		if at.stage == idle {
			k.put(int64(at.stage), max(at.term, at.void))
			k.flag(m.listed >= at.since)
			k.age(at.since)
		} else {
			k.put(int64(at.stage), at.term, at.void)
			k.flag(m.listed > at.since)
			k.age(at.since)
		}
	}
	for n, name := range names[:len(k.w.procs)] {
		p, met := m.peers[name]
		k.flag(met, p.listed, p.leaving, p.unfit, m.over(p), p.granted >= p.since, slices.Contains(m.eligible, name))
		if met {
			k.version(n, p.version)
			k.age(p.since)
		}
	}
	for _, n := range m.ended {
		k.put(int64(n))
	}
	k.put(-1)
}

func versionOf(l leaseOf) string {
	if l.uid == 0 {
		return ""
	}
	return numeral(l.uid*1000 + l.rv)
}

func versionOfObject(o served) string {
	if o.version == 0 {
		return ""
	}
	return numeral(o.version)
}

// numerals are texts of numbers that were needed before.
var numerals []string

func numeral(n int) string {
	for len(numerals) <= n {
		numerals = append(numerals, strconv.Itoa(len(numerals)))
	}
	return numerals[n]
}

// String is for the report of a violation.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "t=%d object v%d garbage=%v %v\n", w.now, w.object.version, w.object.garbage, w.object.e)
	for i, p := range w.procs {
		m := p.m
		fmt.Fprintf(&b, "  %s lease %v crashed=%v session=%v joined=%v until=%d looked=%d known=%v places=%+v peers=%+v eligible=%v call=%d renewal=%v@%d\n",
			names[i], w.leases[i], p.crashed, m.session, m.joined, m.ValidUntil(), m.looked, m.known, m.places, m.peers, m.eligible, p.call, p.renewal, p.renewalSent)
	}
	return b.String()
}
