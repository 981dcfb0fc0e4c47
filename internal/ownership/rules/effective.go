// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// Claim says who owns a partition, and since which term. An empty owner is none.
type Claim struct {
	Owner string
	Term  int64
}

// Effective is who owns which partition, as the one object says that all members share. Members act
// on nothing else. Claims has an entry per partition.
type Effective struct {
	// Origin names the making of the object: it is another one after the object was lost.
	Origin string
	// Young: it was made a moment ago, and those who act may not have said so yet. Until a member
	// has seen it for a whole Lease, nobody claims anything.
	Young  bool
	Claims []Claim
}

// clone is a copy that may be changed.
func (e Effective) clone() Effective {
	e.Claims = slices.Clone(e.Claims)
	return e
}

// has says whether a member owns a partition.
func (e *Effective) has(owner string) bool {
	return slices.ContainsFunc(e.Claims, func(c Claim) bool { return c.Owner == owner })
}

// wellFormed says whether e has an entry for each of n partitions.
func (e Effective) wellFormed(n int) bool {
	return len(e.Claims) == n && e.Origin != "" && !slices.ContainsFunc(e.Claims, func(c Claim) bool { return c.Term < 1 })
}

// goesBackFrom says whether e cannot have come after old in the same making of the object: a term
// is lower, or has another owner. Somebody put an old copy back by hand.
func (e Effective) goesBackFrom(old Effective) bool {
	if e.Origin != old.Origin {
		return false
	}
	for p, c := range e.Claims {
		was := old.Claims[p]
		if c.Term < was.Term || (c.Term == was.Term && c.Owner != was.Owner) {
			return true
		}
	}
	return false
}

// goesOnFrom says whether e has come after old in the same making of the object: some terms are
// higher.
func (e Effective) goesOnFrom(old Effective) bool {
	return e.Origin == old.Origin && !e.goesBackFrom(old) && !slices.Equal(e.Claims, old.Claims)
}

// Desired is who should own which partition, by one member's view of the members. It says who is to
// claim or to be given a partition, and gives no right to act.
type Desired []string

// desiredOf gives each of n partitions to the eligible member with the highest hash of both: when a
// member comes or goes, only partitions that it gets or had change their owner. Without eligible
// members all are empty.
func desiredOf(n int, eligible []string) Desired {
	d := make(Desired, n)
	for p := range d {
		d[p] = slices.MaxFunc(append([]string{""}, eligible...), func(a, b string) int {
			return cmp.Or(cmp.Compare(weight(a, p), weight(b, p)), cmp.Compare(a, b))
		})
	}
	return d
}

// weight is that of a member for a partition. FNV-1a alone mixes its last bytes badly, so its bits
// are mixed once more.
func weight(member string, p int) uint64 {
	if member == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(member)) // a hash never fails
	x := h.Sum64() + uint64(p)*0x9e3779b97f4a7c15
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x | 1
}
