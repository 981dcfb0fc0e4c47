// SPDX-License-Identifier: Apache-2.0

// Package results brings results of jobs to the runs that they are for, and settles them.
//
// For example: a worker answers. The bus hands the result to the Router, which finds the run by its
// UID in the Index, puts the result into the run's Inbox and wakes the run (later, if a job only
// started). The run's next pass takes all that waits there, and settles it once status has it.
//
//	bus --> Consumer --> Router --> Inbox --> a pass of the run --> Settler --> bus
//	                       |   \
//	                     Index  Orphans    results of runs which the cache does not have (yet)
//
// # The inbox
//
// Results wait in memory within a bound of places and one of bytes. A run and a namespace have a
// share of what is free, so a flood of one keeps no results of others out. What finds no room goes
// back to NATS, each with a wait that grows with what its namespace has waiting there.
//
// # Orphans
//
// A result of a run that the cache does not have waits among the orphans, where runs have shares.
// It is delivered when the watch tells of the run.
// The cache may lag, so only a live list that began after the result came may say that the run
// does not exist; then the result is stale and acked. That is the one verdict which a stale cache
// could make wrong.
//
// # The index
//
// The Index has one entry per existing run, fed by the informer, and a Tombstone of each deleted
// run: what it may have left behind, until a pass over its name has removed it.
package results
