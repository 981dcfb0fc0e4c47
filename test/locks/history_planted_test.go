// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Each case plants one violation, or something that looks like one, into a history in which
// all is well.
func TestTheHistoryIsJudged(t *testing.T) {
	wrote := func(lease string, fence int64, v verdict, before, asked object) attempt {
		return attempt{write: write{Run: "r", LeaseID: lease, Fence: fence, Asked: asked}, Verdict: v, Before: before}
	}
	took := func(lease string, fence int64, from, to time.Duration) take {
		return take{Run: "r", LeaseID: lease, Fence: fence, From: from, To: to}
	}
	claimed := func(lease string, fence int64, from, to time.Duration) claim {
		return claim{Run: "r", LeaseID: lease, Fence: fence, From: from, To: to}
	}
	tests := map[string]struct {
		plant func(h *history)
		lossy bool
		want  []string // what the violations begin with
	}{
		"nothing is planted": {plant: func(*history) {}},
		"a lower fence is accepted": {
			plant: func(h *history) { h.attempts = append(h.attempts, wrote("c", 2, accepted, object{}, object{})) },
			want:  []string{"I3: r: c wrote under fence 2 after 3"},
		},
		"a lower fence is refused": {
			plant: func(h *history) {
				h.attempts = append(h.attempts, wrote("a", 1, lowerFence, object{Fence: 3, LeaseID: "b"}, object{}))
			},
		},
		"another lease writes under the same fence": {
			plant: func(h *history) { h.attempts = append(h.attempts, wrote("c", 3, accepted, object{}, object{})) },
			want:  []string{"I3: r: b and c wrote under fence 3"},
		},
		"another run has a lower fence": {
			plant: func(h *history) {
				a := wrote("c", 1, accepted, object{}, object{})
				a.Run = "other"
				h.attempts = append(h.attempts, a)
			},
		},
		"a lease is given below the floor": {
			plant: func(h *history) {
				h.takes = append(h.takes, take{Run: "r", LeaseID: "c", Fence: 4, Asked: object{Fence: 5, LeaseID: "b"}, From: 90, To: 95})
			},
			want: []string{"floor: r: c got fence 4"},
		},
		"a lease is given with the fence of another": {
			plant: func(h *history) {
				h.takes = append(h.takes, take{Run: "r", LeaseID: "c", Fence: 5, Asked: object{Fence: 5, LeaseID: "b"}, From: 90, To: 95})
			},
			want: []string{"floor: r: c got fence 5"},
		},
		"a lease is given again": {
			plant: func(h *history) {
				h.takes = append(h.takes, take{Run: "r", LeaseID: "b", Fence: 3, Asked: object{Fence: 3, LeaseID: "b"}, From: 90, To: 95})
			},
		},
		"a write is refused for what its writer had read": {
			plant: func(h *history) {
				o := object{Fence: 3, LeaseID: "b", Version: 2}
				h.attempts = append(h.attempts, wrote("c", 3, otherLease, o, o))
			},
			want: []string{"refusal loop: r: c of fence 3"},
		},
		"writes are refused without end": {
			plant: func(h *history) {
				for range 5 {
					h.attempts = append(h.attempts, wrote("a", 1, lowerFence, object{Fence: 3, LeaseID: "b"}, object{}))
				}
			},
			want: []string{"refusal loop: r: 5 refusals in 2 takes"},
		},
		"two leases have the same fence": {
			plant: func(h *history) { h.takes = append(h.takes, took("c", 3, 30, 40)) },
			want:  []string{"fence: r: b and c have fence 3"},
		},
		"two leases have the same fence after data was lost": {
			plant: func(h *history) { h.takes = append(h.takes, took("c", 3, 30, 40)) },
			lossy: true,
		},
		"a fence falls": {
			plant: func(h *history) { h.takes = append(h.takes, took("c", 2, 41, 42)) },
			want:  []string{"fence: r: c got fence 2 after 3"},
		},
		"a lower fence comes from a take that began before the higher one was there": {
			plant: func(h *history) { h.takes = append(h.takes, took("c", 2, 39, 42)) },
		},
		"two leases have the lock": {
			plant: func(h *history) { h.claims = append(h.claims, claimed("c", 9, 25, 26), claimed("c", 9, 30, 31)) },
			want:  []string{"exclusion: r: a (fence 1) and c (fence 9)"},
		},
		"a lease has the lock within the time of another": {
			plant: func(h *history) { h.claims = append(h.claims, claimed("c", 9, 14, 15), claimed("c", 9, 17, 18)) },
			want:  []string{"exclusion: r: a (fence 1) and c (fence 9)"},
		},
		"a short overlap hides behind a long one": {
			plant: func(h *history) {
				h.claims = append(h.claims, claimed("c", 9, 12, 13), claimed("c", 9, 14, 15), claimed("d", 10, 17, 18), claimed("d", 10, 20, 21))
			},
			want: []string{"exclusion: r: a (fence 1) and c (fence 9)", "exclusion: r: a (fence 1) and d (fence 10)"},
		},
		"two leases have the lock after data was lost": {
			plant: func(h *history) { h.claims = append(h.claims, claimed("c", 9, 25, 26), claimed("c", 9, 30, 31)) },
			lossy: true,
		},
		"claims that may have been one after the other": {
			plant: func(h *history) { h.claims = append(h.claims, claimed("c", 9, 25, 29), claimed("c", 9, 30, 36)) },
		},
		"a process paused in the middle of a claim": {
			plant: func(h *history) { h.claims = append(h.claims, claimed("b", 3, 55, 500)) },
		},
		"a loss is not counted": {
			plant: func(h *history) { h.reports["A"] = report{Seen: losses{"OwnershipLost": 1}, Counted: losses{}} },
			want:  []string{"I6: child A"},
		},
		"a loss is counted under another reason": {
			plant: func(h *history) {
				h.reports["A"] = report{Seen: losses{"OwnershipLost": 1}, Counted: losses{"LeaseDeadlineReached": 1}}
			},
			want: []string{"I6: child A"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := &history{
				attempts: []attempt{
					wrote("a", 1, accepted, object{}, object{}),
					wrote("b", 3, accepted, object{Fence: 1, LeaseID: "a"}, object{Fence: 1, LeaseID: "a"}),
				},
				takes: []take{took("a", 1, 5, 10), took("b", 3, 20, 40)},
				claims: []claim{
					claimed("a", 1, 10, 11), claimed("a", 1, 28, 29),
					claimed("b", 3, 40, 41), claimed("b", 3, 50, 51),
				},
				reports: map[string]report{"A": {Seen: losses{"OwnershipLost": 2}, Counted: losses{"OwnershipLost": 2}}},
			}
			test.plant(h)
			got := h.violations(!test.lossy)
			if !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("violations:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}
