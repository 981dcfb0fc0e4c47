// SPDX-License-Identifier: Apache-2.0

// Package facts has all that a decision depends on: Input, and the types of its parts.
//
// For example, a Result is one message of a worker about one attempt, and its Verdict says whether
// the message may be acknowledged. Judge compares the two with the status:
//
//	attempt 2 is in flight, a result of attempt 1: Stale
//	attempt 2 is in flight, a result of attempt 2: Applied
//	attempt 2 is in flight, a result of attempt 3: Ahead; the status is not the newest
//
// Some facts are read off objects here: SeenChild, SeenParent, Approvals, ResolveTenant and
// ResolvePermits. All functions are pure.
package facts
