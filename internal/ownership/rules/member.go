// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"maps"
	"slices"
	"time"
)

// Time is the time since this process began, by its own monotonic clock. Times of two processes are
// never compared.
type Time = time.Duration

// Settings are the bounds of the protocol.
type Settings struct {
	// Partitions is how many there are.
	Partitions int
	// Lease is how long a Lease counts after its last change was seen.
	Lease Time
	// Margin is how long before that its holder stops. Clocks of members may differ in speed by
	// Margin / Lease.
	Margin Time
	// Settle is how long the members must have been the same before partitions are moved.
	Settle Time
	// Chunk is how many partitions are moved at a time.
	Chunk int
	// Fresh is for how long after its answer a list says whom partitions are to be given to. In
	// that time their work is to end: so no list is waited for while nobody works on them.
	Fresh Time

	off rule // rules that are switched off, in tests that show what each is for
}

// stage is where a partition is in this process.
type stage uint8

const (
	// idle: no work here. If Effective has this member as the owner, that entry is void for it.
	idle stage = iota
	// acting: its work is done here, as long as the session is valid.
	acting
	// draining: it is to be moved. Passes in flight go on until Handler.Lose has ended them.
	draining
	// stopping: this member may act no more. Handler.Lose has not ended its work yet.
	stopping
)

// place is one partition in this process.
type place struct {
	stage stage
	// term is the one acted under, while acting or draining.
	term int64
	// void is the highest term that gives this member no right any more: what stood when its
	// session began, and what it has stopped acting under.
	void int64
	// since is when it was accepted, or when its work had ended.
	since Time
}

// peer is another member as this one observed it.
type peer struct {
	// version is that of its Lease: uid and resourceVersion. Empty: there is no Lease, or none was
	// looked for yet.
	version string
	// listed: a list came since this member heard of the peer.
	listed bool
	// since is when the version was first seen here.
	since Time
	// granted is when a new entry of Effective with this owner was last seen here.
	granted Time
	leaving bool
	unfit   bool
	// lasts is how long its Lease counts, as it says; 0: it does not say.
	lasts Time
}

// Member is all that one member remembers. Events change it (Renewed, LeaseGone, Listed, Looked,
// Told, Handled, Marked); Act and Propose say what to do. It does no I/O and is not safe
// for concurrent use.
type Member struct {
	Settings
	name string
	mark Mark

	// joined: own Lease was renewed since the last lapse, at joinedAt. Then a look at Effective
	// that began later begins a session.
	joined   bool
	joinedAt Time
	// renewed is when the last renewal that succeeded was sent.
	renewed Time
	// session: this member may act, until validUntil.
	session bool
	// sessions is how many there have been.
	sessions int
	// confirmed is when the last look was sent that showed all that is acted on.
	confirmed Time

	// looked is what the last look found; known is the last Effective that was good.
	looked  outcome
	version string
	known   Effective
	// born is when known.Origin was first seen. reborn: another origin was known before.
	born   Time
	reborn bool

	places []place
	peers  map[string]peer
	// listed is when the last list of Leases was sent, heard when it came, and listening when the
	// first of an unbroken row came; never before the first.
	listed, heard, listening Time
	everListed               bool
	// leftAt is when this member began to leave.
	leftAt Time
	// outdated: since the last list was sent, this member began to leave, another one was seen to
	// have lost its last entry (it may have given that away to end), or an owner in between was not
	// seen.
	outdated bool
	// proving: the last list was sent after the answer to the last look.
	proving bool
	// eligible are the members for Desired, since settled.
	eligible []string
	settled  Time
	// noneFit: no member is fit. noneSince is when that last changed, or there was one member only.
	noneFit   bool
	noneSince Time

	// ended and cuts are partitions whose end was not reported by Act yet.
	ended, cuts []int
}

// outcome is what a look at Effective found.
type outcome uint8

const (
	unknown outcome = iota
	good
	absent  // there is no object
	garbage // there is one that cannot be read, or is older than what was seen before
)

// wait is how long the Lease of another member counts here: as long as either of the two has it, or
// as the longest does where it was never seen. Its holder goes by its own.
func wait(m *Member, p peer) Time {
	if p.lasts == 0 {
		return Longest(m)
	}
	return max(m.Lease, p.lasts)
}

// Longest is the longest Lease that this member knows of.
func Longest(m *Member) Time {
	most := m.Lease
	for _, p := range m.peers {
		most = max(most, p.lasts)
	}
	return most
}

