// SPDX-License-Identifier: Apache-2.0

package locks

import "math"

// rings are those of a graph, by node.
type rings struct {
	of     []int  // the set of nodes that can all reach each other, from 1; 0: no way leads back to it
	behind []bool // a way from it leads to another set
}

// ringsOf finds the rings of a graph. No node has a way to itself at once. It takes as long as
// there are nodes and ways: this is Tarjan's search for sets of nodes that can all reach each
// other. It finds a set after all that it leads to.
func ringsOf(next [][]int) rings {
	s := &search{next: next, found: make([]int, len(next)), rings: rings{make([]int, len(next)), make([]bool, len(next))}}
	for node := range next {
		if s.found[node] == 0 {
			s.visit(node)
		}
	}
	return s.rings
}

// search is one search.
type search struct {
	next  [][]int
	found []int // by node, from 1: when it was found; done: its set is known
	open  []int // nodes whose set is not known yet
	count int
	sets  int
	rings
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
	s.close(s.open[at:])
	s.open = s.open[:at]
	return done
}

// close notes a set of nodes. Those that it leads to have been closed.
func (s *search) close(set []int) {
	behind, number := false, 0
	for _, one := range set {
		for _, to := range s.next[one] {
			behind = behind || s.found[to] == done && (s.of[to] > 0 || s.behind[to])
		}
	}
	if len(set) > 1 {
		s.sets++
		number = s.sets
	}
	for _, one := range set {
		s.found[one], s.of[one], s.behind[one] = done, number, behind
	}
}
