// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"testing"
)

// At the beginning of an outage the first one marks itself up to two seconds before the last.
//
// mutations: mayMove without Settle for who is unfit makes this fail: others get partitions that
// they cannot work on either; so does one without noneFit.
func TestMember_WhoIsUnfitSettles(t *testing.T) {
	for _, all := range []bool{true, false} {
		m := owner(t, []Claim{{"a", 2}}, b)
		m.Marked(Mark{Unfit: true}, 7)
		for at := Time(8); at < 50; at++ {
			other := Lease{Name: "b", Version: numeral(int(at)), Unfit: all && at > 9}
			m.Listed(List{Sent: at, Received: at, Leases: []Lease{{Name: "a", Version: "1/2", Unfit: true}, other}})
			if a := m.Act(at); (len(a.Lose) > 0) != (at == 17 && !all) {
				t.Errorf("at %d, where the other is unfit soon, too: %t: %+v", at, all, a)
			}
		}
	}
}

// mutation: elect that says the members are settled when an outage ends makes this fail: all goes
// to whoever is fit first, and half of that back.
func TestMember_NothingMovesWhileAnOutageEnds(t *testing.T) {
	var claims []Claim
	for _, name := range desiredOf(8, []string{"a", "b"}) {
		claims = append(claims, Claim{name, 2})
	}
	begin := func() (m *Member, lists func(at Time, unfit bool) Actions) {
		unfit := Lease{Name: "b", Version: "1/1", Unfit: true}
		m = owner(t, claims, unfit)
		m.Marked(Mark{Unfit: true}, 7)
		lists = func(at Time, unfit bool) Actions {
			m.Renewed(at, at)
			m.Looked(Look{Sent: at, Received: at, Version: "2", Effective: &Effective{Origin: "o", Claims: claims}})
			m.Listed(List{Sent: at, Received: at, Leases: []Lease{{Name: "a", Version: "1/1", Unfit: m.mark.Unfit}, {Name: "b", Version: numeral(int(at)), Unfit: unfit}}})
			return m.Act(at)
		}
		return m, lists
	}
	m, lists := begin()
	for at := Time(8); at < 400; at++ {
		if at == 150 {
			m.Marked(Mark{}, at)
		}
		if a := lists(at, at < 30); len(a.Lose) > 0 {
			t.Fatalf("at %d: %+v", at, a)
		}
	}
	for fit, want := range map[Time]Time{12: 22, 30: 230} { // two Leases later, unless both have just begun
		_, lists = begin()
		moved := Time(0)
		for at := Time(8); at < 400 && moved == 0; at++ {
			if a := lists(at, at < fit); len(a.Lose) > 0 {
				moved = at
			}
		}
		if moved != want {
			t.Errorf("where one stays unfit, and the other is fit at %d, it gives at %d", fit, moved)
		}
	}
}

// mutation: elect that takes an outage for over when somebody joins makes this fail.
func TestMember_WhoJoinsInAnOutageDoesNotEndIt(t *testing.T) {
	var claims []Claim
	for _, name := range desiredOf(16, []string{"a", "b"}) {
		claims = append(claims, Claim{name, 2})
	}
	m := owner(t, claims, Lease{Name: "b", Version: "1/1", Unfit: true})
	m.Marked(Mark{Unfit: true}, 7)
	if moved := movesOnceThereIsC(m, claims, Lease{Name: "b", Unfit: true}); moved != 350 {
		t.Errorf("where one joins just before the outage ends at 150, partitions move at %d", moved)
	}
}

// movesOnceThereIsC is when a member begins to give partitions away, beside others that renew their
// Leases, and c, which joins at 149 and is fit from 150 on; 0: not before 500.
func movesOnceThereIsC(m *Member, claims []Claim, others ...Lease) Time {
	for at := Time(8); at < 500; at++ {
		leases := slices.Clone(others)
		if at >= 149 {
			leases = append(leases, Lease{Name: "c", Unfit: at == 149})
		}
		for i := range leases {
			leases[i].Version = numeral(int(at))
		}
		m.Renewed(at, at)
		m.Looked(Look{Sent: at, Received: at, Version: "2", Effective: &Effective{Origin: "o", Claims: claims}})
		m.Listed(List{Sent: at, Received: at, Leases: leases})
		if a := m.Act(at); len(a.Lose) > 0 {
			return at
		}
	}
	return 0
}

// mutation: elect that counts an outage from before there were two makes this fail.
func TestMember_WhoWasUnfitAloneGivesToTheNextOne(t *testing.T) {
	claims := slices.Repeat([]Claim{{"a", 2}}, 16)
	m := owner(t, claims)
	m.Marked(Mark{Unfit: true}, 7)
	if moved, want := movesOnceThereIsC(m, claims), 150+m.Settle; moved != want {
		t.Errorf("where the only one that is fit starts anew, and is fit at 150, partitions move at %d, want %d", moved, want)
	}
}

// An outage of Redis does not keep the runs of a replica that dies without an owner.
// mutation: ownerOf that asks noneFit makes this fail.
func TestMember_WhoIsUnfitTakesWhatADeadOwnerHad(t *testing.T) {
	claims := []Claim{{"a", 2}}
	for range 15 {
		claims = append(claims, Claim{"dead", 2})
	}
	dead, unfit := Lease{Name: "dead", Version: "3/1"}, Lease{Name: "b", Version: "1/1", Unfit: true}
	m := owner(t, claims, dead, unfit)
	m.Marked(Mark{Unfit: true}, 7)
	for _, at := range []Time{60, 110} {
		m.Renewed(at, at)
		m.Looked(Look{Sent: at, Received: at, Version: "2", Effective: &Effective{Origin: "o", Claims: claims}})
		m.Listed(List{Sent: at, Received: at, Leases: []Lease{dead, {Name: "b", Version: numeral(int(at)), Unfit: true}}})
	}
	next, _ := m.Propose(110, Making{})
	if next == nil {
		t.Fatal("it claims nothing")
	}
	for p, name := range desiredOf(len(claims), []string{"a", "b"}) {
		if got, want := next.Claims[p].Owner == "a", p == 0 || name == "a"; got != want {
			t.Errorf("partition %d, which %s should have: %+v", p, name, next.Claims[p])
		}
	}
}