// Mark is what a member says of itself on its Lease, and what it was told.
type Mark struct {
	// Leaving: it hands all partitions on, and takes none.
	Leaving bool
	// Unfit: others should have its partitions.
	Unfit bool
	// Cause is why it is unfit, for people.
	Cause string
	// Blocked: this member owns nothing: somebody holds the Lease of leader election, or its Redis
	// is not the one that the others use.
	Blocked bool
}

// NewMember is a member that owns nothing and has seen nothing.
func NewMember(name string, s Settings) *Member {
	return &Member{Settings: s, name: name, places: make([]place, s.Partitions), peers: map[string]peer{}}
}

// Clone is an independent copy.
func (m *Member) Clone() *Member {
	c := *m
	c.known = m.known.clone()
	c.places = slices.Clone(m.places)
	c.peers = maps.Clone(m.peers)
	c.eligible = slices.Clone(m.eligible)
	c.ended, c.cuts = slices.Clone(m.ended), slices.Clone(m.cuts)
	return &c
}

// ValidUntil is when this member stops acting by itself; before its first session it is 0.
//
// Invariant: others claim its partitions only after they saw its Lease unchanged for Lease, and the
// last renewal was sent before that.
func (m *Member) ValidUntil() Time {
	if !m.session {
		return 0
	}
	if m.without(ruleConfirm) {
		return m.renewed + m.Lease - m.Margin
	}
	return min(m.renewed, m.confirmed) + m.Lease - m.Margin
}

// Acts says whether the work of p may be begun.
func (m *Member) Acts(p int, now Time) bool {
	return m.places[p].stage == acting && now < m.ValidUntil()
}

// uses says whether work of p may be going on: also while it drains.
func (m *Member) uses(p int, now Time) bool {
	s := m.places[p].stage
	return (s == acting || s == draining) && now < m.ValidUntil()
}

// Session is the number of the session that this member is in; 0: none.
func (m *Member) Session() int {
	if !m.session {
		return 0
	}
	return m.sessions
}

// LastSign is when the Lease of another member was last seen to change.
func (m *Member) LastSign(name string) Time { return m.peers[name].since }

// Ends says whether the work of partitions is ending: gifts are to follow.
func Ends(m *Member) bool {
	return slices.ContainsFunc(m.places, func(at place) bool { return at.stage == draining || at.stage == stopping })
}

// Eligible are the members that this one would give partitions to, with itself; it must not be
// changed.
func (m *Member) Eligible() []string { return m.eligible }

// Known is the last Effective that could be read; it must not be changed. Before the first look it
// has no claims.
func (m *Member) Known() Effective { return m.known }

// Version is what the last look, or the last write, found: the resourceVersion of the object;
// empty: there was none, or nobody has looked yet.
func (m *Member) Version() string { return m.version }

// Finished says whether a member that leaves has handed all on.
func (m *Member) Finished() bool {
	for p := range m.places {
		if m.places[p].stage != idle || (m.looked == good && m.known.Claims[p].Owner == m.name) {
			return false
		}
	}
	return m.looked != unknown
}

// lapse ends the session if its time is over. Each event and each decision begins with it, so that
// a process which was paused notices, whichever comes first.
func (m *Member) lapse(now Time) {
	if m.session && now >= m.ValidUntil() && !m.without(ruleLapse) {
		m.endSession()
	}
	if !m.session && m.joined && now >= m.renewed+m.Lease-m.Margin {
		m.joined = false
	}
}

// endSession stops everything at once: what was acted on is void, and needs a new term.
func (m *Member) endSession() {
	m.session, m.joined = false, false
	for p := range m.places {
		m.cut(p)
	}
}

// cut ends the work of p at once.
func (m *Member) cut(p int) {
	if s := m.places[p].stage; s == acting || s == draining {
		m.stop(p, stopping)
		m.cuts = append(m.cuts, p)
	}
}

// stop begins the end of the work of p: Handler.Lose is called for it once.
func (m *Member) stop(p int, how stage) {
	at := &m.places[p]
	if at.stage == acting {
		m.ended = append(m.ended, p)
	}
	at.stage = how
	if !m.without(ruleVoidAtStop) {
		at.void = max(at.void, at.term)
	}
}

// without says whether a test switched a rule off.
func (m *Member) without(r rule) bool { return m.off&r != 0 }
