// SPDX-License-Identifier: Apache-2.0

// Package slots asks the quota of a run's tenant for what a run needs: a slot, and
// its idempotency key.
//
// For example: a run waits for a slot of its tenant. Each of its passes that could let it in asks,
// after the run was read, and status says which place it has. When a slot is free the quota
// controller wakes the run; nothing polls.
//
// What a pass has asked for is remembered (State) until it is released: when the run ended, was
// deleted, was suspended before its admission, is governed by another policy, or waits for its
// locks and does not keep its slot meanwhile (AwaitLocks, State.Idle). What a dead process had
// taken is released by its successor, from status, or by the resync of the quota controller.
//
// A LockPolicy that is deleted may be on its way back, so the gate of runs that it limits stays
// closed for half a minute (Policies).
//
// # Strategy Lock
//
// A quota of strategy Lock makes its callers wait for the lock of the tenant. That wait is in a
// goroutine of its own (Asks): the pass ends, and the run is woken when the answer is there. Each
// lock has a share of the places for such questions, so one that a dead process holds leaves
// places for others. A question that waits for its place is a ticket in a line: it has neither a
// goroutine nor the whole of its run.
//
//	Admit: no answer yet --> asked --> answered --> wake; the next Admit takes the answer
//	Release: given up      --> its end is waited for, and what it may have got is released
package slots
