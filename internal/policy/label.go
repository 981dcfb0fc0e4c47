// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// LabelRevisions on a ControllerRevision names the LockPolicy whose it is: see RevisionsLabel.
const LabelRevisions = "syncopate.dev/lock-policy"

const (
	maxLabel   = 63 // the length of a label's value
	hashLength = 8  // hex digits
)

// RevisionsLabel is the value of LabelRevisions for a policy of that name; one that is too long for
// a label is cut, with a hash of it.
func RevisionsLabel(name string) string {
	if len(name) <= maxLabel {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := hex.EncodeToString(sum[:])[:hashLength]
	return strings.TrimRight(name[:maxLabel-1-hashLength], ".-") + "-" + hash
}
