// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"cmp"
	"slices"
)

// Loan is what one tenant uses of what another is guaranteed.
type Loan struct {
	From string `json:"from"`
	To   string `json:"to"`
	Runs int    `json:"runs"`
}

// Loans are who lends from whom. What a tenant has beyond its guarantee comes first from what is
// guaranteed to nobody, and only then from those who do not use theirs: from the one that has the
// most to give. Names of tenants that nobody sees must be in used, too, with 0.
func (l Limits) Loans(used map[string]int) []Loan {
	type account struct {
		name string
		runs int
	}
	var lenders, borrowers []account
	common, beyond := l.Total, 0
	for name, n := range used {
		g := l.Of(name).Guaranteed
		common -= g
		if n < g {
			lenders = append(lenders, account{name, g - n})
		}
		if n > g {
			borrowers = append(borrowers, account{name, n - g})
			beyond += n - g
		}
	}
	most := func(a, b account) int { return cmp.Or(cmp.Compare(b.runs, a.runs), cmp.Compare(a.name, b.name)) }
	slices.SortFunc(lenders, most)
	slices.SortFunc(borrowers, most)
	lent := max(0, beyond-max(0, common)) // more than the total may be in use after it was lowered: that is lent by nobody
	var all []Loan
	for len(lenders) > 0 && len(borrowers) > 0 && lent > 0 {
		n := min(lent, lenders[0].runs, borrowers[0].runs)
		all = append(all, Loan{From: lenders[0].name, To: borrowers[0].name, Runs: n})
		lent -= n
		if lenders[0].runs -= n; lenders[0].runs == 0 {
			lenders = lenders[1:]
		}
		if borrowers[0].runs -= n; borrowers[0].runs == 0 {
			borrowers = borrowers[1:]
		}
	}
	return all
}
