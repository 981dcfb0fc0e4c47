// SPDX-License-Identifier: Apache-2.0

// Package shares says which tenant is next when all tenants of a policy share a total. It is pure.
//
// For example: the total is 10. Acme is guaranteed 4 of them, and its weight is 3; that of beta
// is 1. Both have many runs that wait. Acme gets its 4, then each free slot goes to whoever uses
// the least for its weight: in the end acme has about three times as many, 7 and beta 3.
//
//	use < guaranteed       first; the lowest use / weight of them
//	guaranteed <= use      next; the lowest use / weight of them
//	use = max              never
//
// Equals take turns: the one is next that got a slot, or began to wait, longest ago. Only where
// that is the same the first run of each counts: the higher priority, then the older one.
//
// Nothing is taken from runs that are under way. Who uses more than it is guaranteed has a loan, as
// far as that comes from what others are guaranteed and do not use. A loan comes back as its runs
// end: until then the lender is the next each time.
//
// The scripts of internal/quota/store decide so in O(log tenants). Next is the same rule in its
// plainest form, which their tests compare them with.
package shares
