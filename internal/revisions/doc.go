// SPDX-License-Identifier: Apache-2.0

// Package revisions keeps the revisions of Workflows as ControllerRevisions.
//
// For example: Workflow "report" changes. Whoever sees that first, its controller or a pass over a
// run that is new, encodes the content (internal/template) and creates ControllerRevision
// "report-0c1f...". Another one who does the same finds that it exists.
//
//	Store.Ensure  Workflow -> its current revision, made if it is not there
//	Store.Has     whether a revision exists
//	Store.Load    what a revision has; ErrGone: it does not exist, or is something else
//	Store.Raw     the same as JSON, with fields that this version does not know
//	Of            the Workflow and revision of a ControllerRevision, if it is one of ours
//
// Nothing is read from a cache: the content of all revisions of a cluster is too much to keep in
// each replica, and each is read about once. Who deletes a revision is a matter of
// internal/controller/workflow.
package revisions
