// SPDX-License-Identifier: Apache-2.0

// Package runwatch watches runs, and does not decode what this process wrote itself.
//
//	status write --> Begin(uid), Note(run)                     what the API server stored, as its answer says
//	watch of runs --> one event a line --> own? --> the noted run, copied
//	                                   --> else  decoded
//
// Each status write comes back by the watch. To find where its event ends and to decode it took a
// fifth of the operator's CPU, and told it nothing.
//
// # Guarantee
//
// The cache has what the API server stores. An event is taken for an own write only if it says
// MODIFIED about a run whose UID and resourceVersion are those of a noted write. The API server
// gives each version of an object another resourceVersion, and refuses a status write whose
// resourceVersion is not that of the stored object. So where the write was accepted, metadata and
// spec are those that the writer had read, and status is what it wrote. managedFields, which the
// cache does not keep, are left out.
//
// # Failure handling
//
// What is not known as an own write is decoded as client-go would: writes of others, and those
// beyond the bounds of Writes. The event of a write often comes before its answer. Then it
// waits for the answer, and the events of all other runs behind it, for some milliseconds, or it is
// decoded. After one that waited in vain none waits for ten times as long: a slow API server, or
// large objects of one tenant, must not have the events of all others come late. An event that is
// not on one line of its own cannot be decoded; then the watch ends, and the reflector lists.
package runwatch
