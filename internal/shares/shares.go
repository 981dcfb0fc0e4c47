// SPDX-License-Identifier: Apache-2.0

package shares

import "cmp"

// Share is what a policy says of a tenant.
type Share struct {
	// Max is how many it may have; below 0: as many as there are.
	Max int
	// Guaranteed is how many it gets before others get more than theirs. What is above Max
	// does not count.
	Guaranteed int
	// Weight is its part of what nobody is guaranteed, or does not use. From 1.
	Weight int
}

// Limits are what a policy says of all its tenants.
type Limits struct {
	// Version orders edits of the policy: the highest is the newest.
	Version int64
	// Total bounds all tenants together.
	Total int
	// Max bounds each tenant that Tenants does not name; below 0: nothing does.
	Max int
	// Tenants with limits of their own.
	Tenants map[string]Share
}

// Of is the share of a tenant.
func (l Limits) Of(tenant string) Share {
	s, ok := l.Tenants[tenant]
	if !ok {
		s = Share{Max: l.Max}
	}
	if s.Max < 0 {
		s.Max = l.Total
	}
	s.Guaranteed, s.Weight = min(s.Max, s.Guaranteed), max(1, s.Weight)
	return s
}

// Tenant is how a tenant stands.
type Tenant struct {
	Name string
	// Used is how many it has.
	Used int
	// Since orders tenants with the same use / weight: it is lower for the one that got a slot, or
	// began to wait, longer ago.
	Since int
	// First orders the first of its runs that wait among those of other tenants; "": none waits.
	First string
}

// Next is the index of the tenant that gets the next free slot; -1: nobody does.
func (l Limits) Next(tenants []Tenant) int {
	next, used := -1, 0
	var first Tenant
	for i, t := range tenants {
		used += t.Used
		if t.First == "" || t.Used >= l.Of(t.Name).Max {
			continue
		}
		if next < 0 || l.compare(t, first) < 0 {
			next, first = i, t
		}
	}
	if used >= l.Total {
		return -1
	}
	return next
}

// compare is below 0 if a is before b.
func (l Limits) compare(a, b Tenant) int {
	x, y := l.Of(a.Name), l.Of(b.Name)
	return cmp.Or(
		cmp.Compare(class(a.Used, x), class(b.Used, y)),
		cmp.Compare(a.Used*y.Weight, b.Used*x.Weight), // use / weight
		cmp.Compare(a.Since, b.Since), cmp.Compare(a.First, b.First), cmp.Compare(a.Name, b.Name),
	)
}

// class is 0 for who has less than it is guaranteed.
func class(used int, s Share) int {
	if used < s.Guaranteed {
		return 0
	}
	return 1
}
