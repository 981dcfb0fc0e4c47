// SPDX-License-Identifier: Apache-2.0

// Package expr evaluates the CEL expressions of a run: the conditions of its steps (`when`), the
// `${...}` in job inputs, and the lists of forEach.
//
// It is pure: no clock, no I/O, no randomness. The same text and the same variables give
// the same bytes.
//
// # Variables
//
//	inputs   spec.inputs
//	steps    what is known of each step by its name: steps.fetch.output, steps["sign-off"].output
//	run      facts about the run itself
//	item     one item of a list; only where the caller says that there is one (WithItem, Vars.HasItem, Scope.Render)
//
// An expression that reads item elsewhere is refused when it is checked, as one that reads any
// other name is. There is no variable for the time, for the same attempt rendered again must be
// the same bytes.
//
// All are dynamic: a key that is not there is an error when the expression is evaluated, not when
// it is checked. `steps.?fetch.output.orValue(...)` reads what may be absent. Besides standard CEL
// there are the string functions of CEL's strings extension, but for format (a template does the
// same) because its cost cannot be bounded.
//
// # Templates
//
// A template is any JSON document. In its string values, and not in its keys,
// `${expression}` is replaced:
//
//	"${inputs.n}"            one whole expression: the value keeps its type
//	"page ${inputs.n}"       else text: strings, numbers, booleans and null as they are, lists and maps as JSON
//	"$${inputs.n}"           a literal ${inputs.n}
//
// Braces, quotes and comments inside an expression are those of CEL, so `${ {"a": "}"}.a }`
// is one expression.
//
// # Lists
//
// A list is one template string that is one whole expression, with nothing around it, and whose
// value is a list: Scope.List gives its items as plain values. Each is as deep and as large as a
// template's result may be, and there is a bound for their number and one for all of them together.
//
// Many templates over the same variables, one for each item, are rendered in a Scope, which decodes
// the variables once. So an item costs the same whether there are ten or ten thousand.
//
// # Numbers
//
// A JSON number without fraction and exponent is a CEL int, so it keeps all its digits; every other
// number is a double, and so are whole numbers beyond int64, of which the API server has lost
// digits already (a json.Number may be a uint). So the type of a number depends on its value: what
// stores JSON makes 2 of 2.0. Numbers compare across types (200 == 200.0), and + - * / of a double
// and a whole number is that of two doubles (ADR 31). Two whole numbers divide without remainder,
// as in CEL. A whole double is an index, too. In the output a whole double is written without
// fraction. Timestamps, durations and bytes become JSON text as in protobuf's JSON mapping.
//
// # Bounds
//
// Nobody who can write a run may stall the operator. Length and number of expressions, the cost of
// an evaluation and the size and depth of a result are bounded by the constants of this package.
// Each node of an expression pays before it does something (guard.go): a cost unit for a variable,
// a key, a call, an empty list, 10 and 30 for a list and a map that it makes, as in CEL's
// specification of cost,
// and calls whose work depends on the size of their operands (equality of nested lists, text
// functions) for that, too (internal/expr/budget). What the checker has to find out is bounded
// before: the variables of macros have no types of parts (macros.go), lists, maps and optionals are
// not too deep in each other in the text (typedepth.go), and what the checker copies is counted,
// and bounded by MaxCost for one expression, before it begins (checkcost.go). An evaluation that
// was stopped has no value, even if || would not mind the error.
//
// Every function here is total: it returns an error, it never panics.
//
// # Order
//
// A loop over a map takes its keys in order, numbers by their value and text by its bytes, so that
// the list it makes is the same each time. Keys of a map that an expression makes are text, whole
// numbers or bools.
//
// # Mistakes
//
// Every mistake is one line that names the expression, and, as far as CEL tells, the part of it
// that is wrong and what was found there (finding.go):
//
//	expression "steps.fetch.output.x.y": no such key: y: steps.fetch.output.x is a string
//	expression "inputs.a + inputs.b": no such overload: inputs.a + inputs.b is string + int
//
// It shows keys and types, but no values: these may be secret, and status is not.
//
// # State
//
// The only package-level state is the CEL environment (it takes milliseconds to build) with a
// bounded cache of compiled expressions. It is built on first use, is safe for concurrent use, and
// no result depends on what is in the cache.
package expr
