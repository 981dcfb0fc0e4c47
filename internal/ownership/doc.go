// SPDX-License-Identifier: Apache-2.0

// Package ownership divides the runs among the replicas of the operator. Each of 65 partitions has
// one owner, and only the owner does its work: 0 to 63 have runs, 64 has what is done once in an
// installation. The package uses Kubernetes only.
//
// # An example
//
// Replica a owns everything. Replica b starts:
//
//	b   creates its Lease, reads the object, lists the members
//	a   sees two members, the same two for 3 s; b should have 33 partitions
//	a   lists the members, and ends the work of 8 of them: Handler.Lose says of which passes in
//	    flight have ended
//	a   writes "b, term 18" for these
//	b   sees the write by its watch: Handler.Gain
//	a   goes on with the next 8
//
// Then b is killed. Its Lease is renewed no more. Replica a sees it unchanged for 6 s, by a's own
// monotonic clock, and writes "a, term 19" for all 33.
//
// # Words
//
//	member      a process that takes part; it has one Lease, "syncopate-member-<name>"
//	desired     who should own a partition: the rendezvous hash over the members that are live, fit
//	            and not leaving, by one member's view. It gives no right to act.
//	effective   who owns it: the entry {owner, term} in one ConfigMap. Members act on nothing else.
//	term        the number of an entry. It grows with each change of the owner. (Epochs are those of
//	            dispatch, in internal/bus/jobs.)
//	session     the time in which a member may act: from a renewal and a look at the object that
//	            follows it, until either is too old
//	hand-over   a planned move; take-over is that of an owner whose Lease has ended
//
// # Guarantees
//
//  1. No two members act as the owner of a partition at a time, as long as the clocks of two
//     machines run equally fast up to Margin / Lease (17 %), and none sleeps. A machine that
//     sleeps stops its monotonic clock on most systems: there only the API server protects, which
//     refuses writes of what others have written meanwhile.
//  2. A term has one owner, and terms of a partition grow.
//  3. Every partition has an owner within bounded time when a member lives and the API server
//     answers.
//  4. When nothing changes, nothing is written but Leases.
//
// internal/ownership/rules decides, without I/O, and its model explores it. These are the
// rules that matter:
//
//   - A member acts until (time at which its last renewal was sent) + Lease - Margin, and no longer
//     than that after the last look that showed its entries. Owns asks the clock, so a process that
//     was paused stops without doing anything.
//   - Whoever comes too late begins a new session: its old entries are void, and it claims them
//     again with a new term. So it does not matter whether others noticed.
//   - An entry is taken from another member only if a list that was sent after the entry was read
//     shows a Lease that was seen unchanged for the whole of Lease. A watch that is late, or a list
//     that fails, proves nothing. A Lease that was deleted counts as one that is not renewed.
//   - What the watch tells may give a partition to a member whose session lasts. It confirms
//     nothing, since nobody knows how old it is.
//   - Writes of the object replace the version that they were decided on.
//   - An entry is given away after Handler.Lose has ended the work of its partition, or Drain is
//     over, which is less than the time that who leaves has. It does not wait for that of others,
//     but for 15 ms at most, so that those that end within a moment are one write.
//   - To whom it is given says a list that came a moment before the work began to end. Another is
//     taken where that one is older than 250 ms when the work has ended, or where another member
//     was seen to have lost its last entry since: it may have left.
//
// # Edits by hand
//
// They cost time. A member whose Lease was deleted begins a new session. An object that was deleted
// or edited (its checksum is another) is written anew by whoever sees it first, with a new origin:
// each member adds what it acts on, and goes on meanwhile; other partitions are claimed only after
// the whole of Lease, when whoever acts has said so or has stopped. What is not covered: an old
// copy of the object that is put back, while a process starts that has not seen the newer one.
//
// An object of another cluster was copied here, and is written anew in the same way. If the API
// server has become that of another cluster, the process ends.
//
// An object in a format that is newer than this version knows is not written anew, whatever its
// checksum is. Whoever finds it owns nothing, and says so in its log. It renews its Lease no more
// until the object is another, so members of the newer version take its partitions.
//
// # Failure handling
//
// All calls are bounded in time. Renewals have a goroutine of their own, so neither a slow look nor
// a broken watch holds them up. Leader election is asked for beside the looks, which no session can
// wait for. A member that does not reach the API server gives all up after 5 s, and says so in its
// log and in ownership_lapses_total. One that does not reach Redis or NATS (Fit) for the whole of
// Lease says that on its Lease, and is given nothing until it is fit as long; its partitions move
// to members that are fit, once all have had the time to say the same. One that starts is unfit
// until Fit succeeds once. Where none is fit, nothing moves but what a dead owner had, or one that
// leaves. Where some are fit again, nothing moves for two Leases: others end their marks later. One
// that lapses again and again is given nothing for a while, twice as long each time, up to ten
// Leases.
//
// Members may have Leases of other lengths, while a rollout changes that. A member waits for
// another one as long as the longer of the two.
//
// While somebody holds the Lease of leader election, members own nothing. Each says so on its own
// Lease, and is given nothing: one may look later than the others, or not be able to. What such a
// member has it gives to those that are not blocked. The owner of the singletons gives up the lead
// of a leader that is gone.
//
// All members use one Redis. Each says the name of its own on its Lease, and owns nothing until a
// list that was sent after that shows nobody who says another (type Redis). So one that has another
// Redis than the others owns nothing while they live.
//
// # Cost
//
// At rest a member writes once in 2 s, and reads three small answers a second. A move writes once
// for 8 partitions, and once more for each of which the work ends later than that of the others.
package ownership
