// SPDX-License-Identifier: Apache-2.0

// Package workflow has the current revision of each Workflow kept, says in its status whether runs
// can follow it, and deletes revisions that nobody needs.
//
// For example: Workflow "report" changes for the twelfth time. The Reconciler makes revision
// "report-0c1f..." and writes status. Within a minute the Sweeper finds eleven others. Ten are
// history; the oldest is deleted unless a run names it.
//
//	Reconciler  on each replica: what it does is the same, whoever does it first
//	Sweeper     in one replica: marks, lists runs, deletes (ADR 49)
//
// # Guarantees
//
// A revision that a run names is not deleted, while that run exists. A revision that a run is about
// to pin is not deleted: status.retiring has it before the runs are listed, and a run that was
// created later sees that. An object that changed since the Sweeper listed it is not deleted.
//
// # Failure handling
//
// Whatever fails is tried in the next round. A round that ended after it marked revisions is
// followed by one that begins anew: it marks the same ones, or takes the mark away.
package workflow
