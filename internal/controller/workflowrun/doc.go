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
// One writer (G3): a pass that changes a run holds its lock and writes its fence; a refused write (conflict, fence rule) ends
// the pass with no effect. Cancel, deadlines and other forced ends are written without the lock when it cannot be had, with a
// fence above the stored one, which fences out any holder (G7).
//
// No acknowledged result is lost (G1): a result is settled only in act, so only after it is in status, or when the core calls
// it a duplicate or stale; both verdicts rest on facts that never change back, so a stale cache cannot make them wrong. The one
// that could, "no such run", is decided on a live list (see strays).
//
// No attempt is dispatched twice: an attempt that is in status and not known to this process as published is recovered, that
// is looked up in JOBS and RESULTS before it is published. This holds after a crash at any point between persist and act. The one
// exception is a job that NATS has lost while a worker had it: nobody can know, so it is published again, and two may do it. One result
// counts. A process that is paused at any point, its last look at the lease included, is refused by NATS when it goes on: who writes a run
// that another wrote last has all attempts in flight begin a new epoch first (fence; internal/bus says what that is), and whoever
// is refused ends its lease. While NATS cannot be told, such a write waits for a minute; an end without the lock does not. What is written
// so has no such guard.
//
// Progress after NATS lost data (G5): an attempt is known as published until the next loss that the bus notices. A pass takes the number
// of losses when it begins and keeps it with what it publishes, so a job that the stream before took, while the loss was noticed, is
// looked up as well. All runs that have not ended are woken (watchLosses). A plain reconnect changes nothing.
//
// Batching: results that arrive while a write is under way wait in the inbox; the next pass applies all
// of them in one write, which begins when package pacing says so. Passes, status writes and desks are
// shared by namespaces: package shares. Status writes that let a run in wait for no place.
//
// # The inbox
//
// Results wait in memory within a bound of places and one of bytes. A run and a namespace have a share of what is free, so nobody's
// flood keeps another's results out. What finds no room goes back to NATS, each with a wait that grows with what its namespace has
// waiting there. Results of runs that the cache does not know wait in an inbox of their own, where runs have shares.
//
// # Data flow
//
//	informer ---------> workqueue <---- intake <--- bus.Consume
//	                     |    ^           |
//	                     v    | Wake      v
//	                   Reconciler <---- inbox        strays: results of runs which the cache does not know (yet)
//	                    |  |   |                     janitor: jobs of runs that are finished or gone
//	     memory (own writes, published attempts)     keeper: leases between passes
//
// # The lock
//
//	scope Activation  a pass takes the lock when it has something to write or to recover, and releases it, to linger
//	scope Run         the pass that admits the run keeps its lease, in the keeper, and so do all later ones; a run that lost it, or
//	                  that another process left, takes it anew though there may be nothing to write
//
// A pass works under the kept lease without asking Redis, and no breaker stops it, unless the lease was lost, the status shows a
// writer after it, or it is healthy and the policy says something else now: then it is given back, and the next take is under the
// policy as it is. A lease is either in the keeper or in the hands of one pass. It ends with the run, its deletion, or the
// operator; an unseen deletion is noticed when another run has the name.
//
// The lock manager wakes the run when the lease fares otherwise or is lost, so conditions change within a pass of the fact. A loss is
// remembered until status tells it. A write that is refused because another wrote ends the lease, and the next take has the floor of
// a live read; a write that is refused because the spec was edited does not. That is also what ends a lease that goes on without
// its lock (onFailure Continue): two may work then, but only one of them can write, and what has to be recovered without the lock
// is claimed by a write first.
//
// # Busy locks
//
// A pass that finds the lock busy ends; its run comes again (withoutLock). What it learns of the holder is remembered (memory.busy). Once the
// wait is longer than the policy's budget, and the holder showed no life, one write without the lock says whose lock it is and when it ends
// (lifecycle.Lock.Overdue; ADR 32). A process that keeps the lease is woken by that write (saidBusy), and takes it back with its next one.
//
// # Admission
//
// A run that is not admitted asks its tenant's gate in each pass that could admit it, after it was read (askGate); its idempotency key
// likewise. What a pass has asked for is remembered (memory.stay) until it is given up: when the run ended, was deleted, was suspended
// before its admission, or is governed by another policy. Who is next is woken by the gates; nobody polls. What a dead process had
// taken is given up by its successor, from status, or by the janitor of the gates.
//
// A gate of strategy Lock makes its callers wait for the lock of the tenant. That wait is in a goroutine of its own (gateAsks): the pass
// ends, and the run is woken when the answer is there. Each lock has a share of the places for such questions.
//
// # Child runs
//
// A child that status names without a uid is created under the lock, after the write, by this process or whoever finds it so
// (createChildren); what became of that is remembered (memory.births), and told by the next write. AlreadyExists is looked into: the run of
// that name is the child only if it is owned by the parent and has the spec that a dry run says the child would have. The API server
// refuses for good (Invalid, BadRequest): the step fails. Anything else is tried again, after birthDelay.
//
// Parent and children are read from the cache where that has the right uid, else live: that a run is gone is only known from a
// live read. The informer's events wake relatives of a run (wakeRelatives): the parent when a child is new, ends or is gone; a child when
// its step changed; all who claim a run as their parent when it is suspended, shut down, changes its phase, or is gone. A watch has the events of all
// runs in order, so a child that is known was named by a version of its parent that is known.
//
// # Answers before time-outs
//
// Where a decision lacks answers because a time-out is due, the pass asks the stream for all results of
// the run (ask), before it takes the lock. What it finds is a letter without a delivery: it is applied,
// and its delivery, which comes as well, is a duplicate. It reads so many at a time, and goes on where
// it ended once what it found is in status. While the stream cannot be asked the next question waits as
// long as the bus asks for; a minute after the first that failed the core does without. What is found
// and refused by the API server is not asked for again before a wait that grows. No request is made
// while nothing times out.
//
// # Large outputs
//
// A pass stores and reads outputs in the object store as its decisions ask for it, before it takes the lock (decide). While the
// store cannot be asked, results with such outputs wait, and go back to NATS after their patience; everything else goes on. What a
// deleted run had there is dropped with its jobs; what no status named, by the janitor.
//
// # Failure handling
//
// Lock busy: the pass ends at once, with the policy's wait until the next (exact where it is Fixed), but no later than the first
// result's budget ends; the lock manager wakes the run earlier if it is its turn. Results whose budget (wait.budgetMillis) is over
// go back to NATS, each with a wait of its own. Redis down: the same with waits and a patience of its own, and a breaker keeps passes
// from each waiting for the time-out. NATS down: the attempt stays in status and is recovered later. API server away, or not now
// (no answer, 5xx, 429): workqueue backoff; nothing is acknowledged, and results whose patience is over go back to NATS.
//
// API server has no room for the object (etcd's limit, 1.5 MiB): a result that does not fit counts as refused, see below. A write without
// results, or one that ends the run, is followed by an end that needs less room (shrink). If not even the least fits, which is only so before
// the first write, the run gives up its place at the gate and is tried again after 5 s, 10 s and so on up to five minutes, until the
// object is another; each try is an event and counted.
//
// API server refuses a write (4xx): it may be for one of the results in it. Half of them are tried at a time until one is refused
// alone. That one goes back to NATS as a failed delivery, with waits that grow up to the policy's maxDelaySeconds; once
// maxDeliveries of its deliveries have failed, it becomes a dead letter. The others are applied meanwhile. A result that is
// ahead of the run, read live, counts in the same way. The count is the bus's, so a restart begins anew. The next writes say
// that the answer of that attempt is a dead letter, until one is taken; only then is it put aside (bury). Whoever is the leader then does not
// look for the attempt in NATS, and so does not publish it again. A crash in between leaves the result where it is: it comes again, and is
// tried again. The attempt stays in flight: its time-out ends it, or its answer, redriven. Nothing else that makes results wait
// ever makes a dead letter.
package workflowrun
