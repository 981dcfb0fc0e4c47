// SPDX-License-Identifier: Apache-2.0

// Package check judges an installation: facts in, findings out. It is pure: no I/O, no clock.
// internal/check/probe collects the facts, and docs/checks.md has a section for each code.
//
//	Facts -> Judge -> []Finding -> Table, JSON, Prometheus, Outcome
//
// # Guarantees
//
//   - Each code that applies has one finding at least, also where all is well. A fact that could
//     not be had gives Unknown, never OK.
//   - The same facts give the same findings, in the order of the codes.
//   - A code keeps its meaning for ever. A code that is not used any more is not used again.
package check
