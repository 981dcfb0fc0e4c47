// SPDX-License-Identifier: Apache-2.0

// Package share divides what is bounded among owners, so that the flood of one leaves enough to the
// others. It is pure: it has no clock and no lock, and its callers hold one.
//
// For example, a room for 3,000 results is empty, and one run sends 10,000. The run gets 1,000
// places: it may hold half of what is free, and then 2,000 are. A second run gets its
// part of these.
//
//	Room   a store of places or bytes: which owner may put one more in
//	Pace   a rate: when what found no place may try again
//
// # Room
//
// The share of an owner is no constant, but a part of what is free: a run may hold half of it,
// a tenant all of it. So one run alone gets a third of a room and one tenant a half, however
// much they send; and of n tenants that all want more than there is, each gets one part of n+1,
// and one part stays free for the next. (A dynamic threshold, as in the shared buffers of
// switches: Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998.) No owner has
// to be pushed out.
//
// Invariants: used <= limit, but for one entry that is larger than the room, and for what came by
// Add or before SetLimit, beyond which nothing is taken; used is the sum of what owners hold; an
// owner that holds nothing is remembered nowhere, so memory is bounded by what is held; who holds
// nothing gets in while there is room for what it brings.
//
// # Pace
//
// What finds no room has to try again, and each try has a cost. All that waits comes at one rate,
// and each owner that has something waiting gets an equal part of the rate. The wait grows with
// what the owner has waiting, up to a bound.
package share
