// SPDX-License-Identifier: Apache-2.0

// Package store decides in Redis which runs of a tenant are let in, so that never more than the
// limit are in at a time. It has slots, the queue of runs that wait, reservations and idempotency
// keys. It imports neither Kubernetes nor NATS.
//
// For example, a tenant has a limit of two. The first two runs that call Admit get a slot, the
// third gets position 1 in the queue. Release of the first returns the UID of the third, which the
// caller wakes; its next Admit gets the slot.
//
// # What is true
//
// The run objects are the truth, and the caller reads them. The store makes counting atomic and
// fast. A slot is taken before a run is written as admitted, and given back after the run is over.
// So there is a slot for each admitted run, unless Redis loses data; then the quota is closed until
// there is again.
//
//	         Admit: slots are full                        Admit, when woken
//	unknown ---------------------> queue ----------------------------------------+
//	 |  |                            |                                            v
//	 |  | Reserve                    | Release                     Admit        slot ---- Admit: same answer
//	 |  +----------> reserved -------|-------------------------------------------> |
//	 |                  | time over, | Release                                    |  Release: wakes those who are next
//	 |                  v            v                                            v
//	 |                unknown      unknown                                      unknown
//	 |                                       Admit: there is room                 ^
//	 +----------------------------------------------------------------------------+ (slot)
//
// # Keys
//
//	{adm:<policy>:<tenant>}:slots     hash: UID of the run -> when it took its slot; and the epoch
//	{adm:<policy>:<tenant>}:line      sorted set of equal scores: "<priority> <created> <name> <uid>", in order of bytes
//	{adm:<policy>:<tenant>}:places    hash: UID -> member of the queue
//	{adm:<policy>:<tenant>}:reserved  sorted set: UID by the end of its reservation
//	{adm:<policy>:<tenant>}:lock      strategy Lock only: the token of the holder
//	{adm:<policy>:<tenant>}:vote:<candidate>:<period>   that a process has the vote of a tenant-minute (internal/rollout)
//	{adm:<policy>:*}:slots, line, places, reserved, lock, limits, turn   a pool: see scripts/pool.lua
//	{adm-locks}:holds, queue, places, holders   locks across runs: see scripts/locks.lua
//	{adm-installation}                text: the installation whose this Redis is
//	{adm-installation}:home           text: "<installation> <namespace>", where its operators are
//	{adm-installation}:name           text: the random name of this Redis, which Leases of the operator say
//	{adm-installation}:revision       text: "<installation> <revision>", the highest of the API server that it saw
//	{admkeys:<tenant>}:keys           hash: "=" and the idempotency key -> "<uid> <name> <hash of the spec>[ <end of its
//	                                  reservation>]"; and the epoch
//
// Keys of a tenant are in one slot of a Redis Cluster. A slot never ends by time: a caller that was
// paused would let in one run too many. Only reservations do, and what holds nothing but an epoch,
// or was not touched for 7 days and is no slot.
//
// An ACL user needs (with a prefix, after the brace):
//
//	~{adm* +@connection +eval +evalsha +info +time +get +set +del +exists +persist +pexpire +hget +hset +hsetnx +hdel +hlen +hexists
//	+hgetall +zadd +zrem +zcard +zscore +zrange +zlexcount +zremrangebyscore
//	+hincrby +hkeys +hscan +zrangebylex +zrevrangebylex +zrangebyscore
//
// and in a cluster +cluster|slots.
//
// # Whose Redis it is
//
// Two installations on one Redis would drop each other's slots and locks, since neither has the
// runs of the other. So a key names the installation, and with Options.Installation each call looks
// at it: once a second, after an answer that data is closed, and after one with a new term, since
// both may mean that Redis lost the name. The first that looks then has it, but for who was refused
// before: that one waits until nobody was named for a minute. The other gets an *UnavailableError
// with a *ForeignError in it, and nothing is granted, dropped or opened. Calls may come between the
// loss and the look, and some may be in flight: they may be granted by data that the
// other has opened.
//
// Two operators in one cluster would drive the same runs. So a second key names the namespace of
// the operators, with Options.Home, and is looked at with the first. A version from before it
// changes the first alone: what the second has of another installation counts for nothing.
//
// # Who is let in
//
//	in already                          admitted, whatever the limit is now
//	has a reservation                   admitted if used < limit
//	else                                admitted if rank in the queue < limit - used - reserved, rank counted from 0
//
// A run does not have to be first to be let in: of three free slots the first three in the queue
// may take one each, in any order. A run that is gone without Release blocks the place that it has,
// and no other. Order: priority, the highest first; then creation, in seconds; then name; then UID.
// A run that asks again with another priority moves. A limit that is raised lets in more (ask Next
// whom to wake); one that is lowered takes no slot away.
//
// Guarantee (G4): a call never adds a slot beyond the limit it was given. All changes are scripts,
// which Redis runs one at a time; so whatever number of processes asks, in whatever strategies,
// replies lost or not, the slots of a key are at most the limit.
//
// # Who is woken
//
// A tenant's limit is raised from 1 to 1,000, or taken away, and 5,000 wait. The next release does
// not name all who can be admitted now, nor do the releases after it: together they would name the
// square of the queue. It names the first 32, the window. Each run that is admitted names the one
// that comes into the window by that (Answer.Next), and so does one that moves behind others. One
// that asks though it is in may have lost its answer, and is given all names of the window again.
// So, if all who are woken ask, nobody sleeps who can be admitted; and all names together are about
// as many as runs. One that is over or gone is released by whoever was to wake it, which names the
// next. One that never asks, as its process is paused, keeps its place in the window. Where 32 do
// not ask, a resync wakes whoever is behind them.
//
// # Reservations
//
// A reservation is for the webhook: the run does not exist yet, and may never. It is given if
// slots, reservations and the queue together are below the limit, so no run that waits is
// overtaken; and never a place in the queue. It stands for a minute at most, whatever the clock of
// Redis did: one whose end is further away was given while that clock was ahead, and is over.
//
// # Strategies
//
// Atomic: the decision is one script, one round trip, without waiting.
//
// Lock: the classical way, for comparison: take the lock of the tenant (SET NX with TTL and token;
// when busy again after the delay, fixed or jittered, for MaxWait at most), decide, free it
// (compare and delete). The decision is the same script, which does nothing unless the lock still
// has the token. So the answers are the same, both may be in use at once, during a switch of the
// policy, and a holder that sleeps longer than the TTL adds nothing: *BusyError.
//
// # Pools
//
// Where all tenants of a policy share a total, they are counted together: type Pools.
// internal/shares has the rule. A pool differs from the slots of a tenant in two ways. It gives
// slots to those who wait, whom the caller wakes; their next Admit finds the slot. And it is
// told the limits of all tenants, with a version; whoever knows a newer one tells it.
//
// # Epoch: when the data may be trusted
//
// The epoch, "<term> <run_id>", is a field of the hash that has the slots, so both are lost
// together if one is. run_id is that of the server: the script reads that of the one that runs it
// (INFO; some microseconds). The term rises with each rebuild, and a Store remembers the highest
// that it has seen of each key. A rebuild notes the highest that those who begin it have seen, so
// the new term is above it, whoever ends the rebuild. Anything else than this is
// closed, *RebuildingError:
//
//	no epoch                    never used, long unused, FLUSHALL, eviction, restart without persistence
//	run_id of another server    restart with persistence, which may have lost the last moments; promotion of a replica, which may lag
//	lower term than seen        a server that was out of use came back with the data it had
//	lower than Options.Since    another Redis was used after this one had given that term
//
// The embedded stand-in of the tests has no run_id; it is taken for one server. A server that does
// not tell its run_id is not trusted. One thing the epoch cannot see: two masters at once, of which
// a process only ever reaches the old one. Against that Redis has min-replicas-to-write: with 1, a
// master that was cut off refuses writes after min-replicas-max-lag (10 s).
//
// # Rebuild
//
//	           BeginRebuild            FinishRebuild: same token, same server
//	closed --------------> being rebuilt -----------------------------------> open, new term
//	   ^                        |  data lost again: ErrRebuildLost              |
//	   +------------------------+-----------------------------------------------+ data lost
//
// Between the two the caller lists the admitted runs, by a live read. The token says that nothing
// was lost, and so nobody let in, between that list and the opening. All who rebuild at the same
// time share it; whoever finishes later only adds. Many runs are entered in
// several calls, of which the last one opens. What the hash still held is kept: too many slots
// make runs wait until the next resync, too few break the limit. FinishRebuild takes places and
// reservations from the runs that it gives slots.
//
// The list must contain every run that will have been admitted by a decision of before the loss.
// A caller that was paused between decision and write is not in it yet. So, between Begin and
// the list, the caller must make such writes impossible: by a write to each run that is not
// admitted, which moves its resourceVersion, given that callers read the run before they ask
// Admit and write with that resourceVersion. Waiting for some time instead leaves out those who
// are paused for longer.
//
// Retire ends data that is open and holds nothing. It is closed then, as if it was never used.
//
// Right after a rebuild there should be a resync: a run that ended between list and opening has
// a slot again.
//
// # Resync
//
// Snapshot says everything that the quota has, for comparison with the run objects. Restore gives a
// slot to admitted runs without one; Drop takes from those that are over. Both count what they
// found as drift. A slot whose run exists and is not admitted yet is no drift: its next pass uses
// it. Missing places need no repair: a run that is woken takes its place again.
//
// # Idempotency keys
//
// Per tenant, first come first served, also for runs that are about to be created: their claim has
// an end, by the clock of Redis, until which it stands though the run does not exist, for a minute
// at most, as a reservation of a slot. The claim names run and hash of the spec, so the caller can
// tell a repetition from a conflict. A claim is held until ReleaseKey, which compares the UID. A
// claim whose run is gone is released by whatever finds that out; one that is a reservation which
// has ended only while it is one, since the run may have been created after the look. The data
// has an epoch and is rebuilt like slots; claims from the objects replace those that the closed
// data still held.
//
// # Failure handling
//
// Redis out of reach, refusing, hanging: *UnavailableError, each call within a second (strategy
// Lock: MaxWait and three seconds). A look at whose Redis it is comes before, and has a second of
// its own. The call may have happened: Admit, Reserve and ClaimKey are repeated with the same UID
// and find what they got; Release, Drop and ReleaseKey are repeated until they succeed. A call that
// is carried out late, after its run was released, leaves a slot, which a resync finds. Nothing is
// ever admitted on doubt.
//
// The queue may be lost on its own (eviction of one key): runs come back into it when they ask, or
// are let in out of order meanwhile. Likewise reservations: their runs stand in the queue. Neither
// breaks the limit.
//
// # Bounds
//
// No goroutines, nothing to close. Each decision is O(log n) in the length of the queue. Release,
// Next and Drop name 32 at most who can be admitted (see "Who is woken"); a pool gives up to 256
// slots in a call. A script is given 256 runs at most: more are released, restored and entered in
// several calls. Snapshot and Claims answer as much as there is of one tenant. Locks of all tenants
// are together: they are read, dropped and rebuilt in portions. A Store remembers the terms of
// 65,536 keys; of others it does not notice a lower one. 50 tenants have metrics of their own.
package store
