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
}

// vote is a model of members that share nothing but their Leases. All that can happen to one
// does, in any order: a write and a list take a while each.
type vote struct {
	rng     *rand.Rand
	now     rules.Time
	members []*voter
	history []string
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
	case what == 0:
		_ = m.Named(string("AB"[v.rng.IntN(2)]))
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
		m.heardOf(m.listAt, m.name, m.heard, func(name string) bool { return slices.Contains(m.dead, name) })
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
		v := &vote{rng: rand.New(rand.NewPCG(seed, 1))}
		for i := range 3 {
			m := &voter{Redis: NewRedis("fresh"), name: string("xyz"[i]), created: int64(v.rng.IntN(3))}
			_ = m.Named(string("AB"[i%2]))
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

// Once nothing happens but that Leases are written and listed, all that have one Redis use it.
//
// mutation: decide that waits for one which never gives way makes this fail.
func TestTheMembersSettleInTheEnd(t *testing.T) {
	for seed := range uint64(2000) {
		v := &vote{rng: rand.New(rand.NewPCG(seed, 2))}
		for i := range 3 {
			m := &voter{Redis: NewRedis("fresh"), name: string("xyz"[i]), created: int64(v.rng.IntN(3))}
			_ = m.Named(string("AB"[v.rng.IntN(2)]))
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
				m.heardOf(v.now, m.name, v.leases(), func(string) bool { return false })
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
			if err := m.Named(m.Redis.name); (err == nil) != m.settled {
				t.Fatalf("seed %d: %s: settled %v, %v", seed, m.name, m.settled, err)
			}
		}
	}
}
