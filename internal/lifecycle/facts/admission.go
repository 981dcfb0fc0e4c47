// SPDX-License-Identifier: Apache-2.0

package facts

import "time"

// GateState is what the tenant's gate says of a run that is not admitted.
type GateState int

// States of the gate. The zero value admits nobody.
const (
	GateUnasked     GateState = iota // it was not asked; Needs.Admission says that it has to be
	GateAsked                        // it was asked, and its answer will wake the run: what is said of it stands
	GateOpen                         // the run may be admitted by this decision: it has a slot, or there is no limit
	GateFull                         // all slots of the tenant are taken
	GateBusy                         // strategy Lock: the lock of the tenant was not to be had
	GateUnavailable                  // it could not be asked
	GateRebuilding                   // it lost its data, and admits nobody until the runs are counted again
	GateNoPolicy                     // the LockPolicy that it is of was deleted a moment ago, and may come back
)

// Gate is what the tenant's gate answered, after the run of this decision was read.
type Gate struct {
	State    GateState
	Used     int    // slots of the tenant under the policy that are taken: by runs under way, or kept by one that waits for its locks
	Limit    int    // how many may be
	Position int    // of the run in line, from 1
	Waiting  int    // runs in line
	Ahead    string // namespace/name of the run just ahead; "" for the first
	All      int    // slots that all tenants who share a total have taken, or reserved
	Total    int    // how many there may be; 0: they share none
	Cause    string // GateBusy, GateUnavailable, GateRebuilding: for people; GateNoPolicy: the policy's name

	Until time.Time // GateNoPolicy: for how long the run waits for the policy

	// MayKeep says that the run may keep its slot from now on while it is first in the queues of
	// its locks: it was there before, and had to leave them as it had no slot. Idle is for how
	// long, at the most.
	MayKeep bool
	Idle    time.Duration
}

// ClaimState is what became of a run's claim of its idempotency key.
type ClaimState int

// States of a claim. The zero value is no claim.
const (
	ClaimUnasked ClaimState = iota
	ClaimOurs               // the run is the first with its key
	ClaimTaken              // another run has it
	ClaimUnavailable
)

// Claim is what was found out about the idempotency key of a run.
type Claim struct {
	State ClaimState
	Owner string // ClaimTaken: namespace/name of the run that has it
	Same  bool   // ClaimTaken: that run has the same spec
	Cause string // ClaimUnavailable: for people
}
