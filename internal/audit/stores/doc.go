// SPDX-License-Identifier: Apache-2.0

// Package stores takes the snapshots that internal/audit compares, and mends what is safe.
//
//	Look   Redis and NATS first, then the runs, page by page; what cannot be read is Unread
//	Twice  a look, and if that found something, a pause and another look
//	Mend   asks the API server again about the run, and then changes one store
//
// # Guarantees
//
//   - Look changes nothing that another reader would not, too.
//   - Each part has bounds: 100,000 runs, 200,000 subjects of a stream, 100,000 run locks, 10,000
//     quotas. More than that is Unread. Of a run only what is compared stays in memory.
//   - Mend makes each decision anew on a live read of the run, so that a finding that is old by
//     then does no harm. What it drops is of a run that is gone or has ended, or is not needed any
//     more by what the status says; what it enters is what the run's status says. It publishes
//     nothing.
//   - The one exception is the lock of a run under way: Mend looks at it again, and frees it by its
//     token if it has no end, or a fence below that of the run.
package stores
