// SPDX-License-Identifier: Apache-2.0

// Package bustest helps to test what uses a bus.Conn against a real nats-server: connections, what
// workers do, and waiting. It knows none of the packages on top of the connection, so that their
// tests can use it.
package bustest
