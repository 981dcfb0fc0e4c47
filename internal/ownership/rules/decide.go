// SPDX-License-Identifier: Apache-2.0

package rules

// Actions are what a member does next.
type Actions struct {
	// Gain: Handler.Gain for these partitions.
	Gain []int
	// Lose: Handler.Lose for these partitions, and Handled when it has ended their work.
	Lose []int
	// Cut: this member may act no more for these partitions; Lose had or has them, too.
	Cut []int
}

// Making is what a new object begins with, should one be made.
type Making struct {
	// Origin is a name that no making had before.
	Origin string
	// Floor is a term above all terms there have been: the time in seconds will do.
	Floor int64
}

// Act says which work begins and ends now. It may be called at any time.
func (m *Member) Act(now Time) (a Actions) {
	m.lapse(now)
	a.Gain = m.accept(now)
	m.move(now)
	a.Lose, a.Cut = m.ended, m.cuts
	m.ended, m.cuts = nil, nil
	return a
}

// accept begins the work of partitions that others gave to this member, or that it claimed: entries
// with its name and a term that is not void.
func (m *Member) accept(now Time) (gained []int) {
	if !m.session || m.looked != good || m.mark.Leaving || m.mark.Blocked {
		return nil
	}
	for p, c := range m.known.Claims {
		if at := &m.places[p]; at.stage == idle && c.Owner == m.name && c.Term > at.void {
			at.stage, at.term, at.since = acting, c.Term, now
			gained = append(gained, p)
		}
	}
	return gained
}

// move begins the end of the work of partitions that others should have, once a fresh list says who
// they are: a list would take a while in which nobody works on them. Half of the time for which it
// counts is left then for the work to end. Who is blocked does not wait for a list, and who leaves
// for no longer than Fresh: it has little time. The entry is written when Handler.Lose has
// ended the work.
func (m *Member) move(now Time) {
	late := m.mark.Leaving && now-m.leftAt > m.Fresh
	if !m.mark.Blocked && !m.fresh(now, m.Fresh/2) && !late {
		return
	}
	for _, p := range m.toMove(now) {
		m.stop(p, draining)
	}
}

// toMove are partitions that others should have: one chunk at a time, so that the gap of each is
// short. Who leaves ends all at once: what does not end in time would keep the places of a chunk
// from the rest.
func (m *Member) toMove(now Time) (partitions []int) {
	must := m.mark.Leaving || m.mark.Blocked
	if !must && !m.mayMove(now) {
		return nil
	}
	desired := desiredOf(m.Partitions, m.eligible)
	left := m.Chunk - m.underWay()
	if m.mark.Leaving {
		left = m.Partitions
	}
	for p := range m.places {
		if len(partitions) < left && (must || desired[p] != m.name) && m.movable(p, must) {
			partitions = append(partitions, p)
		}
	}
	return partitions
}

// fresh says whether the last list came a moment ago, and nothing is known to have changed since.
func (m *Member) fresh(now, moment Time) bool {
	return m.everListed && !m.outdated && now-m.heard <= moment
}

// movable says whether this member acts on p, and may end that. Who gave it may have seen what this
// member has not, so it goes on by a later list only, unless it must.
func (m *Member) movable(p int, must bool) bool {
	at := m.places[p]
	return m.session && m.looked == good && at.stage == acting && m.known.Claims[p].Owner == m.name && (must || m.listed > at.since)
}

// mayMove says whether the view of the members is good enough to move partitions between them. Who
// is unfit settles, too: at the beginning of an outage the others mark themselves a moment later.
func (m *Member) mayMove(now Time) bool {
	return !m.noneFit && now-m.settled >= m.Settle && now-m.listed < m.Lease
}

// underWay is how many partitions are being moved, or are to be written.
func (m *Member) underWay() (n int) {
	for p, at := range m.places {
		mine := p < len(m.known.Claims) && m.known.Claims[p].Owner == m.name && !m.mark.Blocked
		if at.stage == draining || at.stage == stopping || (at.stage == idle && mine) {
			n++
		}
	}
	return n
}

// Propose is what Effective should be; nil: it is as it should be, as far as this member may say.
// It is written in the place of the version base, and of no other; an empty base is no object.
// A write that was refused is followed by a Look.
func (m *Member) Propose(now Time, made Making) (next *Effective, base string) {
	m.lapse(now)
	switch m.looked {
	case absent, garbage:
		return m.remake(made), m.version
	case good:
		if m.session {
			return m.amend(now), m.version
		}
	case unknown:
	}
	return nil, ""
}

