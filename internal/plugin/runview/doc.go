// SPDX-License-Identifier: Apache-2.0

// Package runview says what people ask about a run: TreeOf shows its steps as a tree, Why says what
// it waits for, since when, and when that is looked at next, or how it ended. Both are pure
// functions of objects and the time, without clock or I/O; the same input gives the same bytes.
//
//	WorkflowRun ──┬──> TreeOf(run, now, kids) ──> Tree ──> text, JSON
//	              └──> Why(run, policies, ...) ──> Answer ─> text, JSON
//	LockPolicies ─────────┘
//
// # Guarantees
//
//   - Both are total: a run that was never looked at, one whose spec cannot be run (cycles, unknown
//     steps), one that a newer operator wrote (unknown phases and reasons) are shown as far as they
//     make sense. Each step is shown exactly once.
//   - Why explains every reason of api/v1alpha1. Of an unknown one it shows reason and message.
//   - The moment of the next look is the Wake of lifecycle.Decide for a status that has nothing to
//     be done about it.
//   - No text holds control characters, so that a worker's message cannot move the cursor of a
//     reader's terminal; and it is bounded.
//   - JSON fields are only ever added.
//
// Times are UTC. Durations of steps compare times of the operator with those of the reader's clock,
// so they are never below 0.
package runview
