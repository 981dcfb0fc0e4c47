// SPDX-License-Identifier: Apache-2.0

// Package redistest runs a real redis-server as a child process of a test: on a free loopback port,
// without persistence, ended with the test. Tests may hang it, restart it and empty it.
//
// The server is looked up on the PATH. Without one the test is skipped, or fails when
// REQUIRE_REDIS=1, so that CI cannot pass by running nothing.
package redistest
