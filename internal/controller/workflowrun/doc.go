// SPDX-License-Identifier: Apache-2.0

// Package workflowrun is the shell around the pure core internal/lifecycle: it advances runs.
//
// Each pass over a run is four verbs in this order:
//
//	observe   the run (own last write or cache, whichever is newer), the results in its inbox, its lock, the time
//	decide    lifecycle.Decide, pure
//	persist   ONE status write with resourceVersion and fence; intent is stored before anything leaves the process
//	act       publish jobs, withdraw jobs, settle results, record events; all follow from the persisted state
//
// # Guarantees and how they are kept
//
// One writer (G3): a pass that changes a run holds its lock and writes its fence; a refused write
// (conflict, fence rule) ends the pass with no effect. Cancel, deadlines and other forced ends are
// written without the lock when it cannot be had, with a fence above the stored one, which fences
// out any holder (G7).
//
// No acknowledged result is lost (G1): a result is settled only in act, so only after it is in
// status, or when the core calls it a duplicate or stale; both verdicts rest on facts that never
// change back, so a stale cache cannot make them wrong. The one that could, "no such run", is
// decided on a live list (results.Orphans).
//
// No attempt is dispatched twice: an attempt that is in status and not known to this process as
// published is recovered, that is looked up in JOBS and RESULTS before it is published. This holds
// after a crash at any point between persist and act. A process that is paused at any point, its
// last look at the lease included, is refused by NATS when it goes on: who writes a run that
// another wrote last has all attempts in flight begin a new epoch first (fence; internal/bus/jobs
// says what that is), and whoever is refused ends its lease. While NATS cannot be told, such a
// write waits for a minute; an end without the lock does not. What is written so has no such guard.
// That and the other exceptions, such as a job that NATS has lost while a worker had it, are in
// docs/architecture.md#where-an-attempt-may-go-out-twice. One result counts in any case.
//
// Progress after NATS lost data (G5): an attempt is known as published until the next loss that the
// bus notices. A pass takes the number of losses when it begins and keeps it with what it
// publishes, so a job that the stream before took, while the loss was noticed, is looked up as
// well. All runs that have not ended are woken (WatchNATS). A plain reconnect changes nothing.
//
// Batching: results that arrive while a write is under way wait in the inbox; the next pass
// applies all of them in one write, which begins when package pacing says so. Passes, status
// writes and desks are shared by namespaces: package shares. Status writes that let a run in wait
// for no place.
//
// # Data flow
//
// The parts do not see each other and do not see the Reconciler; cmd/manager joins them. Results
// come from the left, and one pass of the Reconciler goes down:
//
//	bus -> results.Consumer -> results.Router -> results.Inbox, and wake the run
//	informer -> results.Index, children.Wake -> workqueue
//	workqueue -> Reconcile
//	               observe   observe.go      children, results.Batch, leases.Session
//	               decide    decide.go       lifecycle.Decide; asks slots, results.Questions, outputs
//	               (lock)    reconciler.go   leases.Session.Take
//	               persist   persist.go      dispatch.Session.Fence, one PUT; refused.go where it is refused
//	               act       act.go          slots, dispatch, children, results.Batch.Settle, gc.Withdraw, outputs
//	               finished  finished.go     in their place, once the run has ended
//
//	pacing    when the next write may begin          shares    places for passes, writes and desks
//	results   from the bus to the inbox, and back    slots     the quota of the run's tenant
//	leases    the run lock                           outputs   the object store
//	dispatch  jobs to NATS                           children  child runs
//	gc        what runs left behind
//
// A pass decides up to twice per attempt to write, because the lock is taken only if there is
// something to write: first under a tentative lock (leases.Session.Tentative), then under the lease
// that it took.
//
// # Answers before time-outs
//
// Where a decision lacks answers because a time-out is due, the pass asks the stream for all
// results of the run (results.Questions), before it takes the lock. What it finds is a pending
// result without a delivery: it is applied, and its delivery, which comes as well, is a duplicate.
// It reads so many at a time, and goes on where it ended once what it found is in status. While the
// stream cannot be asked the next question waits as long as the bus asks for; a minute after the
// first that failed the core does without. What is found and refused by the API server is not asked
// for again before a wait that grows. No request is made while nothing times out.
//
// Likewise, where the time of a step is over that a signal may end, such as an approval, the pass
// asks for all that was sent (Signals.Ask): its watch may be late. While that cannot be read the
// time-out waits, and nothing else does.
//
// # Large outputs
//
// A pass stores and reads outputs in the object store as its decisions ask for it, before it takes
// the lock (decide). While the store cannot be asked, results with such outputs wait, and go back
// to NATS after their patience; everything else goes on. What a deleted run had there is dropped
// with its jobs; what no status named, by the
// garbage collector.
//
// # After the end
//
// A run that has ended is written once after each edit: status is about its generation then. It is
// deleted when its time is over (expire), unless its deletion is under way. A child run stays until
// its parent has taken its end, and a parent until the clean-up below it is over. A deletion that a
// policy refuses is asked for again every ten minutes.
//
// # Failure handling
//
// Lock busy: the pass ends at once, with the policy's wait until the next (exact where it is
// Fixed), but no later than the first result's budget ends; the lock manager wakes the run earlier
// if it is its turn. Results whose budget (wait.budgetMillis) is over go back to NATS, each with a
// wait of its own. Redis down: the same with waits and a patience of its own, and a breaker keeps
// passes from each waiting for the time-out. NATS down: the attempt stays in status and is
// recovered later. API server away, or not now (no answer, 5xx, 429): workqueue backoff; nothing is
// acknowledged, and results whose patience is over go back to NATS.
//
// API server has no room for the object (etcd's limit, 1.5 MiB): a result that does not fit counts
// as refused, see below, and has three tries at most, those counted that failed for another reason.
// A write without results, or one that ends the run, is followed by an end that needs less room
// (shrink). If not even the least fits, which is only so before the first write, the run gives up
// its place at the gate and is tried again after 5 s, 10 s and so on up to five minutes, until
// there is less metadata or another spec; each try is an event and counted. A new owner knows
// nothing of that, and tries such runs within a minute.
//
// API server refuses a write (4xx): it may be for one of the results in it. Half of them are tried
// at a time until one is refused alone. That one goes back to NATS as a failed delivery, with waits
// that grow up to the policy's maxDelaySeconds; once maxDeliveries of its deliveries have failed,
// it becomes a dead letter. The others are applied meanwhile. A result that is ahead of the run,
// read live, counts in the same way. The count is the bus's, so a restart begins anew. The next
// writes say that the answer of that attempt is a dead letter, until one is taken; only then is it
// put aside (bury). Whoever is the leader then does not look for the attempt in NATS, and so does
// not publish it again. A crash in between leaves the result where it is: it comes again, and is
// tried again. The attempt stays in flight: its time-out ends it, or its answer, redriven. Nothing
// else that makes results wait ever makes a dead letter. A write without results that is refused is
// tried again after 5 s, 10 s and so on up to five minutes (standOff), until the run is edited. If
// it is not admitted, others have its slot, its place in line and its locks meanwhile.
package workflowrun
