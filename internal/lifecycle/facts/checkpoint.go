// SPDX-License-Identifier: Apache-2.0

package facts

import "time"

// Checkpoint says how far a run may be ahead of its status. The zero value: not at all.
type Checkpoint struct {
	Coalesced bool      // the policy lets the run be ahead
	Begins    bool      // a run that was never written may begin so: nobody else can have worked on it, and its tenant has no limit
	Since     time.Time // since when something is not written; zero: all is
}
