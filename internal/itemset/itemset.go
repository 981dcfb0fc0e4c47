// SPDX-License-Identifier: Apache-2.0

package itemset

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
)

// MaxItems bounds the indices: they are 0 to MaxItems-1.
const MaxItems = 10_000

// Set is a set of item indices; see doc.go.
//
// Invariant: spans are in ascending order with at least one index between two of them, and are
// never changed in place.
type Set struct{ spans []span }

// span is the indices first to last, both included, first <= last.
type span struct{ first, last int16 }

// Contains says whether i is in the set.
func (s Set) Contains(i int) bool {
	at := s.reaching(i)
	return at < len(s.spans) && int(s.spans[at].first) <= i
}

// Len is the number of indices in the set.
func (s Set) Len() int {
	n := 0
	for _, p := range s.spans {
		n += int(p.last-p.first) + 1
	}
	return n
}

// First is the smallest index, or false if the set is empty.
func (s Set) First() (int, bool) {
	if len(s.spans) == 0 {
		return 0, false
	}
	return int(s.spans[0].first), true
}

// All gives the indices in ascending order, as they are when it is called.
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, p := range s.spans {
			for i := p.first; i <= p.last; i++ {
				if !yield(int(i)) {
					return
				}
			}
		}
	}
}

// Equal says whether both sets have the same indices; their texts are the same then, too.
func (s Set) Equal(t Set) bool { return slices.Equal(s.spans, t.spans) }

// String is the one text of the set, which Parse reads.
func (s Set) String() string {
	var text []byte
	for n, p := range s.spans {
		if n > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(p.first), 10)
		if p.last > p.first {
			text = append(text, '-')
			text = strconv.AppendInt(text, int64(p.last), 10)
		}
	}
	return string(text)
}

// Add puts i into the set and says whether that changed it.
func (s *Set) Add(i int) bool { return s.AddRange(i, i) }

// AddRange puts first to last, both included, into the set and says whether that changed it.
// Of a range that reaches out of 0..MaxItems-1 only the part inside counts; one with first >
// last is empty.
func (s *Set) AddRange(first, last int) bool {
	first, last = max(first, 0), min(last, MaxItems-1)
	if first > last {
		return false
	}
	added := span{int16(first), int16(last)}
	from := s.reaching(first - 1) // touching counts: 3-4 and 5 are 3-5
	to, _ := slices.BinarySearchFunc(s.spans, last+2, func(p span, i int) int { return cmp.Compare(int(p.first), i) })
	if from < to {
		added.first = min(added.first, s.spans[from].first)
		added.last = max(added.last, s.spans[to-1].last)
	}
	if to-from == 1 && s.spans[from] == added {
		return false
	}
	s.spans = slices.Concat(s.spans[:from], []span{added}, s.spans[to:])
	return true
}

// Remove takes i out of the set and says whether that changed it.
func (s *Set) Remove(i int) bool {
	if !s.Contains(i) {
		return false
	}
	at := s.reaching(i)
	hit, left := s.spans[at], make([]span, 0, 2)
	if int(hit.first) < i {
		left = append(left, span{hit.first, int16(i - 1)})
	}
	if i < int(hit.last) {
		left = append(left, span{int16(i + 1), hit.last})
	}
	s.spans = slices.Concat(s.spans[:at], left, s.spans[at+1:])
	return true
}

// Union is the indices that are in s or in t.
func (s Set) Union(t Set) Set {
	var out []span
	all := slices.Concat(s.spans, t.spans)
	slices.SortFunc(all, func(p, q span) int { return cmp.Compare(p.first, q.first) })
	for _, p := range all {
		if end := len(out) - 1; end >= 0 && p.first <= out[end].last+1 {
			out[end].last = max(out[end].last, p.last)
			continue
		}
		out = append(out, p)
	}
	return Set{out}
}

// reaching is the number of the first span that ends at i or after it.
func (s Set) reaching(i int) int {
	at, _ := slices.BinarySearchFunc(s.spans, i, func(p span, i int) int { return cmp.Compare(int(p.last), i) })
	return at
}
