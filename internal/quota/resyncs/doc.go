// SPDX-License-Identifier: Apache-2.0

// Package resyncs is what the resyncs of quotas and of locks across runs have in common.
//
// Marker makes what was decided about a run impossible to write: after Redis lost its data, and
// before something is taken from a run that others may be about to use. Rest waits for the next
// resync, and looks meanwhile whether it is wanted sooner. Failures says how long that is where one
// failed. Lasts says for how long something is found by each resync.
package resyncs
