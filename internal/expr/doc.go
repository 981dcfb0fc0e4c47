// Package expr evaluates the CEL expressions of a run: the conditions of its steps (`when`) and the `${...}` in job inputs.
//
// It is pure: no clock, no I/O, no randomness. The same text and the same variables give the same bytes.
//
// # Variables
//
//	inputs   spec.inputs
//	steps    what is known of each step by its name: steps.fetch.output, steps["sign-off"].output
//	run      facts about the run itself
//
// All are dynamic: a key that is not there is an error when the expression is evaluated, not when it is checked.
// `steps.?fetch.output.orValue(...)` reads what may be absent. Besides standard CEL there are the string functions of
// CEL's strings extension, but for format (a template does the same) because its cost cannot be bounded.
//
// # Templates
//
// A template is any JSON document. In its string values, and not in its keys, `${expression}` is replaced:
//
//	"${inputs.n}"            one whole expression: the value keeps its type
//	"page ${inputs.n}"       else text: strings, numbers, booleans and null as they are, lists and maps as JSON
//	"$${inputs.n}"           a literal ${inputs.n}
//
// Braces, quotes and comments inside an expression are those of CEL, so `${ {"a": "}"}.a }` is one expression.
//
// # Numbers
//
// A JSON number without fraction and exponent is a CEL int (uint above the range of int64), so it keeps all its digits;
// every other number is a double, and so are whole numbers beyond uint64. Numbers compare across types (200 == 200.0). In
// the output a whole double is written without fraction. Timestamps, durations and bytes become JSON text as in
// protobuf's JSON mapping.
//
// # Bounds
//
// Nobody who can write a run may stall the operator. Length and number of expressions, the cost of an evaluation and the
// size of a result are bounded by the constants of this package. CEL's own cost limit looks at a call after it was made;
// calls whose work can grow much faster than that (equality of nested lists, text functions) are therefore
// measured before they are made (guard.go). Every function here is total: it returns an error, it never panics.
//
// # State
//
// The only package-level state is the CEL environment (it takes milliseconds to build) with a bounded cache of compiled
// expressions. It is built on first use, is safe for concurrent use, and no result depends on what is in the cache.
package expr