// amend is the last Effective with all changes of this member; nil: there are none.
func (m *Member) amend(now Time) *Effective {
	next := m.known.clone()
	next.Young = next.Young && m.held(now)
	changed := next.Young != m.known.Young
	desired := desiredOf(m.Partitions, m.eligible)
	for p := range next.Claims {
		if owner, change := m.ownerOf(p, desired[p], now); change {
			next.Claims[p] = Claim{owner, m.termAfter(p)}
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return &next
}

// remake is Effective for an object that is lost: a new origin, and this member where it acts. All
// others who act add themselves. Terms go on above all there have been.
func (m *Member) remake(made Making) *Effective {
	e := Effective{Origin: made.Origin, Young: true, Claims: make([]Claim, m.Partitions)}
	for p := range e.Claims {
		e.Claims[p].Term = max(made.Floor, m.termAfter(p))
		if s := m.places[p].stage; m.session && (s == acting || s == draining) {
			e.Claims[p].Owner = m.name
		}
	}
	return &e
}

// held says whether claims have to wait, since Effective was made anew: whoever acts stops a Lease
// of its own after the object was lost, or has said so in the new one.
func (m *Member) held(now Time) bool {
	return (m.known.Young || m.reborn) && now-m.born < Longest(m) && !m.without(ruleHold)
}

// termAfter is the next term of p.
func (m *Member) termAfter(p int) int64 {
	at := m.places[p]
	last := max(at.term, at.void)
	if len(m.known.Claims) > 0 {
		last = max(last, m.known.Claims[p].Term)
	}
	if m.without(ruleTermGrows) {
		return last
	}
	return last + 1
}

// ownerOf is who should be written as the owner of p by this member, if anybody.
func (m *Member) ownerOf(p int, desired string, now Time) (owner string, change bool) {
	c, at := m.known.Claims[p], m.places[p]
	switch {
	case at.stage == acting:
		return m.name, c.Owner == "" // it was made anew: whoever acts says so
	case at.stage == draining && m.without(ruleLoseBeforeWrite):
		return desired, c.Owner == m.name
	case at.stage != idle || m.held(now):
		return "", false
	case m.mark.Blocked: // it works on nothing, and others may: they have not looked yet, or this member cannot
		return desired, givesAway(m, p, desired, now)
	case c.Owner == m.name:
		return desired, m.giveable(p, now)
	}
	return m.name, desired == m.name && (c.Owner == "" || m.lost(c.Owner))
}

// givesAway says whether a member that works on nothing gives its entry of p to another one.
func givesAway(m *Member, p int, to string, now Time) bool {
	return m.known.Claims[p].Owner == m.name && to != m.name && m.mayMove(now) && m.giveable(p, now)
}

// giveable says whether an own entry on which nobody acts may be written again, for any member that
// a list shows: a fresh one, or one that was sent after the work had ended. An older list may have
// one that has left. What was given a moment ago is accepted instead, but by who leaves
// or is blocked.
func (m *Member) giveable(p int, now Time) bool {
	void := m.known.Claims[p].Term <= m.places[p].void || m.mark.Leaving || m.mark.Blocked
	return void && !m.wantsListFor(p, now) && !m.without(ruleOwnVoid)
}

func (m *Member) wantsListFor(p int, now Time) bool {
	if m.without(ruleListBeforeGift) {
		return false
	}
	return m.outdated || (m.listed < m.places[p].since && !m.fresh(now, m.Fresh))
}

// Due says what there is to do beside a look: a list, for which partitions wait that are to be
// given to another, or whose work is to end before that; and a gift of what this member has stopped
// working on, which a write makes.
func (m *Member) Due(now Time) (list, gift bool) {
	if m.mark.Blocked || !m.session || m.looked != good {
		return false, false
	}
	list = !m.fresh(now, m.Fresh/2) && len(m.toMove(now)) > 0
	for p := range m.places {
		l, g := dueFor(m, p, now)
		list, gift = list || l, gift || g
	}
	return list, gift
}

// dueFor is Due for a partition that begins to move, or has begun.
func dueFor(m *Member, p int, now Time) (list, gift bool) {
	switch stage := m.places[p].stage; {
	case stage == draining:
		return m.outdated, false // while its work ends
	case stage != idle || m.known.Claims[p].Owner != m.name:
		return false, false
	case m.wantsListFor(p, now):
		return true, false
	}
	return false, m.giveable(p, now) && !m.held(now)
}

// lost says whether the owner of an entry acts no more: its Lease is over by a list that was sent
// after the entry was read. An older list proves nothing about an entry that the owner may have
// been given later.
func (m *Member) lost(owner string) bool {
	if m.without(ruleEvidence) {
		return true
	}
	if !m.proving && !m.without(ruleListAfterLook) {
		return false
	}
	p, met := m.peers[owner]
	return met && p.listed && m.over(p)
}
