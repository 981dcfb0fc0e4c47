// SPDX-License-Identifier: Apache-2.0

// Package shares gives the places of a process to tenants, so that none can have all of them. A
// tenant is a namespace here, or a lock.
//
// For example: of 16 passes that may be under way one tenant gets 8 at most, and two tenants 6
// each, so that a third one finds a place at once.
//
//	Shares  places, each with one line per tenant; the tenant with the fewest places is next
//	Turns   places for passes; a run that waits is in a line, not on a worker, and is woken
//	Desks   places for the few passes that do what takes long or much memory
//
// # Desks
//
// A pass begins with quick decisions. When one is cut, when large outputs are to be read, or when a
// large object is to be written, it sits down at a desk, of which there are two at most, and keeps
// it to its end. So what large runs hold in memory is bounded for the process, and one core is left
// to the others. It leaves its place for passes to others for that, and has one aside. If there is
// none it ends, and its run is in line for one. While other tenants want passes, a pass at its desk
// rests every few milliseconds, and the desk stays empty for a while after its use, so that all
// desks take an eighth of the cores: on two cores they rest three times as long as they work, on 16
// not at all.
package shares
