// SPDX-License-Identifier: Apache-2.0

// Package dispatch publishes the jobs of runs, recovers them, and fences earlier dispatches.
//
// For example: the operator dies between the status write and the publish. The next process finds
// the attempt in status, does not know whether it was published, looks it up in JOBS and RESULTS,
// and renders and publishes it only if it is in neither. A pass renders as much as its decisions
// may; the next one goes on. What cannot be rendered any more is told to the core (State.Lost), and
// keeps no other from being recovered.
//
// # No attempt is dispatched twice
//
// An attempt that is in status and not known to this process as published is recovered. It is known
// as published until the next loss of data that the bus or LookUp notices. A process that is paused
// at any point is refused by NATS when it goes on: before a process writes a run that another wrote
// last, it has all attempts in flight begin a new epoch (Fence; internal/bus/jobs says what that
// is). A run may have more of them than fit into the time of one pass: what is fenced is
// remembered, and the next pass goes on there. While NATS does not answer, such a write waits for
// FencePatience; an end without the lock does not.
//
// A loss that the bus does not notice is found by LookUp: every five minutes a run asks for the
// jobs of its attempts in flight, and what is in neither stream is recovered.
//
// The exceptions, such as a job that NATS has lost while a worker had it, are in
// docs/architecture.md#where-an-attempt-may-go-out-twice. One result counts in any case.
package dispatch
