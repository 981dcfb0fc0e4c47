// SPDX-License-Identifier: Apache-2.0

package rules

import "testing"

// owner is a member that acts on entries of its own, of an object with version 2, at time 6. It has
// listed these others at 5.
func owner(t *testing.T, claims []Claim, others ...Lease) *Member {
	t.Helper()
	m := NewMember("a", Settings{Partitions: len(claims), Lease: 100, Settle: 10, Chunk: 1, Fresh: 5})
	before := Effective{Origin: "o", Claims: make([]Claim, len(claims))}
	for p := range before.Claims {
		before.Claims[p] = Claim{Term: 1}
	}
	m.Looked(Look{Sent: 1, Received: 2, Version: "1", Effective: &before})
	m.Renewed(3, 3)
	m.Looked(Look{Sent: 4, Received: 4, Version: "1", Effective: &before})
	m.Listed(List{Sent: 5, Received: 5, Leases: others})
	m.Looked(Look{Sent: 6, Received: 6, Version: "2", Effective: &Effective{Origin: "o", Claims: claims}})
	if a := m.Act(6); len(a.Gain) == 0 {
		t.Fatalf("it does not act on its entry: %+v", a)
	}
	return m
}

// wants fails unless this is due.
func wants(t *testing.T, m *Member, now Time, list, gift bool) {
	t.Helper()
	if isList, isGift := m.Due(now); isList != list || isGift != gift {
		t.Errorf("at %d: due are a list: %v, a gift: %v; want %v and %v", now, isList, isGift, list, gift)
	}
}

var b = Lease{Name: "b", Version: "1/1"}

// A replica that is replaced leaves when the next one has just joined: it may have listed the
// members a moment before that.
//
// mutations: Marked that leaves the list as it is, and move without a fresh list make this fail:
// nobody is given the partition, until the other has found out by itself that it has no owner.
func TestMember_WhoLeavesAsksAnewWhoIsThere(t *testing.T) {
	m := owner(t, []Claim{{"a", 2}})
	m.Marked(Mark{Leaving: true}, 7)
	wants(t, m, 7, true, false)
	m.Listed(List{Sent: 6, Received: 8}) // it was on its way
	if a := m.Act(8); len(a.Lose) > 0 {
		t.Errorf("it stops working before it knows who is there: %+v", a)
	}
	wants(t, m, 8, true, false)
	m.Listed(List{Sent: 9, Received: 9, Leases: []Lease{b}})
	if a := m.Act(9); len(a.Lose) != 1 {
		t.Fatalf("it goes on though it knows who is there: %+v", a)
	}
	wants(t, m, 9, false, false)
	m.Handled([]int{0}, 10)
	wants(t, m, 10, false, true)
	if next, base := m.Propose(10, Making{}); next == nil || next.Claims[0] != (Claim{"b", 3}) || base != "2" {
		t.Errorf("proposes %v in the place of %q", next, base)
	}
	wants(t, m, 15, true, false) // the list is old
}

// mutation: move without the time at which it began to leave makes this fail.
func TestMember_WhoLeavesDoesNotWaitForAListForEver(t *testing.T) {
	m := owner(t, []Claim{{"a", 2}}, b)
	m.Marked(Mark{Leaving: true}, 7)
	if a := m.Act(12); len(a.Lose) > 0 {
		t.Errorf("it does not wait for a list: %+v", a)
	}
	if a := m.Act(13); len(a.Lose) != 1 {
		t.Errorf("it waits still: %+v", a)
	}
	wants(t, m, 13, true, false) // while the work ends
	m.Handled([]int{0}, 14)
	wants(t, m, 14, true, false)
	m.Listed(List{Sent: 14, Received: 15, Leases: []Lease{b}})
	wants(t, m, 15, false, true)
}

