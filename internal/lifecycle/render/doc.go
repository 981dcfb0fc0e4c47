// SPDX-License-Identifier: Apache-2.0

// Package render evaluates the expressions of a run: the inputs of its jobs and child runs, when
// conditions, lists of items, and outputs.
//
// For example, a step has the input {"url": "${steps.fetch.output.url}"}. A View knows what the
// step may see. It renders the input, or names the output of fetch in a MissingError, if that is in
// the object store and was not loaded.
//
//	View         what expressions see of a run
//	Evaluations  a budget, and what the pass evaluated so far
//	Rendering    jobs in flight again, byte for byte as when they were dispatched
//	ChildOf      the same for child runs
//	Needs        what a decision lacks, for the shell to supply
//
// An expression of a step sees steps that have ended. So it has one value, whenever
// it is evaluated.
package render
