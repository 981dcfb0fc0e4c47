// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"os"
	"testing"
)

// childEnv holds the childConfig of a child process, as JSON; in a process that runs tests it
// is not set.
const childEnv = "LOCKS_CHILD"

func TestMain(m *testing.M) {
	if config, ok := os.LookupEnv(childEnv); ok {
		os.Exit(childMain(config))
	}
	os.Exit(m.Run())
}
