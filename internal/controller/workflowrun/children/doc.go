// SPDX-License-Identifier: Apache-2.0

// Package children creates the child runs of a run, adopts those that exist, and wakes relatives.
//
// For example: a step is a run of its own. Status names the child first, without a uid. After that
// write the child is created under the lock, and the next write has its uid.
//
// # Creating
//
// A child that status names without a uid is created by this process or by whichever finds it so.
// What became of that is remembered (State), and is in the next write. Whatever the API server
// refuses with, the name is looked at: the run that has it is the child only if it is owned by the
// parent and has the spec that a dry run gives the child, or, where that is refused, the one
// that was asked for. One that nobody can compare is looked at for compareBound, and then the
// step fails, if the last refusal is somebody's word (passes.Refused). Where there is none, and the
// API server refuses for good (Invalid, BadRequest), or the inputs of the child read an output that
// is lost, the step fails. Anything else is tried again, after createDelay, and ever later while
// somebody refuses it. A full quota counts all children: one is tried for all of a parent.
//
// A creation takes as long as webhooks do, and has its own time (createTimeout), beside the pass
// and off the lock (flight). It keeps its place until it is over, so there are AtOnce of them at
// most. The pass that began it waits for patience, and later ones do not; a pass is made when a
// creation is over that was not waited for. One that is late does no harm: no child begins before
// its parent's status has its uid. A run that finds no place keeps its turn in the line of its
// namespace (turn), beyond its pass, and is woken when it comes. A place that it leaves empty is
// given to the next, and it takes one that another run leaves empty when its pass comes.
//
// # Observing
//
// Parent and children are read from the cache where that has the right uid, else live: only a live
// read says that a run is gone.
//
// # Waking
//
// The informer's events wake relatives of a run (Wake): the parent when a child is new, ends or is
// gone; a child when its step changed; all that claim a run as their parent when it is suspended,
// shut down, changes its phase, or is gone. A watch has the events of all runs in order, so a child
// that is in the cache was named by a version of its parent that is there, too.
package children
