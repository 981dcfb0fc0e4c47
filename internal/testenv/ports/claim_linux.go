// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"net"
	"strconv"
)

// claimOf fails when another process has claimed a port. A claim is a name without a file: it
// ends with the process, and is known to those with the same ports only, such as the others
// in a container.
func claimOf(port int) (net.Listener, error) {
	return net.Listen("unix", "@syncopate-test-port-"+strconv.Itoa(port))
}
