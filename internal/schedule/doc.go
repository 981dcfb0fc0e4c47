// SPDX-License-Identifier: Apache-2.0

// Package schedule decides what becomes of the slots of a Schedule.
//
// For example, it is 12:00:03, the cron text is "0 * * * *", and the run of 11:00 is under way.
// With overlap Skip the slot of 12:00 gets a reason, Overlap. With BufferOne it waits. With Allow
// it gets a run.
//
//	settle --> tally --> hold --> due slots --> waiting --> backfill --> history --> report
//
// # Guarantees
//
//   - Each slot gets one run, or one reason. Both are in status before anything is created. A
//     status is written with its resourceVersion, so of two operators that decide at the same time
//     one is heard, and the other decides again.
//   - A run is created for slots in status.starting only, under a name that follows from schedule
//     and slot. So it does no harm to create it twice, also by two operators.
//   - status.decidedUntil only grows, but for a clock that is set back by more than a day. A slot
//     before it is not looked at again.
//   - Slots until a change of spec is seen are those of the spec before, which status.timing has.
//   - The work of a decision is bounded: maxSlots slots, after which it says Again.
//
// Decide is pure: time, runs and what became of creations are its input.
package schedule
