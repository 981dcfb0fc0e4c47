// SPDX-License-Identifier: Apache-2.0

// Package policy turns LockPolicy objects into the effective settings of a workload class. It is
// pure: no I/O, no clock, no random source, no package-level state.
//
// # Guarantees
//
//   - There is always an answer: a class that no policy lists gets the policy with "*", else the
//     built-in Defaults, which are the defaults of the CRD.
//   - The answer does not depend on the order of the policies: a class claimed twice belongs to the
//     older policy, by creation time and then by name. A policy that lost a class still governs its
//     other classes; Conflicts says which to report, and Governed what is left.
//   - A policy made without the API server, so without its defaults, means the same as one that
//     went through it.
//
// # Times
//
// A lease is valid for TTL - margin, counted from before the call that took or renewed it was sent;
// the margin is TTL * clockDriftPercent + safetyMarginMillis. internal/lockmgr has the deadline
// rule that uses it.
//
//	|<------------------------- TTL (Redis) ------------------------->|
//	|<---------------- Validity (holder) ---------------->|<- Margin ->|
//	sent      Interval      2 x Interval
//
// The API server refuses policies in which two renewals do not fit into the validity; this package
// trusts it and checks nothing again.
package policy
