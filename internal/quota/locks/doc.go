// SPDX-License-Identifier: Apache-2.0

// Package locks keeps locks across runs: semaphores and mutexes, for runs and for their steps.
//
// For example: spec.locks of a run names mutex deploy-eu. Take gives it to the run, with a
// fence, and the write that admits the run has both in status. A second run gets a place in the
// queue. When the first run has ended, Drop takes the lock from it and wakes the second, whose
// next pass takes it.
//
// What is taken together has one ticket: "<uid of the run>" for spec.locks, "<uid>/<step>" for
// those of a step. A ticket has all of its locks or none, by one script in Redis
// (internal/quota/store): who waits holds nothing.
//
//	run controller --- Take, Drop ---> Controller ---> store.Store (Redis)
//	semaphores ------- SemaphoreChanged -> |   \--> cache; API server: live reads, marks, status of semaphores
//	run controller <-- Wake ---------------+
//	                                       ^
//	one replica: Start --- resync ---------+
//
// # Guarantees
//
//   - By the status of all runs, no lock is ever held beyond the limit that its last holder asked
//     with, whatever processes were paused, and whatever Redis lost.
//   - Each hold has a fence that is greater than all earlier ones of its lock.
//   - No permit stays with who is over, as are the child runs inside of it, for longer than a
//     resync, 30 s, and nobody who could have its locks sleeps for longer. Of a run that was
//     deleted while its operator died it is two resyncs: see resyncs.UnknownTime.
//   - Locks that are taken together are never part of a deadlock. A run that holds spec.locks, or a
//     step that holds its own and has items or a child run, may need a step inside of it that waits
//     for others: where those wait for each other, a resync refuses the youngest (LockDeadlock), of
//     each ring that has nothing to do with the others.
//     Who is behind another in an Ordered line waits for what that one waits for.
//
// # When a hold is dropped
//
// Only on facts that never change back. A run or a step that is over, with all child runs inside of
// it, is one: a child learns from the end of its parent that it is to clean up. Status does not say
// that a hold is kept for that, so a loss of data right then ends it. The other fact: a grant can
// be written only with the resourceVersion of the run for which it was asked, and the script
// remembers that version, which only rises. So once the run was seen, or written, at a newer
// version without the hold, nobody can write it any more. (The model's mutations anyVersion and
// lowVersion show what happens else.)
//
// # When a resync reads
//
// What a resync reads is not of one moment: places first, then holds. So whoever gets its locks
// meanwhile is in it, and who was in neither asks again. (The model reads both apart.) Only a ring
// of waits needs one moment: it could be put together from two, and a step is refused for good. So
// where a resync finds a ring it reads again, and looks at what lasted, by the limits and runs of
// after that. It refuses the wait that it judged: a ticket that was granted its locks since, or
// waits for others, is left alone.
//
// # When Redis lost its data
//
// All locks have one epoch (see store.Store). Without one nobody gets anything; "never used" is the
// same as "lost". The resync begins a rebuild, lists the runs that are not over live, and marks
// each of them that may have locks: a change of an annotation moves its resourceVersion, so nothing
// that was granted before the loss can be written after (of one that takes no annotation: see
// internal/quota/resyncs). The answers say what is held, which is entered, and the locks are open.
// (The model's mutations noMark, noHolds and openEarly.) The replica that makes resyncs looks every
// two seconds whether the data is lost, whichever replica has found out.
//
// A run that may not be marked, by somebody's word, keeps what it may have been granted: what its
// status holds, and all locks of what may have begun, is not over and holds nothing. It is one hold
// for all items of a step, with all permits of a semaphore. Such a hold is reserved: others wait
// for it, whatever onBusy says, and nobody is cancelled for it. A resync takes what status does not
// have once the run may be marked, and leaves it until then; a run that was refused is tried again
// after two minutes. A run that needs a newer operator is not marked, and is such a run, too; a
// resync takes nothing from it. Which locks those are the run says, or the revision that it
// follows. Where a key is an expression, or no revision is pinned, nobody can say, and all locks
// stay shut: none is given on doubt. The run is not told of this hold when it asks: it may only
// have waited, and another may hold the lock. A suspended run was granted nothing. (The model has
// no such runs.)
//
// Fences need no memory of locks: a fence is the last one plus one, or the milliseconds of Redis'
// clock if those are more; and a rebuild goes on above all fences that status has, which are those
// of holders. The fence of what may have been granted is above those, too, and at least the
// milliseconds of the operator's clock. So a fence may fall if Redis loses its data, its clock is
// then behind what it was, and whoever had the higher fence has ended before.
//
// # Slots and locks
//
// A run asks for its tenant's slot first and for its locks last, right before the write. A run
// whose locks are busy gives the slot back, and waits in the queues of its locks only; one that
// gets no slot, or no answer about one, keeps no place there. So a run that waits keeps nothing
// from anybody, but for one that lost its turn there as it had no slot: first in the queue
// again, it keeps the slot that it has then, so that it begins.
//
// # Rates
//
// The rate of a semaphore says how many holds of a key may begin in a period. Redis alone has the
// times at which the last ones began: status need not, since a hold that is over gives nothing
// back. So data that was opened anew may have forgotten as many as may begin, and nobody begins for
// one period after that, except of a semaphore that is younger. The first in line for a rate is
// told when to ask again; the others have no time of their own. Whenever the line moves, the first
// of it is woken. The resync wakes some that have to wait on: they ask, and write nothing.
//
// # Bounds
//
// A rate has at most 1,000 starts in a period of at most an hour. At most 10,000 wait for a lock.
// A take or a drop costs O(log n) and a look at up to 256 that wait for each of its locks; a
// resync looks at all. All of Redis waits for a script: so what many tickets have is dropped some
// 16 locks at a time, and a resync reads what there is about 1,000 tickets at a time, and makes
// one list from the cache. Its look for rings takes as long as there are holds and waits, and
// steps of runs that ended cost it nothing. A resync that Redis does not answer is made again
// after 1, 2, 4 and at most 30 s, since what it asks may be the cause; one that fails otherwise
// after a second, but not for a status of a semaphore that is refused: that is written by the next
// one. What a resync cannot know yet, such as a semaphore that changed, has it tried a second
// after the last one. A rebuild makes one live list, and a patch for each run that may have locks
// and is not over. It enters 256 holds at a time, and counts what the closed data holds about
// 1,000 at a time; the last call opens the data. A run with steps of its own and no locks costs
// nothing. One that follows a Workflow does not say whether that has locks: a rebuild marks it.
package locks
