// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"crypto/sha256"
	"encoding/binary"
)

// Arm is the part of the runs that a run belongs to.
type Arm string

// The arms. A run that is in neither is under the baseline, as the control is, and does not vote.
const (
	Rest    Arm = ""
	Canary  Arm = "Canary"
	Control Arm = "Control"
)

// slots is into how many equal parts runs are divided.
const slots = 100

// Slot is where a run stands in [0, 100): the same in every replica, another for another candidate.
func Slot(runUID, candidate string) int {
	sum := sha256.Sum256([]byte(candidate + "/" + runUID))
	return int(binary.BigEndian.Uint64(sum[:8]) % slots)
}

// ArmOf is the arm of a run when percent of the runs are the canary.
func ArmOf(runUID, candidate string, percent int) Arm {
	switch slot := Slot(runUID, candidate); {
	case slot < percent:
		return Canary
	case slot >= slots-percent:
		return Control
	default:
		return Rest
	}
}
