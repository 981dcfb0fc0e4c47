// SPDX-License-Identifier: Apache-2.0

// Package eventlog writes Kubernetes events so that those of one namespace are in the way of no
// other's.
//
// Example: 200 steps of a run fail together, again and again, and the API server takes 100 events a
// second. The run gets a third of the room in memory, and what finds none is counted and left out.
// A run of another namespace says that it began: it finds room, and is next after one write.
//
//	Eventf --> said before? --> room? --> line of its namespace --> turns --> one write at a time
//
// Nothing waits for a write, and nothing grows with what waits: Eventf starts no goroutine, and
// there is room for 1,000 events of each type ([share.Room] says what a namespace and a run get of
// it). Warnings have a room of their own, or what goes well could keep them out.
//
// # Said once
//
// What was said in the same words about the same version of an object is not said again for half an
// hour. The recorder of client-go makes a series of it, with a count; for that it keeps each event
// for minutes, and writes it again.
//
// # Writes that fail
//
// An event that the API server refuses is left out. While the server cannot take events, they are
// kept: the room bounds them, and an outage is when they are wanted. Only an event that the server
// answers for an hour with errors is left out: so long does the server itself keep one.
//
// A namespace whose write failed is tried less often, and so are all of these together: after a try
// that failed, three times as long as that took is for the others. Or a webhook that hangs for one
// namespace would hold up all. After a try that succeeds there is no such rest, so the end of an
// outage is noticed once, and not by each namespace for itself.
package eventlog
