// SPDX-License-Identifier: Apache-2.0

// Package lockmgr holds run locks: it takes, keeps and gives back, for one process, the locks in
// Redis that make one replica the only writer of a run. It knows nothing of Kubernetes and NATS.
//
// # What a run lock is for
//
// The lock saves wasted work and orders contenders; it is not what makes a status right. That is
// the fence: every take gets a number above all earlier ones, every status write carries it, and
// the API server refuses a lower one, or an equal one of another lease. So a wrong lock (Redis lost
// its data, a fail-over, a holder that was paused) costs work, never a wrong status.
//
// # Keys
//
//	{run:<uid>}:lock    the token of the owner, with the TTL of the policy
//	{run:<uid>}:fence   the last fence, kept for 7 days after a take
//	{run:<uid>}:queue   the processes that wait in the queue, first come first served
//	{run:<uid>}:tickets when each of them loses its place if it does not ask again
//
// All are in one slot of a Redis Cluster. A token is <process>.<random>, so that whoever waits can
// let the holder know. Each verb is one script, and idempotent by token:
//
//	acquire  free and nobody is before the process in the queue, or owned by the token: fence = max(INCR, floor + 1), TTL anew.
//	         Else busy: the process gets a place in the queue, and the holder hears that somebody waits
//	renew    owned by the token: TTL anew. Anything else: not owner
//	release  owned by the token: deleted, or kept for the first in the queue, who hears of it. Anything else: nothing
//	leave    the process gives up its place in the queue. A lock that is kept for it: as release
//
// floor is the fence in the run's status, as the caller read it. So the fence rises even when Redis
// lost everything. Fences are exact up to 2^53, where Lua's numbers end.
//
// An ACL user needs:
//
//	~{run:*}:* &syncopate:locks:* +@connection +eval +evalsha +get +set +incr +pexpire +del +exists +time +pttl +pexpireat
//	+lindex +llen +lrem +rpush +zadd +zrem +zscore +zrangebyscore +publish +subscribe +scan
//
// and in a cluster +cluster|slots. Without the channel or the right to publish, whoever waits finds
// out by asking every second.
//
// # The deadline rule
//
//	sentAt     = local monotonic time just before the acquire or renew that succeeded was sent
//	validUntil = sentAt + TTL - margin                 margin = TTL * drift + safety margin
//	renew      : first at sentAt + interval; own timeout min(timeout, validUntil - now); after an error again in TTL/10 +-20 %
//
//	                                             Fence                            Continue
//	now >= validUntil                            lost: LeaseDeadlineReached       goes on, Status.Unlocked
//	maxConsecutiveFailures in a row              lost: RenewalFailuresExceeded    goes on
//	the script says "not owner": lock is gone    lost: OwnershipLost              takes it again with a higher fence
//	                             is another's    lost: OwnershipLost              lost: OwnershipLost
//
// Guarantee: unless Redis loses data, no process takes a lease for valid whose key may be free.
// Redis starts the TTL when it runs the script, which is after sentAt. So the key ends at
// sentAt + TTL or later, and the validity ends margin before that. What happens to replies does
// not matter. A count of failures could not give this: three failures at a third of the TTL take
// the whole TTL, and the timeout of the last one comes on top.
//
//	sentAt                    sentAt+interval                          validUntil        sentAt+TTL
//	  |--- lease is valid --------|--- renewals are tried ---------------|--- margin --------|--- key may be free
//
// The deadline is an event of the scheduler that is armed in advance. Lease.Err looks at the clock
// as well, so after a pause of the process (SIGSTOP, starvation) the first check says the truth.
// The wall clock has no part in it. A machine that sleeps stops the monotonic clock on most
// systems: there the fence alone protects.
//
// A lost lease ends its context with a *LostError as the cause. Until its user calls Release or
// Drop, which it does when its work has returned, the run is busy in this process. A lost lock is
// never deleted: if it still is ours its TTL ends it, or the next take of this process replaces it.
//
// Continue is for work that rather happens twice than waits. It covers a lease in use; a new take
// fails closed. What ends such a lease is somebody else's lock, or the API server's refusal of its
// fence: its user then drops it.
//
// Lease.OnFailure switches between the two columns while the lease is held, also during an outage:
// a lease that would be lost under Fence is lost at once.
//
// # States of a run in this process
//
//	         Acquire            reply in time
//	free ---------------> taking -----------> in use <-------------------+
//	 ^  ^                   |                 |    |                     | Acquire, no call to Redis, if
//	 |  +-------------------+                 |    | Release             | policy, fence and leaseID fit
//	 |    busy; unknown: token is kept        |    v                     |
//	 |                                        |  lingering --------------+
//	 |   Drop, or Release without linger      |    |
//	 +----------------------------------------+    | linger is over, or Acquire that does not fit: compare and delete
//	 +---------------------------------------------+
//	 |                                        |
//	 |   Release, Drop                        v  deadline, not owner, failures
//	 +-------------------------------------- lost
//
// A take and a release cost one round trip each; the renewal of a lease shorter than the
// interval costs nothing.
//
// # Waiting for a busy lock
//
//	mode Poll     the caller tries again after *BusyError.RetryDelay
//	mode HandOff  the caller has a place in the queue, and Request.Wake is called when the lock is there for it
//
//	process A                 Redis                                  process B
//	in use                                                           Acquire: busy
//	                          queue: [B], ticket for 2.5 s   <------ ticket
//	hears "wanted"   <------- PUBLISH
//	Release          -------> lock = ~B for 1 s, PUBLISH     ------> hears "offered"
//	                          lock = B.token, fence + 1      <------ claims at once, offers the lease to its first waiter for 1 s
//	                                                                 Wake -> Acquire: no call to Redis
//
// Inside a process the lease goes from one waiter to the next without Redis: for as long as
// somebody waits if no other process does, else 10 times in a row. A process has one ticket per
// run; it asks again every second or sooner, which keeps its place and makes up for lost news.
// Tickets whose time is over are skipped all at once: processes that are gone cost the queue a
// second or two. The queue has room for 64 processes, and for 1,024 waiters in each; beyond that:
// busy, without a place. A waiter keeps its place for the policy's wait budget (a second at least)
// after it last asked. When Redis cannot be used the waiters are woken to learn it from Acquire.
//
// A process that drives a run no more leaves its queue (Manager.Leave, Close): nobody waits for
// what is offered to somebody who does not want it.
//
// With each refusal Redis says who owns the lock and when it ends (BusyError.Owner), so that
// whoever waits can tell people.
//
// A caller that polls gets no place, and does not jump the queue. A lock that lingers is given back
// when somebody waits or polls, and with mode Poll it does not linger for a second after that.
//
// # Locks of a process that is gone
//
// A lock of a process that died ends with its TTL. It ends earlier if Request.Gone says that the
// process uses no lock any more. Acquire then replaces the lock that it found busy, by its token,
// with a second call to Redis.
//
// Example: replicas renew a Lease of the API server every 2 s (internal/ownership). A member works
// under run locks until renewal sent + 6 s - margin, by its own monotonic clock. An observer calls
// it gone once it saw the Lease unchanged for 6 s, by its own clock. It cannot have seen the
// renewal before that was sent, so
//
//	last use by the member <= sent + 6 s - margin < sent + 6 s <= first replacement by the observer
//
// for clocks that run at rates less than margin / 6 s apart. Where this does not hold, as for a
// process that is paused between its look at the clock and its write, the fence decides: that of
// the new lease is higher.
//
// # Lost replies
//
//   - Of a take: whether it happened is unknown, so Acquire fails, and keeps the token. The next
//     try sends the same token and finds its own lock, with the same fence. Without a next try the
//     TTL ends it; Close releases it. (A release sent at once would be no safer: nothing orders it
//     after a take that is still on its way.)
//   - A reply that comes after the validity has ended is worth nothing: as above.
//   - Of a renewal: counts as failed. The deadline counts from the last renewal that is known
//     to have succeeded.
//   - Of a release: it is tried once more, at once. The token is kept as dead for one TTL, and the
//     next take of this process may replace it. The same holds for the token of a lost lease, so
//     after an outage of Redis a process does not wait for locks of its own past.
//
// # Failure handling
//
// Redis out of reach: Acquire fails closed with *UnavailableError, within the renewal timeout;
// there is no local-only lock. Leases held are worked under until their validity ends or their
// failures are too many. Any error of Redis, be it refused, loading, read-only or a timeout,
// is treated alike.
//
// # Bounds and goroutines
//
// One scheduler for all leases, started by the first take: it keeps a heap of the next event of
// each run, and makes no call itself, so no slow call delays a deadline. Background calls run in
// goroutines of their own, at most one per run, with 64 renewals and takes under way; one more
// listens to news. (Where Redis hangs, each takes its whole timeout: with more leases due than
// that, failures are counted later, and with some hundreds the deadline ends the leases first. In a
// cluster all shards share the 64: more than some 1,000 locks on a shard that hangs keep others
// from being renewed in time.) Acquire calls Redis in the caller's goroutine, and so do Release and
// Drop unless the last renewal failed. Close waits for all goroutines. What is remembered of a run
// that is not held is forgotten after one TTL.
package lockmgr