// Without a session, and while it may not write, nothing is due but what begins a session.
// mutations: Due that asks for no session, or does not ask whether it is blocked or held, makes
// this fail.
func TestMember_NothingIsDueThatCouldNotBeWritten(t *testing.T) {
	for name, end := range map[string]func(*Member){
		"its Lease is gone": (*Member).LeaseGone,
		"it is blocked":     func(m *Member) { m.Marked(Mark{Blocked: true}, 7) },
		"the object is young": func(m *Member) {
			m.Marked(Mark{Leaving: true}, 7)
			m.Listed(List{Sent: 7, Received: 7, Leases: []Lease{b}})
			m.Act(7)
			m.Looked(Look{Sent: 7, Received: 7, Version: "9", Effective: &Effective{Origin: "new", Young: true, Claims: []Claim{{"a", 9}}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := owner(t, []Claim{{"a", 2}}, b)
			end(m)
			m.Act(7)
			m.Handled([]int{0}, 8)
			m.Listed(List{Sent: 9, Received: 9, Leases: []Lease{b}})
			wants(t, m, 9, false, false)
		})
	}
}

// mutations: sawChange for whoever lost an entry, or only for who is seen to lose one, makes this
// fail.
func TestMember_AListIsOutOfDateWhenAMemberHasLostItsLastEntry(t *testing.T) {
	began := []Claim{{"a", 2}, {"b", 2}, {"b", 2}}
	for name, test := range map[string]struct {
		now   []Claim
		again bool
	}{
		"one of two":      {[]Claim{{"a", 2}, {"a", 3}, {"b", 2}}, false},
		"both":            {[]Claim{{"a", 2}, {"a", 3}, {"a", 3}}, true},
		"one in between":  {[]Claim{{"a", 2}, {"b", 2}, {"b", 4}}, true},
		"nothing changes": {began, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := owner(t, began, b)
			m.Looked(Look{Sent: 7, Received: 7, Version: "3", Effective: &Effective{Origin: "o", Claims: test.now}})
			if m.outdated != test.again {
				t.Errorf("a list is wanted: %v", m.outdated)
			}
		})
	}
}

// A list of the chunk before may be nearly too old when the next one begins.
// mutation: move that takes a list for as long as a gift does makes this fail.
func TestMember_WorkEndsWhileItsListCounts(t *testing.T) {
	d := Lease{Name: "d", Version: "1/1"}
	m := owner(t, []Claim{{"a", 2}, {"a", 2}}, d) // of which d should have the first
	m.Settle = 0
	m.Looked(Look{Sent: 9, Received: 9, Version: "2", Effective: &Effective{Origin: "o", Claims: []Claim{{"a", 2}, {"a", 2}}}})
	m.Listed(List{Sent: 10, Received: 10, Leases: []Lease{d}})
	if a := m.Act(13); len(a.Lose) > 0 {
		t.Errorf("it begins by a list of before: %+v", a)
	}
	wants(t, m, 13, true, false)
	m.Listed(List{Sent: 13, Received: 13, Leases: []Lease{d}})
	if a := m.Act(15); len(a.Lose) != 1 {
		t.Errorf("it does not begin: %+v", a)
	}
	m.Handled([]int{0}, 18)
	wants(t, m, 18, false, true)
	wants(t, m, 19, true, false)
}

// mutation: Due without what is draining makes this fail: the list would be asked for when the work
// has ended.
func TestMember_AListThatIsOutOfDateIsTakenAgainWhileTheWorkEnds(t *testing.T) {
	m := owner(t, []Claim{{"a", 2}, {"b", 2}}, b)
	m.Marked(Mark{Leaving: true}, 7)
	m.Listed(List{Sent: 8, Received: 8, Leases: []Lease{b}})
	if a := m.Act(8); len(a.Lose) != 1 {
		t.Fatalf("it does not begin: %+v", a)
	}
	wants(t, m, 8, false, false)
	m.Looked(Look{Sent: 9, Received: 9, Version: "3", Effective: &Effective{Origin: "o", Claims: []Claim{{"a", 2}, {"c", 3}}}})
	wants(t, m, 9, true, false)
}
