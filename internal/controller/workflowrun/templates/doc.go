// SPDX-License-Identifier: Apache-2.0

// Package templates gives a run that follows a Workflow its steps.
//
// For example: a pass begins over a run that says workflowRef: {name: report}. Its status pins no
// revision yet, so Of reads the Workflow live, has its revision kept, and returns the run with the
// steps of the template, and what is to be pinned. In later passes Of takes the revision that
// status pins from the cache, or reads it.
//
// It is the one place where the spec of a run is read from somewhere else. What it returns is not
// to be written: the pass stores the spec that it read.
//
// # Guarantees
//
// A run is resolved once. Of a run that pins a revision the Workflow is read in one case only: the
// revision is gone, and the Workflow has that content still; then the revision is made again.
//
// Inputs are checked until the run is initialized.
//
// A revision that a run pins exists, and nobody is about to delete it: Of refuses one that
// status.retiring of the Workflow names, in a read that is younger than the run (ADR 49).
//
// # Bounds
//
// The cache is bounded in bytes, with a share for each namespace: package share. What does not fit
// is read in each pass. The runs that wait for a Workflow are remembered so that its creation wakes
// them, for as long as they wait, a minute at most.
package templates
