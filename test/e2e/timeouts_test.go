// SPDX-License-Identifier: Apache-2.0

package e2e

import "time"

// All time-outs of the suite. They end a hung test; none of them is an expectation about speed.
const (
	startTimeout = 4 * time.Minute // build the operator, start the control plane
	readyTimeout = time.Minute     // an operator becomes ready
	specTimeout  = 4 * time.Minute // a whole spec
	pollInterval = 100 * time.Millisecond
)
