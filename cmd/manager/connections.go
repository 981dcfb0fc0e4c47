// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
)

// deadAfter has a connection to the API server count as dead that is silent for so many seconds,
// and does not answer a ping for as many more. All requests share one connection, and a machine
// that loses its power closes none: with the defaults of Kubernetes' client (30 and 15 s) each
// retry went to the dead one for three quarters of a minute, and no run moved meanwhile. Whoever
// sets the variables knows better.
var deadAfter = map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "2", "HTTP2_PING_TIMEOUT_SECONDS": "3"}

// noticeDeadConnections is called before the first client is made, which reads these variables.
func noticeDeadConnections() error {
	for name, seconds := range deadAfter {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, seconds); err != nil {
			return fmt.Errorf("set how long the API server may be silent: %w", err)
		}
	}
	return nil
}
