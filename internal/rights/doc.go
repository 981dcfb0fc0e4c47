// SPDX-License-Identifier: Apache-2.0

// Package rights lists what the users of NATS and Redis need, and no more, and writes the lists as
// the servers read them: accounts of a nats-server's configuration, a line of Redis' ACL file.
// Tests run the operator with these rights.
package rights
