// SPDX-License-Identifier: Apache-2.0

// Package gc removes what runs left behind in NATS: queued jobs, outputs in the object store, and
// parts of uploads that were broken off.
//
// For example: the operator dies after it wrote that a run is cancelled, and before it took the
// run's jobs back. The next round of the Collector finds the jobs, sees that their attempts are
// over, and withdraws them, so that no worker does useless work.
//
//	Withdraw           what a pass takes back, right after the write that ended an attempt
//	Collector.Deleted  what a deleted run had in flight, and its outputs, from its tombstone
//	Collector.Start    a round every ten minutes: what a crash left, and what no status ever named
//
// A round decides on facts that never change back: the run does not exist, or has ended, or its
// attempt has. It lists what is with NATS before the runs, so a run that is missing from the later
// list is gone, and not new. It leaves alone what is of runs that need a newer operator.
package gc
