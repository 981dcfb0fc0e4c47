// SPDX-License-Identifier: Apache-2.0

// Package trials is a run's part in the rollout of its LockPolicy: in which arm it is, what it
// votes, and when that counts.
//
// Example: a run is in the canary of candidate 4f2a-2. Its first write under its lock pins that in
// status.policy.trial, and counts it as begun. Each later write takes the votes of this process
// along: how often the lock was busy, the longest wait, the longest latency of a result. The write
// of its end counts them.
//
// Votes are maxima, so a write that is made twice, or by another process, does no harm. A write
// whose answer was lost is not counted. That is as likely in both arms.
package trials
