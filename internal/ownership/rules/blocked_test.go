// SPDX-License-Identifier: Apache-2.0

package rules

import "testing"

// Who is blocked works on nothing. Where others may, they have what it had, and what it was given
// before they knew; where all are blocked nothing moves.
//
// mutations: ownerOf that gives nothing away while it is blocked, or that does not ask mayMove, and
// giveable without Blocked make this fail.
func TestMember_WhoIsBlockedGivesItsPartitionsUp(t *testing.T) {
	for name, c := range map[string]struct{ all, given bool }{
		"alone": {}, "with all": {all: true}, "alone, and is given another": {given: true},
	} {
		claims := []Claim{{"a", 2}, {"b", 2}}
		m := owner(t, claims, b)
		m.Marked(Mark{Blocked: true, Unfit: true}, 7)
		if a := m.Act(7); len(a.Lose) != 1 || len(m.Act(7).Gain) > 0 {
			t.Fatalf("%s: %+v", name, a)
		}
		m.Handled([]int{0}, 8)
		if c.given {
			claims[1] = Claim{"a", 3}
		}
		gave := Time(0)
		for at := Time(9); at < 60 && gave == 0; at++ {
			m.Renewed(at, at)
			m.Looked(Look{Sent: at, Received: at, Version: "2", Effective: &Effective{Origin: "o", Claims: claims}})
			m.Listed(List{Sent: at, Received: at, Leases: []Lease{{Name: "a", Version: "1/1", Unfit: true}, {Name: "b", Version: numeral(int(at)), Unfit: c.all}}})
			if gained := m.Act(at).Gain; len(gained) > 0 {
				t.Fatalf("%s: it works on %v", name, gained)
			}
			next, _ := m.Propose(at, Making{})
			if next == nil {
				continue
			}
			gave = at
			for p, is := range next.Claims {
				if is.Owner != "b" {
					t.Errorf("%s: partition %d: %+v", name, p, is)
				}
			}
		}
		if (gave > 0) == c.all || (gave > 0 && gave < 7+m.Settle) {
			t.Errorf("%s: it gives at %d", name, gave)
		}
	}
}
