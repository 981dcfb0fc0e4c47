// SPDX-License-Identifier: Apache-2.0

// Package template says what a run does that follows a Workflow. It is pure.
//
// For example: Workflow "report" has a parameter region and three steps. A run says
// workflowRef: {name: report} and inputs: {region: eu}. Its effective spec is its own, with the
// three steps, and inputs with the defaults of the parameters that it did not give.
//
//	Encode     spec of a Workflow -> canonical JSON, and the revision: a hash of that
//	Decode     what a ControllerRevision has -> Content; refused if its hash is another
//	Content.Inputs     given inputs -> with defaults, or what is wrong with them, by field
//	Content.Effective  run -> the run as the core sees it
//	Content.WithDefaults  inputs that were checked before -> with defaults, unchecked
//	Content.Problems   what is wrong with the parameters themselves
//
// # Bounds
//
// Patterns are users' work, so compiling them has a budget, and matching has another: in all, tens
// of milliseconds. Nothing compiled is kept, so Content takes no more than its text does.
//
// # Guarantees
//
// Equal content has an equal revision, whoever encodes it, and different content has another: the
// hash is over canonical JSON. So a revision that was lost can be made again, and two who make one
// at the same moment make the same. Content that somebody else put under the name of a revision is
// not taken: Decode hashes what it reads. A field that this code does not know is part of the
// hash, and is not part of Content.
package template
