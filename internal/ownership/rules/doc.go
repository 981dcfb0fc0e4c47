// SPDX-License-Identifier: Apache-2.0

// Package rules decides for one member which partitions it works on, and what it writes. It does no
// I/O, and time is an argument: events change a Member, Act and Propose say what it does next.
//
//	Renewed, LeaseGone   own Lease
//	Listed               the Leases of all
//	Looked               the one object, Effective; also the answer to a write
//	Told                 the same, as a watch tells of it
//	Handled              the work of partitions has ended
//	Marked               it leaves, is unfit, or is blocked
//
// A partition in one process:
//
//	        entry with own name, term not void         move
//	idle ----------------------------------> acting ----------> draining
//	 ^  ^                                      |                   |  |
//	 |  |                   session ends, or   |                   |  |
//	 |  |                   the entry is gone  v                   |  |
//	 |  +----- Handled -------------------- stopping <-------------+  |
//	 +--------------------------- Handled ---------------------------+
//
// Invariant: between acting and the next idle the entry is void for this member. It writes it again
// with the next term, for itself or for another.
//
// The documentation of internal/ownership says what the rules guarantee. The model (TestModel)
// explores members, an API server and faults on the shipped code; rules.go lists the rules that it
// can do without, and TestModelFindsMutations what that breaks.
package rules
