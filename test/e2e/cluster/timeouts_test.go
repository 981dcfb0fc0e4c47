// SPDX-License-Identifier: Apache-2.0

package cluster

import "time"

// All time-outs of the suite. They end a hung test; none of them is an expectation about speed.
const (
	installTimeout = 10 * time.Minute // images pulled, volumes made, pods ready
	specTimeout    = 8 * time.Minute  // a whole spec
	eventTimeout   = 4 * time.Minute  // one thing comes about; what a killed leader held takes a lease and the TTL of a lock
	goneTimeout    = 4 * time.Minute  // a namespace is deleted
	waitFlag       = "--timeout=240s" // of kubectl wait and rollout status

	pollInterval   = 250 * time.Millisecond // of one object
	listInterval   = time.Second            // of many
	streamInterval = 200 * time.Millisecond // between two runs of a stream
	quietPeriod    = 3 * time.Second        // how long what must not happen is waited for
	retryPause     = time.Second            // before the log of a container is asked for again
)
