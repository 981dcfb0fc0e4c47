// SPDX-License-Identifier: Apache-2.0

// Package natstest runs a real nats-server with JetStream inside a test: on a free port of the
// loopback interface, with its store in a temporary directory, stopped when the test ends. Restart
// keeps port and store, so that clients come back to the same data, as after a crash of the
// process on a machine that stays up. RestartEmpty has it come back with nothing, as after the
// loss of its volume, and CopyStore and RestartOn with what there was at an earlier time, as after
// a crash of the machine.
package natstest
