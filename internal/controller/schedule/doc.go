// SPDX-License-Identifier: Apache-2.0

// Package schedule starts the runs of Schedules. What becomes of a slot is decided in
// internal/schedule; this is the shell around it.
//
//	Schedule, its runs --> Decide --> status write --> create, cancel, delete runs --> events, metrics
//
// # Guarantees
//
//   - A run is created only for a slot that the stored status names in starting: right after this
//     process wrote it, or after a live read. Runs are named after their slot, so creating one
//     twice makes one.
//   - A run of that name that another made is left alone: the slot has the reason NameTaken. One
//     that is about to go, with an earlier schedule of this name say, is waited for. All of these
//     have one time together: other slots wait with them.
//   - No slot is given up without a live read: it may have its run, whose creation had no answer.
//   - A run that needs an operator of a newer version, as the list or the cache has it, is neither
//     cancelled nor deleted, and stops no schedule. While it is under way it counts as that.
//   - A schedule is driven by the owner of its partition. Two that believe to be it do no harm:
//     status writes have a resourceVersion.
//
// # When it looks
//
// When a schedule changes, when a run of it ends or is gone, and when the next slot is due; after a
// minute at most, since the clock may be set; after ten seconds while a run below one that ended is
// at its clean-up, which counts as under way. One that is held, with no run to be created, is not
// looked at by time at all. A run that comes wakes nobody: the schedule made it.
//
// Who takes over looks up the run that began last, if the cache does not have it: it may be behind
// what the owner before knew when it wrote status.
//
// # Failures
//
// A refused status write is repeated with what is stored by then. A creation that is refused for
// good gives its slot a reason. Others are tried again every 5 s, or as the API server says, for
// spec.catchUp.windowSeconds. Forbidden is one of these: a quota that is full, or a webhook or
// policy that denies, may let the run in later. A creation or a dry run that is forbidden is in the
// condition Ready, and keeps no slot from being tried. The dry run is made again after a minute. So
// is one that is invalid where the template was not at first: a policy of others was changed, and
// may be mended. What else keeps a run from being created for a minute is in the message of Ready.
//
// A slot whose creation failed is given up once a later slot waits to cancel its run.
//
// Steps of a template that status says was accepted are not validated again: that takes a desk, and
// slots would wait for it.
//
// A run that ended and may not be deleted is logged, and is asked about again after ten minutes.
package schedule
