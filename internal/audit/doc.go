// SPDX-License-Identifier: Apache-2.0

// Package audit compares what three stores say of the same runs: the API server, Redis and NATS. It
// is pure: a snapshot in, findings out. internal/audit/stores takes the snapshot and mends, and
// docs/audit.md has a section for each kind of finding.
//
//	Snapshot -> Compare -> findings -> Confirm(those of 90 s before) -> findings that are told
//
// # Why twice
//
// The stores are read one after the other, while they change. Example: a slot is taken after the
// slots were read, and its run is admitted before the runs are read. So one look shows differences
// that never were. Redis and NATS are read before the runs. Then:
//
//   - Whatever has something of a run that is missing from the runs, or has ended, is left over: a
//     run that is gone never comes back, and an end is an end.
//   - What is missing in Redis or NATS may be on its way. It is told if the run says in both looks
//     that it must be there. Then the run has said so since the first look, and the second look
//     into the store came after that.
//
// The looks are 90 s apart, which is more than any write between two stores takes. What the
// operator itself repairs by its resyncs, every 30 s, is gone by then, too: of a run that was
// deleted the second one takes what it left.
//
// # Guarantees
//
//   - A store that could not be read gives no finding: Unread says so.
//   - A run that needs a newer operator gives no finding but by its existence.
//   - The same snapshots give the same findings, in the same order.
package audit
