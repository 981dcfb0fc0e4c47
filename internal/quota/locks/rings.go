// SPDX-License-Identifier: Apache-2.0

package locks

import "math"

// inRings says of each node of a graph whether a way from it leads back to it. No node has a way to
// itself at once. It takes as long as there are nodes and ways: this is Tarjan's search for sets of
// nodes that can all reach each other.
func inRings(next [][]int) []bool {
	s := &search{next: next, found: make([]int, len(next)), in: make([]bool, len(next))}
	for node := range next {
		if s.found[node] == 0 {
			s.visit(node)
		}
	}
	return s.in
}

// search is one search.
type search struct {
	next  [][]int
	found []int // by node, from 1: when it was found; done: its set is known
	open  []int // nodes whose set is not known yet
	in    []bool
	count int
}

const done = math.MaxInt

// visit finds what can be reached from a node, and gives the first found of the open ones that
// can be.
func (s *search) visit(node int) int {
	s.count++
	mine, at := s.count, len(s.open)
	s.found[node], s.open = mine, append(s.open, node)
	first := mine
	for _, to := range s.next[node] {
		if s.found[to] == 0 {
			first = min(first, s.visit(to))
		} else {
			first = min(first, s.found[to])
		}
	}
	if first < mine {
		return first
	}
	set := s.open[at:]
	for _, one := range set {
		s.found[one], s.in[one] = done, len(set) > 1
	}
	s.open = s.open[:at]
	return done
}
