// SPDX-License-Identifier: Apache-2.0

// Package leases takes, keeps and gives back the locks of runs, and says what the core
// needs of them.
//
// For example: a result comes for a run of scope Activation. The pass has something to write, takes
// the lock, writes, and releases the lock to linger. A run of scope Run keeps its lease in the
// Cache from its admission to its end, and later passes work under it without asking Redis.
//
//	scope Activation  a pass takes the lock when it has something to write or to recover
//	scope Run         the pass that admits the run keeps its lease, and so do all later ones; a run that
//	                  lost it takes it anew though there may be nothing to write
//
// # Kept leases
//
// A pass works under the kept lease, and no breaker stops it, unless the lease was lost, the status
// shows a writer after it, or it is healthy and the policy is another now: then it is given back,
// and the next take is under the policy as it is. A lease is either in the Cache or in the hands of
// one pass. It ends with the run, its deletion, or the operator.
//
// A loss is remembered until status has it. A write that is refused because another wrote ends the
// lease; a write that is refused because the spec was edited does not.
//
// # Busy locks
//
// A pass that finds the lock busy ends. What it learns of the holder is remembered. Once the wait
// is longer than the policy's budget, and the holder showed no life, one write without the lock
// says whose lock it is and when it ends (lifecycle.Lock.Overdue; ADR 32).
//
// # Redis is down
//
// The Breaker keeps passes from each waiting for the time-out: after a failure one pass at a time
// finds out whether Redis is back, and the longer it is down the longer runs wait.
package leases
