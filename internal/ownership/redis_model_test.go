// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// voter is a member of the model. Its Lease is what it wrote last.
type voter struct {
	*Redis
	name    string
	created int64
	lease   saying
	there   bool // it has a Lease
	session bool
	sent    saying // what a write under way says
	writing bool
	heard   []saying // a list under way shows this
	listing bool
	listAt  rules.Time
	dead    []string // whose Leases were over for it when the list was sent
	// asked is the use for which it has asked since when its Redis is the one in use.
	asked int64
	since rules.Time
}

// vote is a model of members that share nothing but their Leases. All that can happen to one
// does, in any order: a write and a list take a while each.
type vote struct {
	rng     *rand.Rand
	now     rules.Time
	members []*voter
	history []string
	// noted is the Redis that was used last, and since when. Of each Redis counted is when its data
	// was, and used when it last gave something out.
	noted         string
	notedSince    rules.Time
	counted, used map[string]rules.Time
	moves, stale  int
}

// work is a member that gives something out in its Redis, as a store does. The data must not be
// older than what another Redis gave out.
func (v *vote) work(m *voter) {
	name := m.Redis.name
	if m.asked != m.uses {
		if v.noted != name {
			v.noted, v.notedSince = name, v.now
			v.moves++
		}
		m.asked, m.since = m.uses, v.notedSince
	}
	if at, ok := v.counted[name]; !ok || at < m.since {
		v.counted[name] = v.now
	}
	for other, at := range v.used {
		if other != name && at > v.counted[name] {
			v.stale++
		}
	}
	v.used[name] = v.now
}

func newVote(seed, stream uint64) *vote {
	return &vote{rng: rand.New(rand.NewPCG(seed, stream)), counted: map[string]rules.Time{}, used: map[string]rules.Time{}}
}

func (v *vote) leases() (all []saying) {
	for _, m := range v.members {
		if m.there {
			all = append(all, m.lease)
		}
	}
	return all
}

// over are the members whose sessions have ended: others may take them for gone.
func (v *vote) over() (names []string) {
	for _, m := range v.members {
		if !m.session && !m.writing {
			names = append(names, m.name)
		}
	}
	return names
}

func (v *vote) step() {
	v.now++
	m := v.members[v.rng.IntN(len(v.members))]
	what := v.rng.IntN(24)
	switch {
	case what > 20 && m.settled:
		v.work(m)
	case what == 0:
		_, _ = m.Named(string("AB"[v.rng.IntN(2)]))
	case what == 1:
		m.session, m.writing = false, false
		m.lapsed()
	case what < 8 && !m.writing:
		m.sent, m.writing = m.saying(), true
		m.sent.member, m.sent.created = m.name, time.Unix(m.created, 0)
	case what < 12 && m.writing && what%2 == 0: // the API server has it, the answer is under way
		m.lease, m.there = m.sent, true
	case what < 12 && m.writing && m.there && m.lease == m.sent:
		m.writing, m.session = false, true
		m.wrote(m.sent, v.now)
	case what < 18 && !m.listing:
		m.heard, m.listing, m.listAt, m.dead = v.leases(), true, v.now, v.over()
	case m.listing:
		m.listing = false
		m.heardOf(m.listAt, 0, m.name, m.heard, func(name string) bool { return slices.Contains(m.dead, name) })
	default:
		return
	}
	v.history = append(v.history, fmt.Sprintf("%s:%d says %v settled %v", m.name, what, m.says, m.settled))
}

// clash are names of two Redis that are used at once.
func (v *vote) clash() bool {
	used := map[string]bool{}
	for _, m := range v.members {
		if m.settled {
			used[m.Redis.name] = true
		}
	}
	return len(used) > 1
}

// Whatever the order of writes, lists, ends of sessions and changes of Redis is, no two members
// that own partitions use two Redis.
//
// mutations: decide that settles without a write, or by a list that was sent before it, that does
// not ask who contradicts, or lapsed that does nothing, make this fail.
func TestNoTwoMembersUseTwoRedis(t *testing.T) {
	settled := map[int]int{}
	for seed := range uint64(4000) {
		v := newVote(seed, 1)
		for i := range 3 {
			m := &voter{Redis: NewRedis("fresh"), name: string("xyz"[i]), created: int64(v.rng.IntN(3))}
			_, _ = m.Named(string("AB"[i%2]))
			v.members = append(v.members, m)
		}
		for range 200 {
			v.step()
			if v.clash() {
				t.Fatalf("seed %d: two are used after\n%s", seed, strings.Join(v.history, "\n"))
			}
		}
		n := 0
		for _, m := range v.members {
			if m.settled {
				n++
			}
		}
		settled[n]++
	}
	if settled[1] == 0 || settled[2] == 0 {
		t.Errorf("it explored nothing: %v", slices.Sorted(maps.Keys(settled)))
	}
}

// Whatever the order is, and however often one Redis is used after another, what is given out goes
// by data that was counted since another one was used.
//
// mutations: decide that counts no use, one that does so only for a Redis that was not usable, and
// work that notes nothing, make this fail.
func TestDataOfBeforeAMoveIsNeverBelieved(t *testing.T) {
	moves := 0
	for seed := range uint64(4000) {
		v := newVote(seed, 3)
		for i := range 3 {
			m := &voter{Redis: NewRedis("fresh"), name: string("xyz"[i]), created: int64(v.rng.IntN(3))}
			_, _ = m.Named(string("AB"[i%2]))
			v.members = append(v.members, m)
		}
		for range 300 {
			if v.step(); v.stale > 0 {
				t.Fatalf("seed %d: data of before a move is believed after\n%s", seed, strings.Join(v.history, "\n"))
			}
		}
		moves = max(moves, v.moves)
	}
	if moves < 3 { // there, elsewhere, and back
		t.Errorf("it explored nothing: %d moves", moves)
	}
}

// Once nothing happens but that Leases are written and listed, all that have one Redis use it.
//
// mutation: decide that waits for one which never gives way makes this fail.
func TestTheMembersSettleInTheEnd(t *testing.T) {
	for seed := range uint64(2000) {
		v := newVote(seed, 2)
		for i := range 3 {
			m := &voter{Redis: NewRedis("fresh"), name: string("xyz"[i]), created: int64(v.rng.IntN(3))}
			_, _ = m.Named(string("AB"[v.rng.IntN(2)]))
			v.members = append(v.members, m)
		}
		for range 100 {
			v.step()
		}
		for range 6 { // rounds without disturbance
			for _, m := range v.members {
				v.now++
				m.lease, m.there, m.session, m.writing, m.listing = m.saying(), true, true, false, false
				m.lease.member, m.lease.created = m.name, time.Unix(m.created, 0)
				m.wrote(m.lease, v.now)
				m.heardOf(v.now, 0, m.name, v.leases(), func(string) bool { return false })
			}
		}
		used := ""
		for _, m := range v.members {
			if m.settled {
				used = m.Redis.name
			}
		}
		for _, m := range v.members {
			if used == "" || m.settled != (m.Redis.name == used) {
				t.Fatalf("seed %d: %s has %s, settled %v; %s is used", seed, m.name, m.Redis.name, m.settled, used)
			}
			if _, err := m.Named(m.Redis.name); (err == nil) != m.settled {
				t.Fatalf("seed %d: %s: settled %v, %v", seed, m.name, m.settled, err)
			}
		}
	}
}
