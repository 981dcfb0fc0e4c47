// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"crypto/sha256"
	"encoding/binary"
)

// Arm is the part of the units that a unit belongs to.
type Arm string

// The arms. A unit that is in neither is under the baseline, as the control is, and does not vote.
const (
	Rest    Arm = ""
	Canary  Arm = "Canary"
	Control Arm = "Control"
)

// slots is into how many equal parts units are divided.
const slots = 100

// Slot is where a unit stands in [0, 100): the same in every replica, another for another
// candidate. unit is the UID of a run, or what NameOf says.
func Slot(unit, candidate string) int {
	sum := sha256.Sum256([]byte(candidate + "/" + unit))
	return int(binary.BigEndian.Uint64(sum[:8]) % slots)
}

// ArmOf is the arm of a unit when percent of the units are the canary.
func ArmOf(unit, candidate string, percent int) Arm {
	switch slot := Slot(unit, candidate); {
	case slot < percent:
		return Canary
	case slot >= slots-percent:
		return Control
	default:
		return Rest
	}
}
