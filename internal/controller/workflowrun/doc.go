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
// is looked up in JOBS and RESULTS before it is published. This holds after a crash at any point between persist and act.
//
// Batching: results that arrive while a write is under way wait in the inbox; the next pass applies all of them in one write,
// which does not start before max(10 ms, duration of the last write).
//
// # Data flow
//
//	informer ---------> workqueue <---- intake <--- bus.Consume
//	                       |              |
//	                       v              v
//	                   Reconciler <---- inbox        strays: results of runs which the cache does not know (yet)
//	                    |  |   |                     janitor: jobs of runs that are finished or gone
//	     memory (own writes, published attempts)
//
// # Failure handling
//
// Lock busy: the pass ends with a jittered requeue; results that wait longer than resultPatience go back to NATS with a delay
// of their own. Redis down: as busy, and a breaker keeps passes from each waiting for the time-out. NATS down: the attempt
// stays in status and is recovered later. API server errors: workqueue backoff; nothing is settled.
package workflowrun
