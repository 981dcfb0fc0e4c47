// SPDX-License-Identifier: Apache-2.0

// Package lockpolicy writes the status of LockPolicies: whether a policy is in force, what follows
// from its spec, how the runs that it governs fare, and how far the rollout of an edit is. What a
// policy means is decided in internal/policy, what becomes of a rollout in internal/rollout; this
// is only the shell. Without a rollout nothing reads the status back: runs follow the spec, whether
// or not this controller is there. With strategy Canary they follow status.rollout.
//
// # What is written when
//
//	at once, when a spec changes    observedGeneration, Ready or ClassConflict, effective, rollout
//	at most every 30 s              runs, contention, rollout
//	at most every 30 s, by others   what they counted, in rollout.replicas
//
// A status that would not change is not written, so policies at rest cost no writes. Conflicts are
// between policies, and one list of the runs serves all of them, so there is one request, which
// looks at all policies; hence no two passes at a time.
//
// # Runs
//
// The unfinished runs in the cache are counted by workload class, and a class counts for the
// policy that governs it, by the same rule by which the runs themselves find their policy. The
// counts by class are kept until the next refresh: when a class changes hands, its runs do so in
// the same write.
//
// # Contention
//
// The figures are computed from this process's own metrics, so that status and metrics cannot say
// different things: what was added to the counter of busy retries since the last refresh, per
// minute, and the 95th and 99th percentiles of the waits added to the histogram meanwhile, as
// histogram_quantile estimates them. They are by path, what a lock was wanted for. The sum is of
// run locks only: admission locks are polled every few milliseconds, and would hide them. Each
// replica takes the locks of the runs that it drives; the figures are those of the one that writes
// status. Two samples are needed: for its first 30 s the figures of the one before stay.
//
// # Rollouts
//
// Each pass adds what this process counted (internal/rollout/ballot) to status.rollout.replicas,
// has the rollout decided, and stores both in the write of status that it makes anyway. So a
// decision is one write, and a crash before or after it costs nothing. Events and metrics follow
// the write. One replica decides, the owner of what is done once; the others write what they
// counted. If two decide, as without leader election, they decide the same, and one write is taken.
//
// Runs with a part in a rollout are counted from the cache in each pass. Those that ended and were
// deleted since are in no list, so their deletes are kept until their votes must be there. They
// wake nobody.
//
// A revision is kept as a ControllerRevision before status names it. Where the API server refuses
// that, by a quota say, status is written all the same: it has the content, and the revision is for
// people. RevisionsKept is False then, and it is tried again with each refresh, which no outage
// holds up.
//
// An edit of runLock is tried on runs, one of admission's strategy and lock on tenant-minutes. An
// edit of both makes two candidates: that of runLock first, the other in the write in which that is
// promoted. The controller is there on standbys, too, and writes down the votes of their webhooks.
//
// # Failures
//
// A write refused because the object was changed is repeated a second later, on a fresh read; it
// holds up no other policy. Errors come back with a backoff of at most 30 s. When the metrics or
// the runs cannot be read, the rest is written all the same.
package lockpolicy
