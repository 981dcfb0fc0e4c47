// SPDX-License-Identifier: Apache-2.0

// Package lifecycle is the pure core: it decides what happens to a WorkflowRun.
//
// Decide maps (spec, status, results, lock, now) to (status', effects). It does no I/O, has no
// clock, goroutine or logger, is deterministic and total: for any input it returns a decision,
// never an error, and it does not change its input. Whatever differs between two calls differs
// because a fact differs.
//
//	                  ┌──────────── observe ────────────┐
//	run, results, lock, now                             │
//	        │                                           │
//	        ▼                                           │
//	     Decide ──> Decision.Status ──persist──> API server (resourceVersion, fence)
//	        │                                           │
//	        └─────> Dispatch, Withdraw, Create, Verdicts, Events ──act, only after the write was accepted──> NATS, API server
//
// # Contract with the shell
//
//   - When Changed is set, Status is persisted in one write guarded by resourceVersion. If the
//     write is refused, no effect of the decision happens; the shell observes and decides again.
//   - Effects follow the write and are idempotent. Intent (attempt number, job id) is in status
//     before a job leaves the process, so a crash between write and act is repaired from status:
//     Unanswered names the attempts, the bus looks for job and result of each, and what is nowhere
//     is rendered again, byte for byte, and published. What cannot be rendered any more, say
//     because an output that it reads is not in the object store, ends as failed (Input.Lost).
//   - To publish an attempt again needs a status that this process wrote itself under the lease it
//     holds (status.lock.leaseID), and a look after that; it stops when that lease is lost. A new
//     holder that knows nothing about attempts may look first. Unless NATS has all of them, or
//     their answers, it then persists Decision.Status, even if Changed is not set: that raises the
//     fence. Otherwise an earlier holder may still end the attempt and withdraw its
//     job; the new holder, on its older view, finds neither job nor result and publishes an attempt
//     that a worker is busy with. (Found by the model; the mutation noClaim shows it.)
//   - A process may be paused before any publish, and go on when others have recovered, applied
//     and acknowledged. So the shell fences the attempts in flight (Outlines) before it writes a
//     run that another wrote last, or an end without the lock: NATS refuses then what is
//     published on older knowledge. (The model pauses processes at any time; the mutations
//     noFence and noBar show it.)
//   - Decide is asked until a decision lacks nothing, or what it lacks cannot be had now.
//   - A result is acknowledged only if its verdict is Applied, Duplicate or Stale, and only after
//     the write (if any).
//
// # Run
//
//	             gate open                      all steps over
//	Pending ────────────────────> Running ──────────────────────────────────────> Succeeded
//	   │  ▲ └─ gate ─> Queued ──────^ │  ▲  └── a step Failed ──────────────────> Failed
//	   ▼  │    shut    suspend/resume ▼  │  └── activeDeadlineSeconds ──────────> TimedOut
//	Suspended                     Suspended └── shutdown ───────────────────────> Cancelled
//
// A step that fails with onFailure Continue is over, as those are that are Succeeded or Skipped. A
// run also ends as Failed where its outputs cannot be evaluated (OutputsFailed), its object has no
// room (ObjectTooLarge), or its Workflow is gone (WorkflowNotFound).
//
// Where spec.finally has steps, a run that was admitted does not end at once: status.ending says
// how it will, unfinished steps are cancelled, and the finally steps run, until they are over or
// finallyTimeoutSeconds passed. They all are tried, whatever becomes of one; those that depend on
// one that failed are cancelled in the end. Then the run ends as announced, but a success whose
// clean-up failed is a failure. Once announced nothing changes the outcome but that and Terminate,
// which ends the run at once. A run that is being deleted ends as by Terminate: its object may stay
// for a while, and nothing runs meanwhile.
//
// Ends are absorbing: Decide never changes a finished run. Pending and Queued also end as Failed
// (InvalidSpec, TenantNotAllowed, ClassNotAllowed, TopicNotAllowed, DuplicateRun,
// IdempotencyConflict, WorkflowNotFound, ObjectTooLarge), TimedOut (QueueTimeout) and Cancelled.
// What refuses spec.locks ends them, too: as Failed (LockBusy, LockQueueFull, LockUnusable),
// TimedOut (LockQueueTimeout) or Cancelled (Superseded).
//
// # Admission
//
// A run that is neither admitted nor suspended needs its idempotency key, if it has one, and its
// tenant's gate. Both are facts (Input.Claim, Input.Gate) which the shell asks for when a decision
// needs them, after it has read the run: so whatever changed the run since, the write of a grant
// that is out of date is refused by its resourceVersion. What is not known admits nobody. The
// message of Admitted=False has the place in line of the moment when the reason came up; it is not
// rewritten as the line moves. Locks of the run are asked for last, with an open gate; without one
// the run keeps no place in their queues, where it would keep permits from others.
//
// # Step
//
//	Pending ──when false──> Skipped
//	   │ deps done, place free            Started            result
//	   ├──────────────────> Dispatched ─────────> Running ──────────> Succeeded | Failed
//	   │                      │   ▲ attempt+1        │
//	   │                      ▼   │ nextAttemptAt    ▼
//	   │                     BackingOff <── failure, time-out, Retry
//	   └──expression error──> Failed                        any unfinished ──run ended──> Cancelled
//
//	approval:  Pending ──> WaitingForApproval ── the first StepApproval, or onTimeout ──> Succeeded | Failed
//	delay:     Pending ──> Delayed ── delayedUntil ──> Succeeded
//	child run: Pending ──> Running, named ──> with its uid ── its end, or that it is gone ──> Succeeded | Failed
//
// A step has a place of maxParallelSteps while it is Dispatched or Running, or between its attempts
// with locks. Approvals and delays need no worker: they take no place, and delays go on
// while the run is suspended. What differs between them is in package waits. A failed step ends its
// run, unless its onFailure is Continue: then those that depend on it go on as if it had succeeded.
//
// Expressions of a step see the steps on which it depends, directly or not, and no others; those of
// finally steps see all of spec.steps, too, and the announced end. Those have ended when the step
// is looked at, so an expression has one value, whenever it is evaluated: that is what makes JobOf
// exact. spec.outputs see all of spec.steps, and are evaluated when the last one is over.
//
// # A step for each item
//
// A step with forEach evaluates its list once, when it starts, and is Running until all items are
// over. An item has attempts of its own, with job ids of its own, and is in status only while it
// is under way: items at the same point (phase, attempt, failures, times) are one group. Items
// from begun on did not begin; those before, and in no group, are over. An item that backs off
// keeps its place.
//
//	              place free             Started              result
//	from begun on ──────────> Dispatched ──────> Running ──────────────> over: counted, its output kept
//	                            │  ▲ attempt+1     │
//	                            ▼  │ due           ▼
//	                           BackingOff <── failure, time-out, Retry
//
// What is kept is bounded. 2,000 items of a run are under way at most. Where there would be too
// many groups, those with the same history are made one with the later time, then those that back
// off, with the higher attempt and fewer failures. So an item may time out later: after twice its
// time at most. Its next attempt may be later, by twice the longest wait of the step's items at
// most, and it may be tried more often than asked. Those in flight with different histories stay
// apart: where these would be too many groups, items that would add one wait until others are over,
// and new ones have room kept for them. Numbers of attempts may be left out, but none is
// used twice. Items that fail together are tried again together.
//
// The outputs of all items that succeed with one decision go to one place: into status while they
// are few, else into one object. Nothing succeeds before its output has its place. When the last
// item is over, they become the step's output.
//
// What a decision renders is in its budget, as all expressions are; the rest goes out with the
// next one, at once. The list has one value for what its expression sees, so the shell hands it
// back (Lists); without it, it is evaluated again. So have the keys of locks that are waited for.
//
// With FailStep the first item that fails for good ends the step when all results of the
// decision were applied, and the jobs of the others are withdrawn. With Collect the step
// succeeds when all are over.
//
// # What expressions may take
//
// The decisions of one pass share a budget: cost units of expr, and bytes of what is rendered. What
// is over it is left for the next write (Cut), in order. The shell may let a pass evaluate more,
// on top of what is known (Evaluated.Cost). As long as nothing began with a decision,
// and nothing is lacking, one more expression is evaluated, so each write gets ahead; what that
// takes beyond the budget is what one step may take. Input.Evaluated has what the decisions of the
// pass before gave, with a hash of what each place saw: equal sights give equal values. A Quick
// decision stops where it would be noticed, and a Glance before the first expression; the shell
// makes the same decision again then, or none. To compile counts, too: a new run whose expressions
// take longer than MaxQuickSpecCost is left as it is, without a status. A Quick decision also
// compiles no more than MaxQuickCompiled: what reads an output that is not loaded yet is compiled,
// and not evaluated.
//
// # Child runs
//
// A step that is a child run takes a place, and has no attempts: its phase is Running from the
// write that names the child. That write comes first (Decision.Create); whoever has the lock
// creates what status names without a uid, as often as it takes: ChildOf renders it again, and the
// shell tells a child that is there from a foreign run. Input.Children says what became of it; the
// next write has its uid, which never changes. A child that is gone then is gone for good. Its
// outputs become the step's, under the parent's name.
//
// The child's side is Input.Parent: what the parent that a run claims says of it. A child is let in
// when its parent's status names it, by name and uid; nothing else does that, and no gate is asked.
// It has no slot: its root has. It ends when its parent does not wait for it any more (also without
// the lock). Until then it is suspended while its parent is. All of that is pulled: each level
// reads the one above, so a crash has nothing to forget. Before its first write a child is left
// alone for two seconds, in which its parent names it: that saves a write.
//
// The specs of all levels, five at most, are validated at first sight of the run at the top. A
// child is validated again by itself, for what its namespace permits, and for the Workflow that
// it follows; and by what webhooks, policies and quotas of the API server say, which the core
// does not know.
//
// # Order within a decision
//
// Decide lists the stages in their order: results first, then what ends a run, then what begins.
// So a result that races with a time-out or a deadline counts. So does a wait that was over in time
// when the deadline is looked at late, as after a fail-over: a delay, or an approval that nobody
// decided on. What comes after it would begin too late. A run whose last result arrives
// together with spec.shutdown ends as Succeeded: the work is done, and saying Cancelled would be
// false. All results of a batch are applied before one of them ends the run; so are those to
// attempts that began ahead of status, see below. Signals and ends of child runs at hand are
// applied before a failed step ends it, too: a clean-up goes by what they said. Only the end of a
// run that is being deleted comes before child runs.
//
// A decision may have to leave results, or ends of child runs, to the next one, because their
// outputs are more than it may load. Under the lock a failed step, Cancel and the end of the parent
// wait for these: nothing begins, what is known is written, and the next decision comes at once. It
// ends the run if it can apply none of them, so what cannot be loaded holds up no end. A deadline
// waits as for any answer.
// Terminate, deletion, a step whose expression fails as it begins, a run without room for its
// status, and an end without the lock do not wait.
//
// # Answers before time-outs
//
// A time-out of an attempt is decided only when the stream of results has no answer to it. Not all
// that it has was delivered: a leader may have died, and what was given back with a delay comes
// later. So where attempts in flight are about to time out, by themselves or by a deadline of the
// run, Decide leaves that undone and says so (Needs.Answers), and decides the rest. The shell asks
// the leader of the stream for all results of the run, once for however many time-outs, adds them
// to Results, and says as of when (Answers.AsOf): that covers the time-outs due by then. What was
// found counts as if it had been delivered, Started too: it moves the time-out. A result that came
// late counts if nobody had decided before, delivered or found: no two clocks are compared.
//
// An answer at hand whose output waits for the object store keeps its attempt from timing out, too,
// and the run. So do other outputs of what is over: of a child run, an approval, all items of a
// step, or the run. While a deadline of the run waits, nothing begins. What cannot be had is waited
// for at most a minute from when the shell first could not have it (Answers.MissingSince); status
// says why. That minute begins anew only while the stream has more answers than it gave at a time,
// and those get into status: an answer that waits for the object store is no news when it is given
// again. Then the shell asks once more, and what it still cannot have time-outs are decided
// without, and say so. Cancel, Terminate, suspension and delays never wait.
//
// A step that waits for a signal, as an approval does, times out once the shell has read where
// signals are stored what was sent by then (Needs.Signals, Input.SignalsAsOf): Input.Signals are
// what it heard of, and that may be late. Until it has, that time-out waits, and nothing else does.
// A deadline of the run that would end such a step waits for that, too, for the same minute at most
// as for answers. A signal that was sent after the deadline does not count.
//
// # Running ahead
//
// With Checkpoint.Coalesced the shell may publish Dispatch before it writes Status, where Decide
// says so (MayLag). The next decision is made on that unwritten status. Its results wait in the
// stream, so whoever takes the run over has them, too, and begins the same jobs: a decision may lag
// only if every replay of the same results makes it, in any order and in any batches.
//
// For example, a succeeds and b begins; b succeeds and c begins; then one write has all of it.
//
//	may lag       a success or Started; first attempts and skips that follow; a failure with
//	              onFailure Continue that is not tried again; the beginning of a run which needs
//	              nobody's word
//	writes first  all that the clock, a person, the lock or another object has a say in: admission by
//	              a quota, retries, waits, time-outs, child runs, suspend, cancel; what ends the run,
//	              and clean-up; items; outputs in the object store; results that are put aside
//
// A run in which a step may have to wait for a place of maxParallelSteps writes all first: which
// one begins depends on the order of results. Times of replays differ; inputs do not.
//
// Say b was answered, too, and the process died before it wrote that b began. Whoever has both
// results decides on both at once, as far as one pass evaluates: b, whose job was out, succeeds in
// the decision that has a succeed. So a deadline, a cancel, or a failed step, ends such a run as if
// status had known of b. A deadline asks the stream also where nothing is in flight, if a first
// attempt may have begun ahead. After it, only those answers to such attempts count that the stream
// stored by then: that alone says that the attempt began before the deadline. Cancel does not ask,
// and what is at hand counts. Steps with forEach, finally steps, second attempts and runs with
// locks are never ahead, so none of this is for them.
//
// Status says that the run may be ahead of it (checkpoint), and keeps that for good.
//
// # Without the lock
//
// When the lock is busy or Redis cannot be used, results wait (verdict Waiting) and steps stay as
// they are. Only shutdown, deletion, the parent's end, activeDeadlineSeconds, finallyTimeoutSeconds
// and queueTimeoutSeconds still end the run, or announce its end (guarantee G7), with fence =
// status.fence + 1 and a fresh lease id, which fences out any holder. Results at hand, or found in
// the stream, count in such a write, as do signals and ends of child runs, and may make it another
// end: after it they would have no effect. For them alone nothing is written. If Redis cannot be
// used, a condition says so, written without touching fence and lock. That write starts the queue
// clock of a run which nobody has seen before.
//
// A lease that goes on without the lock (onFailure Continue) is LockHeld: what it writes and
// dispatches is that of a holder, and the API server is the judge of it.
//
// # What is said of the lock
//
//	RunLockRenewed                                       RunLockAbandoned
//
//	Held ──> Renewed <────────────┐                      NotAbandoned
//	  └─────────┴──> RenewalFailing ──> Continuing-            │ Lock.Lost
//	                      │             Unlocked               ▼
//	        LockStoreUnavailable                         True (LeaseDeadlineReached, OwnershipLost,
//	any ──> Released, when the run ends                    │ ▲   RenewalFailuresExceeded)
//	                                                       ▼ │ Lock.Lost
//	                                                     Recovered: the first write under a lease with no loss to tell
//
// RunLockRenewed is healthy (Held, Renewed, Released), RenewalFailing, ContinuingUnlocked or
// LockStoreUnavailable: each transition between these four is worth one write. So is Held ->
// Renewed where the lease is kept for the run (Lock.ForRun), so that a run under way shows that
// its lock is renewed. How many renewals failed and why the last one did is as of the last write,
// and costs none.
//
// A lost lease (Lock.Lost) is told at once, also without the lock: while Redis is down together
// with that news, while another has the lock by a write that changes nothing but RunLockAbandoned.
// The shell gives Lost until a status says so, and not after. An event goes with each transition to
// RenewalFailing, ContinuingUnlocked, LockStoreUnavailable and an abandoned lock, and back to
// Renewed from one of the first two.
//
// # What is said of dead letters
//
// DeadLettered is NoDeadLetters until a result is put aside, and then names the last ones:
// ResultRejected where a worker's result was unusable, DeliveriesExhausted where the shell gives up
// on a result (Input.DeadLetters). The second stays when the first happens later. The shell gives
// those until a decision has Told; that is one under the lock, or one that ends the run. Only then
// does it put them aside.
//
// An attempt whose answer is put aside is still in flight: its time-out ends it, or its answer, if
// somebody redrives it. Status says so of the step, or of a group of items (deadLetter), and
// Unanswered leaves it out: neither job nor answer is with NATS any more, so whoever recovers it by
// looking there would give it to another worker. (The model's mutation buryEarly shows it.) A
// rejected result ends its attempt, which is the same fact. One that comes again, as its process
// died before it was put aside, is put aside then.
//
// # Versions of status
//
// Status says which version of its format a writer has to know (minWriterVersion). Decide
// leaves a run alone that needs a newer one: it says so (NeedsNewer) and nothing else, whatever
// happens to the run. The same goes for a child run whose parent needs one. The end of such a
// child is not read.
//
// # Where there is no room
//
// The API server's limit is that of the whole object, and whoever may edit a run may fill it with
// labels. A write refused for its size that has no result in it, or ends the run, is not repeated:
// with Input.Form the run ends, as it would have, else as Failed (ObjectTooLarge), and finally
// steps do not run. The short form leaves out outputs of steps and texts; the bare one all steps
// and outputs, so a run whose spec.outputs would go has failed. The bare form is smaller than any
// status of a run under way, so it fits wherever one was written. What was left out is said by the
// message of Succeeded and an event.
//
// # Large outputs
//
// What does not fit into status is in the object store, and status has a reference (OutputRef).
// Decide reads and writes nothing: a decision lists what it lacks (Needs), the shell supplies it
// (Input.Payloads), and Decide decides again. A result whose output is not known yet has the
// verdict Waiting, and a step whose expressions read one does not start; the rest of such a
// decision is good, and the shell uses it when the object store cannot be asked. One decision lists
// so many bytes of results to store, and no more: the next ones list the others.
//
// # Invariants (model_test.go checks them on every edge of an exhaustive exploration)
//
//   - I1 a result is acknowledged only when its effect is in the persisted status or it is
//     stale by rule.
//   - I2 each attempt has at most one effect; attempt numbers of a step grow by one.
//   - The fence of accepted writes never decreases; ends are absorbing; at most maxParallelSteps
//     attempts, or steps with items, are in flight; nothing is dispatched by a suspended or ended
//     run; every job withdrawn had been in flight.
//   - Ahead of status: J1 what is acknowledged is in status, with every attempt that follows from
//     it; J2 each job that was ever stored is in status, or follows from results not acknowledged;
//     J3 each attempt is stored once; J5 with one input; J6 maxParallelSteps holds with workers,
//     whatever status says; J8 no job begins after it was taken back. (J4, that NATS refuses what
//     is older than a fence message, is given: ADR 24.)
//   - J7: no attempt times out while an answer to it is stored that came in time; nor does one that
//     began ahead of status, with its run.
//   - From every reachable state an end is reachable with no more faults.
//
// # Bounds
//
// At most 200 steps; inputs and job.input 64 KiB; rendered input 256 KiB; output in status 4 KiB a
// step and 128 KiB a run, in the object store 8 MiB; messages about 512 characters; a wait asked
// for with Retry at most MaxRetryAfter; status below 256 KiB always; a time-out that waits for
// answers that cannot be had: a minute;
// 20 steps with forEach, 10,000 items each, whose outputs have 7.75 MiB together. A decision costs
// O(steps + dependencies + items under way) plus the expressions of the steps and items that start
// in it, and once the list of a step with forEach when it starts and when it is over.
//
// # Time
//
// metav1.Time has a precision of one second on the wire, MicroTime of one microsecond. All times
// are truncated to that and in UTC, so that a status read back equals the one written. Deadlines
// count from truncated times: up to a second early.
//
// Times are by the clock of the operator that wrote them. If it was ahead, a wait would be too
// long: a wait for the next attempt ends after the longest one that the step can have been told,
// its backoff or MaxRetryAfter, and a delay after its seconds, counted from when it is looked at.
package lifecycle
