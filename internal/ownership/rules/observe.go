// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
)

// Lease is the Lease of a member as a list shows it.
type Lease struct {
	Name string
	// Version is uid and resourceVersion.
	Version        string
	Leaving, Unfit bool
	// Lasts is how long it counts, as its member says; 0: it does not say.
	Lasts Time
}

// List is an answer of the API server with all Leases of members.
type List struct {
	Sent, Received Time
	Leases         []Lease
}

// Look is an answer of the API server about Effective; it was read from the server, not from a
// cache. A write that succeeded is such an answer, too.
type Look struct {
	Sent, Received Time
	// Version is the resourceVersion; empty: there is no object.
	Version string
	// Effective is nil where there is no object, or none that can be read.
	Effective *Effective
}

// Renewed notes that the renewal of this member's own Lease succeeded.
func (m *Member) Renewed(sent, received Time) {
	m.lapse(received)
	m.renewed = max(m.renewed, sent)
	if m.without(ruleSentAt) {
		m.renewed = max(m.renewed, received)
	}
	if !m.joined {
		m.joined, m.joinedAt = true, received
	}
}

// LeaseGone notes that this member's own Lease was deleted or replaced. Others may count from the
// moment when they saw that, so the session ends.
func (m *Member) LeaseGone() {
	if !m.without(ruleLeaseGone) {
		m.endSession()
	}
}

// Marked notes what this member says of itself.
func (m *Member) Marked(mark Mark, now Time) {
	m.lapse(now)
	if mark.Leaving && !m.mark.Leaving {
		m.leftAt, m.outdated = now, true // it gives all to those who are there by then
	}
	m.mark = mark
	m.elect(now)
}

// Handled notes that Handler.Lose has ended the work of these partitions.
func (m *Member) Handled(partitions []int, now Time) {
	m.lapse(now)
	for _, p := range partitions {
		if s := m.places[p].stage; s == draining || s == stopping {
			m.places[p].stage, m.places[p].since = idle, now
		}
	}
}

// Listed notes who has a Lease. Lists and looks come one after the other, in the order in which
// they were sent.
func (m *Member) Listed(l List) {
	m.lapse(l.Received)
	if !m.everListed || l.Sent-m.listed >= m.Lease {
		m.listening = l.Received
	}
	m.everListed, m.listed, m.heard, m.proving = true, l.Sent, l.Received, true
	m.outdated = m.mark.Leaving && l.Sent < m.leftAt
	present := map[string]bool{m.name: true}
	for _, lease := range l.Leases {
		if lease.Name == m.name {
			continue
		}
		present[lease.Name] = true
		was, met := m.peers[lease.Name]
		if !met || was.version != lease.Version {
			was.version, was.since = lease.Version, l.Received
		}
		was.listed = true
		was.leaving, was.unfit, was.lasts = lease.Leaving, lease.Unfit, lease.Lasts
		m.peers[lease.Name] = was
	}
	for name, was := range m.peers {
		if !present[name] {
			m.missing(name, was, l.Received)
		}
	}
	m.elect(l.Received)
}

// missing notes that a member has no Lease. That counts from the first list without it, and from
// the last entry that was given to it: it may have had a Lease then that was never seen here.
func (m *Member) missing(name string, was peer, now Time) {
	if was.version != "" || !was.listed || (was.granted >= was.since && !m.without(ruleGrantIsLife)) {
		was.version, was.since, was.listed = "", now, true
	}
	was.leaving, was.unfit = false, false
	if now-was.since > remember*m.Lease && !slices.ContainsFunc(m.known.Claims, func(c Claim) bool { return c.Owner == name }) {
		delete(m.peers, name)
		return
	}
	m.peers[name] = was
}

// remember is for how many times Lease a member without Lease and partitions is remembered.
const remember = 100

// elect finds who is eligible: live, not leaving and fit; where none is fit, all that are live.
func (m *Member) elect(now Time) {
	fit, all := candidates(m)
	outage := m.noneFit && len(m.eligible) > 1 && now-m.noneSince >= m.Settle // members that begin together settle
	// Who is alone may wait for the only one that was fit, which starts anew: that is no outage.
	if none := len(fit) == 0; none != m.noneFit || len(all) < 2 {
		m.noneFit, m.noneSince = none, now
	}
	switch {
	case m.noneFit:
		fit = all
	case outage: // others end their marks a Lease after Redis and NATS answer them, and are listed later still
		m.settled = now + 2*m.Lease - m.Settle
	}
	slices.Sort(fit)
	if !slices.Equal(fit, m.eligible) {
		m.eligible, m.settled = fit, max(m.settled, now)
	}
}

// candidates are the members that are live and not leaving, and those of them that are fit.
func candidates(m *Member) (fit, all []string) {
	add := func(name string, leaving, unfit bool) {
		if !leaving {
			all = append(all, name)
			if !unfit {
				fit = append(fit, name)
			}
		}
	}
	add(m.name, m.mark.Leaving, m.mark.Unfit)
	for name, p := range m.peers {
		if p.version != "" && !m.over(p) {
			add(name, p.leaving && !m.without(ruleLeaving), p.unfit)
		}
	}
	return fit, all
}

