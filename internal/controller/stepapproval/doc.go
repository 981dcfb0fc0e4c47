// SPDX-License-Identifier: Apache-2.0

// Package stepapproval makes each StepApproval belong to the run that it decides, by an
// ownerReference, so that it is deleted with the run. Nothing else depends on that: decisions count
// with or without it, and what they do to a run is decided in internal/lifecycle. The plugin sets
// the reference itself; this is for decisions that were created in other ways.
//
// # Guarantees
//
//   - The owner is the run that the decision means (v1alpha1.StepApproval.Means), never another one
//     of its name.
//   - It is an owner without rights: not the controller, and its deletion does not wait.
//     Other owners stay.
//   - Nothing but metadata.ownerReferences is written, and nothing that would not change.
//
// # When it looks
//
// When a StepApproval is made or its owners change, and at all of them when a replica becomes the
// leader. Namespaces take turns: one with thousands leaves places to the decisions of others. The
// run is read live: the cache may not have it yet, or still have the one before. So one look is
// enough. A run that is not there, or is not meant, will not be meant later either, because a
// decision means only runs that were there before it; then the StepApproval is left alone, and
// stays until it is deleted. It is not looked at again.
//
// # Failures
//
// A patch that was refused because the object has changed is made again after a second, when the
// cache has the change. Other errors come back with a growing wait of at most 30 s. A run that is
// deleted between look and patch makes no difference: the garbage collector deletes what belongs to
// a UID that does not exist.
package stepapproval
