// SPDX-License-Identifier: Apache-2.0

// Package views is what the pages of the console show: typed objects in, models of pages out. It is
// pure: no I/O, no clock; the same input gives the same model.
//
//	rows of runs ──> Runs          the list, filtered and paged
//	a run        ──> Run           why it waits, graph, time line, steps, events, conditions
//	policies     ──> Policies      what follows from them, contention, arms of rollouts
//	runs under way, semaphores ──> Tenants
//	schedules    ──> Schedules
//	partitions   ──> Replicas
//
// What is said about a run comes from internal/plugin/runview, as in kubectl syncopate.
//
// # Guarantees
//
//   - Each function is total: runs that were never looked at, that cannot be run, or that a newer
//     operator wrote are shown as far as they make sense.
//   - Each text is bounded and has no control characters, and so is each list. Templates escape.
package views
