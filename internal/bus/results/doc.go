// SPDX-License-Identifier: Apache-2.0

// Package results is the stream of results. A Consumer takes results and settles them. A Reader
// looks at results without taking them.
//
//	<PREFIX>_RESULTS ──> Consume ──> handle(Delivery) ──> Settle(err)
//	                        │                                 │
//	  bad subject, bad token│                                 ▼
//	                        └──> dead letter <── ack │ NAK(delay) │ dead letter
//	<PREFIX>_RESULTS ──> Reader.Answers, Reader.Answered
//
// # Guarantees
//
//   - A result is acknowledged by Settle(nil) and by nothing else.
//   - A dead letter is stored (its PubAck has come) before its message is terminated. If it cannot
//     be stored, the message stays; Delivery.Buried says which.
//   - A message is at most one unsettled Delivery in a process: a redelivery of a message that is
//     still held only renews the held one.
//   - A poison message delays no other message. It never reaches handle, and other goroutines judge
//     it and write its dead letter. What finds no room among those that wait for this is given
//     back, and redelivered at a pace of its own.
//   - What was given back delays no other message: the bound of what the server may have unsettled
//     is for its bookkeeping only.
//   - A delivery from before a noticed loss of RESULTS is not settled: its sequence may be that of
//     another result by now, and the server asks for no more. If its message is still there, it is
//     redelivered after AckWait.
//   - Answers has all results of a run that the leader of RESULTS has, delivered or not.
//
// # Partitions
//
// The runs' UIDs are hashed to 64 partitions, and the subject of a result names the partition of
// its run. Follow and Leave say of which partitions a process takes results, while Consume runs: so
// several processes can each take those of the runs that they drive. What Leave gives back is
// delivered to the next process at once; beyond 16 KiB of a run it is a backlog, and those come
// again at 16 MiB a second.
//
// # Retry contract
//
// Example: an error with RetryDelay() 500 ms and RetryClass() "lock_busy" in its %w chain becomes a
// NAK with a delay of 500 ms, counted as lock_busy. The mapping is total:
//
//	nil                          double ack
//	Permanent in the chain       dead letter, then Term with the reason (wins over everything else)
//	RetryDelay d > 0             NAK with delay d, at most 24 h
//	RetryDelay d <= 0            NAK, redelivered at once
//	anything else                NAK with a default, jittered delay
//
// docs/protocol/contract.json is this contract in full, written by the code. Tests compare it with
// the code and with the page.
//
// # Tokens
//
// A token that the keys at hand did not make is judged again by keys that were read after it had
// come: another replica may sign with a newer key (see package keys). While the keys cannot be read
// such a result stays (class store_unavailable). If there are none that can be used, those at hand
// judge: a result at its third delivery, Reader.Answered at once.
//
// # Budget of deliveries
//
// Delivery.Failures is how many earlier deliveries of the message ended with a class that counts
// (see CountsAsFailure). The owner of the runs decides when it is enough, and settles with
// Permanent. The server's own count of deliveries is no measure: waits for a lock, back-pressure
// and shutdowns are in it.
//
// The count is kept beside the delay that was asked for, within a bound of which a run has a share,
// and for 10 minutes after the message was due. It is lost with the process, when another process
// gets the message, and beyond the bound. Each of these makes a dead letter later, never sooner. A
// delivery that is not settled (a crash, AckWait) does not count.
//
// # Life of a delivery
//
//	          handle                Settle                  done
//	admitted ───────> open ───────────────────> settling ─────────> settled
//	                   │ ctx of Consume ends
//	                   └──────────────────────> drained (NAKed; a later Settle gives ErrDrained)
//
// Invariants: InProgress is sent for open and settling deliveries only, and never after their NAK,
// because that would turn the asked delay into AckWait. A delivery leaves the ledger before its ack
// or NAK leaves the process, so that a redelivery that follows is taken for a new one.
//
// # Memory
//
// A Delivery holds what was decoded, once, and Size says about how much that is. Its message is let
// go: settling needs a subject, and the body of a dead letter is read from the stream again. Of a
// message that is not known to be authentic only the token is held, of 64 in a partition. Eight
// messages are held whole at a time, to be put aside or read once more. Of each partition, one pull
// of 128 KiB may be on its way, or of one message if the stream takes larger ones; one more for
// each that was taken for lost, three seconds after the other, and where the stream takes larger
// messages, for the first, which is sent before that is known.
// Receiving waits for handle. The handler bounds how much is held after that: Settle with a delay
// frees it.
//
// # Failure handling
//
//   - An ack or NAK that is lost costs one AckWait.
//   - A pull that the server does not speak of for three seconds is taken for lost, and sent again.
//     What looks like a word of the server, and is a message of the stream, is a result like
//     others.
//   - A consumer that vanished is created again.
//   - A consumer that may have less unsettled than Options say gets our bound if the server lets
//     it: earlier versions made it so.
//   - A subscription that gets nothing for 10 s while messages wait is built anew.
//   - At the end of Consume pulling stops, unsettled deliveries are NAKed, and settlements under
//     way are waited for.
package results
