// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// uid is that of the run of a ticket.
func uid(ticket string) string {
	id, _, _ := strings.Cut(ticket, "/")
	return id
}

// inTree puts every other run below the one before it.
func inTree(k store.Ticket) store.Ticket {
	run := uid(k.ID)
	if n := int(run[len(run)-1] - '0'); n%2 == 1 {
		k.Tree = fmt.Sprint("team/", run[:len(run)-1], n-1)
	}
	return k
}

// pick is any of twelve tickets, and a number that its wants go by; with parts each run has two.
func pick(r *rand.Rand, parts bool) (id string, n int) {
	n = r.IntN(12)
	if parts {
		return fmt.Sprint("t", n/2, "/", n%2), n % 10
	}
	return fmt.Sprint("t", n), n % 10
}

// random plays some random steps: with parts those of runs that have several tickets each, which
// wait in long lines, as only one of the locks has anybody end.
func (s *lockScene) random(r *rand.Rand, steps int, parts bool) {
	rates := []*store.Rate{nil, atMost(60, time.Hour), atMost(30, time.Hour)} // used up after some time
	if parts || r.IntN(2) == 0 {
		rates = make([]*store.Rate, 3)
	}
	limits, kinds := []int{1, 2, 3}, []store.OnBusy{store.Queue, store.CancelOldest, store.KeepLatest, store.DropNewest, store.CancelOldest}
	kind := func(n, l int) store.OnBusy {
		switch {
		case !parts:
			return kinds[(n+l)%5]
		case l == 0:
			return store.CancelOldest
		}
		return store.Queue
	}
	for range steps {
		s.seq++
		id, n := pick(r, parts)
		switch r.IntN(10) {
		case 0:
			s.drop(store.Dropping{Ticket: id, Seen: strconv.Itoa(r.IntN(s.seq + 1))})
		case 1, 2, 3:
			other, _ := pick(r, parts)
			s.drop(store.Dropping{Ticket: id}, store.Dropping{Ticket: other})
		default:
			var wants []store.Want
			version := s.seq
			if r.IntN(5) == 0 { // what it wants was edited
				n = r.IntN(8)
			}
			if r.IntN(5) == 0 { // by who read the run some time ago
				version = max(1, s.seq-r.IntN(20))
			}
			for l := range 3 {
				if (n>>l)&1 == 1 || n == l {
					wants = append(wants, store.Want{
						Name: fmt.Sprint("l", l), Permits: 1 + (n+l)%limits[l], Limit: limits[l] - r.IntN(6)/5, Ordered: l == 1, OnBusy: kind(n, l), Longest: 4, Rate: rates[l],
					})
				}
			}
			if len(wants) > 0 {
				s.take(inTree(arrived(ticket(id, version, (n+r.IntN(6)/5)%3), 990+r.IntN(30))), wants...) // its priority was edited, too
			}
		}
	}
}
