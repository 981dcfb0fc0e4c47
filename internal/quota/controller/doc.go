// SPDX-License-Identifier: Apache-2.0

// Package controller keeps the quotas of tenants: how many of their runs may be under way at
// the same time.
//
// For example, tenant acme may have two runs, and both slots are taken. Admit puts a third run into
// the queue. When one of the two ends, Release frees its slot and wakes the third; its next pass
// calls Admit again and gets the slot.
//
// The package stands between internal/quota/store, which counts in Redis without Kubernetes, and
// the run objects, which are the truth. It opens quotas that were never used, wakes the next run,
// counts runs anew when Redis lost its data, and repairs every difference between slots and runs.
//
//	run controller --- Admit, Release, Claim, ReleaseKey ---> Controller ---> store.Store (Redis)
//	webhook ---------- Reserve, ReserveKey ----------->  |   \--> cache; API server: live reads, marks
//	policies --------- PolicyChanged ----------------->  |
//	run controller <-- Wake -----------------------------+
//	                                                     ^
//	                        leader: Start --- resync ----+
//
// # What callers do
//
//   - Read the run; then Claim, if it has an idempotency key; then Admit; then write that it is
//     admitted, with the resourceVersion that was read and the policy and tenant that were asked
//     with (status.admission.policy, status.tenant). All of it again for each try.
//   - Release when the run ended, is gone, was suspended before it was admitted, or is asked for
//     under another policy now; the last two best after a status write that shows it. ReleaseKey
//     the key when the run is gone.
//   - A run that is woken calls Admit.
//
// # Guarantees
//
//   - G4: of the runs of a tenant that are admitted under a policy and have not ended, there are
//     never more than the limit that the last of them was admitted by: whatever processes were
//     paused, for however long, and whatever Redis lost in between. What this rests on: a slot is
//     taken before the write and freed only on facts that never change back (ended, gone, admitted
//     elsewhere); and after a loss nothing that was decided before can be written. The
//     exceptions are under "Limits of this".
//   - No slot and no idempotency key stays with a run that is over for longer than a resync. No run
//     that could be admitted sleeps for longer than that, whatever was lost between the one who
//     freed a slot and the one who waits. Of a run that was deleted while its operator died it is
//     two resyncs.
//   - One idempotency key, one run: of those that are admitted with the same key and tenant, no two
//     exist at the same time.
//
// A child run needs no slot: it is in the slot of its root. A run that claims a parent
// (v1alpha1.WorkflowRun.ClaimsParent) is neither counted nor marked nor woken, whether the claim is
// true or not.
//
// # The register: never used, or lost
//
// The quota says of both that it has no data. The difference matters: opening a quota whose data
// was lost would forget the runs that are in. So all keys that are in use are in a register, which
// is a key of the quota itself (the idempotency keys of tenant "-", which no tenant can be called):
// "<policy>/<tenant>" for slots, "/<tenant>" for idempotency keys. It is lost as anything else is.
//
//	register is closed                 everything was lost         only the leader may rebuild
//	key is in the register, closed     this key was lost           only the leader may rebuild
//	key is not in the register         never used since the register is open: no run is in; the next one that wants
//	                                   in opens it, and one that leaves does not
//
// Opening is begin, enter into the register, finish; in this order. Begin gives a token, the same
// to all who begin at the same time, which is what is entered; only who finds this token in the
// register finishes. So two who open at the same time agree, a key that was opened before is not
// mistaken for a new one, and an opening that a crash left half done is taken up by the next. What
// is lost after begin makes finish fail. A key that is rebuilt is entered under another token
// before it is finished, in one step: so it is in the register whenever the rebuild ends, nobody
// takes it for one that is being opened, and no strike of before hits it.
//
// A key that is found empty at each look for an hour leaves the register: its data is ended first,
// if it holds nothing then, and its entry after it. Nobody has a grant of it then, so it is as one
// that was never used, whatever it held between two looks. A pool stays while its policy is there.
//
// In a Redis Cluster the register may be lost alone, while keys are open elsewhere. Its rebuild
// enters those that admitted runs have. The resync after it enters all that runs ever had something
// of, or wait for.
//
// # Rebuild
//
//	begin      the register, if it is closed; and each key that was lost or that runs have
//	list       all runs, live
//	mark       each run that may still be admitted: a change of its annotation syncopate.dev/admission-rebuilt moves its resourceVersion (of
//	           one that takes none: see internal/quota/resyncs). The answer shows whether it was admitted meanwhile. One that may not be
//	           marked, or needs a newer operator, is counted as if it were admitted. If one has a key that was not
//	           begun: begin it, and list again
//	finish     each key with the runs that are admitted and not over, and idempotency keys with the admitted runs that have them
//	register   last: until here nothing else is opened
//
// and then the resync goes on: it frees what runs have that ended meanwhile, and wakes all that
// lost their places.
//
// A process that was granted a slot before the loss, and is paused before it writes, read the run
// before it was marked: the API server refuses its write. Whoever reads the run later finds the
// quota closed, or open and right. A write that was in time is in the list or in the answer to
// the mark. Runs that were created after the list cannot have been granted anything: all was
// closed by then.
//
// If data is lost again in between, finishing fails, and all begins anew. If only some keys were
// lost, only runs of their tenants are marked. A lost key of a tenant without runs is not finished
// but struck from the register.
//
// # Resync
//
// On the leader, at once and every 30 s; and when asked for: a policy changed, a quota was found
// lost, or Redis did not answer a Release. What another process finds lost the leader learns within
// two seconds: it looks whether the register is lost, or has a wish for a resync. Data that is
// older than what that process has seen may be open to the leader: so the process closes it
// for all. A resync reads what the quotas have, then the cache, so that what the cache has not
// seen is either new or gone; a live list tells which, once one of them is unknown for 10 s,
// or very many are: there is something new, or just deleted, in almost every look. Then, per
// quota, in this order:
//
//	admitted, not over, no slot               Restore, if a live read says so too
//	slot or place of a run that is over       Drop; counted as drift
//	slot or place of a run that waits         marked, read, and taken back, if it is so for 10 s: its policy changed, or it was suspended,
//	elsewhere or is suspended                 and nobody left
//	place of a run that needs a newer         dropped after 10 s, without a mark; its slot stays
//	operator
//	slot, or the next turn, of a run that     as of one that waits elsewhere, if it is so for two minutes, and status does not say that the
//	waits here and does not use it            slot is kept
//	waits, and has no place; or its turn is   woken
//	idempotency key of a run that is gone     ReleaseKey, but not while the run is about to be created
//	nothing, for an hour                      leaves the register
//
// # Limits of this
//
// docs/admission.md#where-the-limit-is-exceeded has the same moments in the words of users.
//
//   - Release for a run that was suspended or that changed its policy is not a fact that never
//     changes back. Whoever decides that and is paused for so long that the run is resumed and
//     admitted takes its slot. A live read right after finds that out, and the slot is given back.
//     For the moment in between one too many could get in.
//   - Two masters of Redis at once: internal/quota/store says what it cannot see of that.
//   - A total is added or removed, and a process that has not seen the edit opens a key that was
//     never used. The next resync has what it let in counted with the others.
//   - A process that has no policy of a run's class asks for no slot: the policy is made together
//     with the run, is away for more than half a minute, or the process starts. Nothing counts that
//     run under a policy that comes later.
//   - GiveUp for a run whose status is refused is no fact that never changes back either. A process
//     that drove the run before, was granted the slot and is paused since writes that it is
//     admitted, if the refusal ends before it goes on and nobody changed the run. It is over the
//     limit by one then, until one ends.
//   - A rebuild takes those for granted a slot that are first in line, of the runs that may not be
//     marked. A process that was granted one for another of them before the loss, as where the
//     limit was higher then, and is paused until they may be changed again, writes that it is
//     admitted: its tenant is over the limit by one until one ends.
//   - Two Redis are in use at once, as by an update to another one that the replicas do
//     not notice by their Leases. Each Redis counts what it gave alone, so the limit is reached in
//     each.
//
// # Rollouts
//
// While an edit of how slots are asked for is tried, each start is asked under what governs its
// tenant in this minute (policy.Admission.At): the same in all replicas, for runs and for the
// webhook. Both strategies may be in use for one tenant, at the edge of a minute: the script that
// decides is the same. The first start of a tenant-minute in a process claims its vote, in one call
// to Redis; internal/rollout/ballot counts it once the minute is over.
//
// # Failure handling
//
// Redis away: errors that say so, from everything but Release and ReleaseKey during a rebuild;
// resyncs are tried after 1, 2, 4 and at most 30 s, and, after a policy changed, a second after the
// last one. API server away: resyncs fail as a whole, and nothing is freed or
// opened on doubt; Admit needs no API server. A run that takes no write at all is passed over, and
// the log names it: what was decided about it cannot be written either. Runs that wait and may not
// be marked, by somebody's word, are counted by a rebuild as if they were admitted under the policy
// of their class: those that are first in line, as many as could have been granted a slot beside
// those that are admitted. So their tenant has less slots, in a pool others may, until such a run
// may be changed, or its process finds its status refused, or the run suspended, and gives the slot
// up. A run that is suspended needs no mark. If no tenant is pinned in such a run, or the mark
// fails otherwise, that keeps a rebuild from its end: no run is admitted on doubt. A resync leaves
// to a run that may not be marked what it has.
//
// # Bounds
//
// One goroutine, Start's, with at most 16 calls at a time under way, and one call to Redis every
// two seconds. A resync costs a call to Redis per quota that is in use or that a run once had
// something of, and one list from the cache; a rebuild one live list of all runs in pages of 50,
// two calls per quota, and one more for each 256 runs, and a patch per run that waits. A release
// looks at about 256 runs, where those that are next turn out to be gone, and leaves the others to
// a resync. In memory: the name of each run that waits, and what a resync reads.
package controller
