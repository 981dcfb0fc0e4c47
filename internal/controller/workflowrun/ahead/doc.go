// SPDX-License-Identifier: Apache-2.0

// Package ahead keeps what a process has decided about runs and has not written yet.
//
// For example: a of the chain a, b, c succeeds. With mode EveryStep of spec.checkpoint the process
// writes that b is dispatched, publishes b's job, and acknowledges the result of a. With Coalesced
// it publishes b's job at once, and keeps the status with b. When b succeeds it does the same for
// c. The write that says that the run has succeeded has all of it, and then the results are
// acknowledged.
//
//	stored status ---- decision that may lag ----> kept status ---- the next one ----> kept status
//	      ^                                                                                 |
//	      +------------------------- checkpoint: one write has all of it -------------------+
//
// # Rules
//
// Nothing is acknowledged before it is written, duplicates included. So whoever takes the run over
// is given the same results, and derives the same jobs: lifecycle.Decision.MayLag says which
// decisions are like that.
//
// A run is ahead only under a lease that wrote its stored status. The lease is kept until the
// checkpoint, and for a while after it. A run that was never written is begun ahead only if no
// other process can have worked on it: see State.Alone.
//
// What is kept stands as long as the stored status is the one that it was decided on, also if
// somebody edits the spec. Else it is dropped: its results are applied anew, to what is stored.
//
// A process that was not alone looks every attempt up before it publishes it, and withdraws with an
// end what others may have dispatched ahead (lifecycle.NeverBegun).
//
// # Failure handling
//
// A write that is refused drops what is kept, and the run goes on as with EveryStep: so the result
// to blame is found by the rules of package workflowrun. A write that has no answer, or could not
// be tried, is tried again, with what is kept. A crash loses nothing but time.
//
// # Bounds
//
// maxResults and maxDelayMillis of the policy; 2 s while writes wait for each other; at most one
// kept status per run that this process drives.
package ahead
