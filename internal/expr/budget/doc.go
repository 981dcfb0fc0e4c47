// SPDX-License-Identifier: Apache-2.0

// Package budget bounds the work of CEL evaluations.
//
// For example, `inputs.text.matches("a+")` takes one cost unit for each of its three nodes, and
// units for the call: 250 for each byte of the pattern, 150 for each state of its automaton, and 10
// for each byte of the text and state that can be live there.
//
//	Step     each node pays cost units before it does something
//	Charges  a call whose work depends on the size of its operands also pays units, before it is made
//	Compile  a pattern of something else than CEL pays in the same way; Match pays what it reads
//	Sum      lists in a row, of which each element costs the same to look at
//
// A budget that is spent stops the evaluation: Step and the charges return false from then on, and
// Err has the reason.
//
// CEL has a limit of its own. It is not used for two reasons: it looks at a call after the call was
// made, and it keeps its books on a stack that it searches, so that takes time in the square of the
// turns of a loop.
//
// The package knows CEL's values, and neither expressions nor the interpreter: internal/expr
// decorates that (guard.go).
package budget
