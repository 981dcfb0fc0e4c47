// SPDX-License-Identifier: Apache-2.0

// Package door is a way of clients to one server, by TCP, which tests shut, slow down
// and make one-way.
//
//	client --- up ---> Door ---> server
//	client <-- down -- Door <--- server
//
// A door has one Fault in each direction; the zero Fault lets all through. A fault is for what
// passes from then on, in connections that there are and in new ones. Bytes keep their order, and
// none is changed. When one side ends a connection, the door passes on what that side sent, and
// ends the other.
//
// It passes on what it has read at most maxChunks times; then the sender waits, as behind
// any slow link.
package door