// over says whether a member's Lease has ended: the last list shows the version that was first seen
// a whole Lease before that list was sent, by the longer of the two Leases, so no renewal happened
// in between, and the member has stopped. That the watch is late or the list fails proves nothing.
func (m *Member) over(p peer) bool {
	if m.without(ruleDeletedIsNotOver) && p.version == "" {
		return true
	}
	whole := wait(m, p)
	if m.without(ruleWholeLease) {
		whole /= 2
	}
	return m.listed-p.since >= whole
}

// Gone says whether the Lease of the member has ended, as observed here.
func (m *Member) Gone(name string) bool {
	if name == m.name || !m.everListed {
		return false
	}
	if p, met := m.peers[name]; met {
		return p.listed && m.over(p)
	}
	return m.listed-m.listening >= Longest(m) // in no list of a whole Lease
}

// ProcessGone is Gone for the member whose name ends with a point and the name of its process. One
// that was never met is not gone: it may be none of the members.
func (m *Member) ProcessGone(process string) bool {
	for name, p := range m.peers {
		if strings.HasSuffix(name, "."+process) {
			return p.listed && m.over(p)
		}
	}
	return false
}

// Looked notes what the API server has of Effective.
func (m *Member) Looked(l Look) {
	m.lapse(l.Received)
	m.version, m.proving = l.Version, false
	switch {
	case l.Effective == nil && l.Version == "":
		m.looked = absent
		return
	case l.Effective == nil || !l.Effective.wellFormed(m.Partitions) || (len(m.known.Claims) > 0 && l.Effective.goesBackFrom(m.known)):
		m.looked = garbage
		return
	}
	m.looked = good
	m.learn(l.Effective.clone(), l.Received)
	if !m.session {
		m.begin(l)
		return
	}
	if m.compare() {
		m.confirmed = max(m.confirmed, l.Sent)
	}
}

// Told notes what a watch tells of Effective, and says whether that spares a look. It was so at
// some moment, and nobody knows how long ago. So it goes on from what is known, or does not
// count; it begins no session, and confirms nothing. No look may be under way, whose answer
// could be older.
//
// What it gives may be acted on for as long as the session lasts: nobody takes it before.
func (m *Member) Told(version string, e Effective, now Time) bool {
	m.lapse(now)
	if !m.session || m.looked != good || !e.wellFormed(m.Partitions) || !e.goesOnFrom(m.known) {
		return false
	}
	m.version, m.proving = version, false
	m.learn(e.clone(), now)
	if all := m.compare(); all && m.without(ruleToldIsOld) {
		m.confirmed = now
	}
	return true
}

// learn remembers a good Effective.
func (m *Member) learn(e Effective, now Time) {
	if e.Origin != m.known.Origin {
		// It was made anew, by somebody who may not have known the owners of other partitions. What
		// is not acted on here is void, and whoever acts has a whole Lease to say so.
		m.born, m.reborn = now, m.known.Origin != ""
		for p, c := range e.Claims {
			if s := m.places[p].stage; s != acting && s != draining {
				m.places[p].void = max(m.places[p].void, c.Term)
			}
		}
	}
	for p, c := range e.Claims {
		before := Claim{}
		if len(m.known.Claims) > 0 {
			before = m.known.Claims[p]
		}
		if c != before {
			m.sawChange(before, c, &e, now)
		}
	}
	m.known = e
}

// sawChange notes that an entry of e is another one than before. Whoever lost its last one may have
// left; so may an owner in between, which was never seen.
func (m *Member) sawChange(before, after Claim, e *Effective, now Time) {
	lost := before.Owner != "" && before.Owner != m.name && !e.has(before.Owner)
	if lost || (before.Term > 0 && after.Term > before.Term+1) {
		m.outdated = true
	}
	if after.Owner != "" && after.Owner != m.name {
		was := m.peers[after.Owner]
		was.granted = now
		m.peers[after.Owner] = was
	}
}

// begin begins a session, if own Lease was renewed before the look was sent. Entries with this
// owner are of before: others may have found its Lease ended meanwhile, and claim them. So
// they are void.
func (m *Member) begin(l Look) {
	if !m.joined || (l.Sent <= m.joinedAt && !m.without(ruleBaselineAfterRenewal)) {
		return
	}
	m.session, m.confirmed = true, l.Sent
	m.sessions++
	if m.without(ruleBaseline) {
		return
	}
	for p, c := range l.Effective.Claims {
		m.places[p].void = max(m.places[p].void, c.Term)
	}
}

// compare ends what is acted on and does not stand any more. It says whether all does.
func (m *Member) compare() (all bool) {
	all = true
	for p := range m.places {
		at, c := &m.places[p], m.known.Claims[p]
		switch {
		case at.stage != acting && at.stage != draining:
		case c.Owner == m.name && c.Term >= at.term:
			at.term = c.Term
		case at.stage == acting && c.Owner == "":
			all = false // the object was made anew: Propose writes the entry again
		default:
			m.cut(p)
		}
	}
	return all
}

// burial is for how many times Lease the Lease of a dead member is left alone.
const burial = 10

// Dead are Leases that nobody renews any more, of members without partitions: they can be deleted.
// Of each it has the version; a Lease with another one must stay.
func (m *Member) Dead() (dead []Lease) {
	for name, p := range m.peers {
		owns := slices.ContainsFunc(m.known.Claims, func(c Claim) bool { return c.Owner == name })
		if p.version != "" && !owns && m.listed-p.since >= burial*wait(m, p) {
			dead = append(dead, Lease{Name: name, Version: p.version})
		}
	}
	return dead
}
