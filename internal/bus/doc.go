// Package bus is all that Syncopate does with NATS JetStream: it owns the streams, publishes jobs, consumes results, keeps the
// retry contract and the dead letters. It knows nothing of Kubernetes or Redis.
//
//	Publish ──> <PREFIX>_JOBS ──> workers ──> <PREFIX>_RESULTS ──> Consume ──> handle(Delivery)
//	                                                                  │              │
//	                                       bad subject, bad token     │              │ Settle(err)
//	                                                                  ▼              ▼
//	                                              <PREFIX>_DEADLETTERS <── ack │ NAK(delay) │ dead letter
//
// # Guarantees
//
//   - A job is stored at most once in each epoch of its attempt, and in the last one only: see below. The window of Nats-Msg-Id is an
//     optimisation and nothing rests on it: a work queue forgets the ids of acknowledged messages when the server restarts, and jobs
//     outlive any window.
//   - Recover publishes only what is neither queued nor answered, by reads that the stream's leader answers, JOBS first. Started is no
//     answer: a job that a worker has is in JOBS until it is answered.
//   - Answers tells what RESULTS holds of a run's results, delivered or not, as its leader sees it. A
//     leader that was cut off and does not know it yet may answer too, as it may to Recover.
//   - A result is acknowledged by Settle(nil) and by nothing else.
//   - A dead letter is stored (its PubAck has come) before its message is terminated. If it cannot be stored, the message stays;
//     Delivery.Buried tells which.
//   - A message is at most one unsettled Delivery in a process: a redelivery of a message still held only renews the held one.
//   - A poison message delays no other message: it never reaches handle, and it is judged, and its dead letter written, by other
//     goroutines. What finds no room among those that wait for this is given back, and comes again at a pace of its own.
//   - What was given back delays no other message: the bound of what the server may have unsettled is for its bookkeeping only.
//
// # Epochs of a dispatch
//
// Fence stores a fence message of an attempt in JOBS, which begins a new epoch. Jobs and fence messages are stored only if the last message
// about their attempt, of either kind, is the one that their sender knows (Job.Epoch; 0: none). So what was published in an earlier epoch is
// refused, however late it comes: by a process that was paused, or from a connection that its sender has given up.
//
//	P publishes a job (0) ...                            ... is resumed, and the stream has the fence message: refused
//	Q            fence (0) -> N, looks, publishes (N), a worker does the job, and the result is settled
//
// A fence message has the fence of its sender, and one with a lower fence than the last message is not sent: *FencedError. The look into
// JOBS that follows counts only if the server that answers has the fence message. Fence messages are on the job's subject with
// another first word of the topic, which no topic can have. They vanish an hour after the deadline of the attempt, from which on workers
// drop its job; Fence deletes the one before. In a cluster a message that is on its way keeps others about the same attempt out.
//
// The look into RESULTS is answered by who leads it. One that is new has all that was confirmed before it answers (nats-server 2.15; tested).
// One that was paused and has not heard yet that it leads no more may miss the last results: then a job whose recovery meets that
// moment may be done twice.
//
// # Retry contract
//
// An error says "again, in d" by having RetryDelay() time.Duration somewhere in its %w chain, and which kind of wait this is by
// RetryClass() string. The mapping is total (see verdictOf):
//
//	nil                          double ack
//	Permanent in the chain       dead letter, then Term with the reason (wins over everything else)
//	RetryDelay d > 0             NAK with delay d, at most 24 h
//	RetryDelay d <= 0            NAK, redelivered at once
//	anything else                NAK with a default, jittered delay
//
// docs/protocol/contract.json is this contract in full, written by the code; tests compare it with the code and the page.
//
// # Keys
//
// Config.LoadKeys lets the keys that sign tokens be rotated while the bus works. ReloadKeys has it read them; and no token that some
// key could have made is refused, by Consume or Recover, but by keys read after it had come. So a result that another process
// dispatched with a newer key is no forgery here. A read serves all tokens that came before it began, and reads are at least 100 ms
// apart. While keys cannot be read such a result stays (class store_unavailable) and such a job is not dispatched again; where there
// are none that can be used, those at hand judge: a result at its third delivery, Recover at once.
//
// # Budget of deliveries
//
// Delivery.Failures is how many earlier deliveries of the message ended with a class that counts (see CountsAsFailure). Whoever
// owns the runs decides when it is enough, and settles with Permanent. The server's own count of deliveries is no measure: waits
// for a lock, back-pressure and shutdowns are in it.
//
// The count is kept beside the delay that was asked for, within a bound of which a run has a share, and for 10 minutes after the
// message was due.
// It is lost with the process, when another process gets the message, and beyond the bound. Each of these makes a dead letter
// later, never sooner. A delivery that is not settled (a crash, AckWait) does not count.
//
// # Life of a delivery
//
//	          handle                Settle                  done
//	admitted ───────> open ───────────────────> settling ─────────> settled
//	                   │ ctx of Consume ends
//	                   └──────────────────────> drained (NAKed; a later Settle does nothing and returns ErrDrained)
//
// Invariants: the keeper sends InProgress for open and settling deliveries only, and never after their NAK, because that would
// turn the asked delay into AckWait. A delivery leaves the ledger before its ack or NAK leaves the process, so that a
// redelivery that follows is always taken for a new one.
//
// # Memory
//
// A Delivery holds what was decoded, once, and Size says about how much that is. Its message is let go: settling needs a subject, and the
// body of a dead letter is read from the stream again. A message of which nobody knows whether it is authentic is held whole, 2 MiB of
// them in a group. Of each group, two pulls of 1 MiB may be on their way, or of one message if the stream takes larger ones. Receiving
// waits for handle. How much is held after that is for whoever holds it: Settle with a delay frees it.
//
// # Large outputs
//
// The object store <prefix>-payloads holds outputs that are too large for status, under names made of their digests. Payload tells
// an object that is not there, or not whole (ErrPayloadUnusable, a fact), from a store that cannot be asked (*RetryError). An entry
// is published when all parts are confirmed. Nothing expires; DropPayloads leaves nothing behind.
//
// # Workers of a topic
//
// Workers asks the consumer that they share, and nothing else: what it says of pull requests and jobs, and what that cannot tell, is in
// the fields' comments. That nobody answers is an error, never "no workers".
//
// # Loss of data
//
// JOBS and RESULTS may lose what was confirmed: all of it with their volume, or the end that was not on disk when the machine crashed.
// Each of these tells, and is logged and counted once:
//
//	identity   the stream was created at another time than the one known here, whoever made it anew
//	length     its last sequence is below one that it is known to have had: by a look, a PubAck, a job read or a result delivered
//	order      it gives a sequence again: to a job published after one had it, or to a result that was stored at another time than the
//	           one that had come with it, among the latest 4,096. This finds a lost end also if as much was stored since
//
// Identity and length are looked at after each reconnect, until that succeeds, and before what is made anew is used: on a single server
// a connection is lost before data is. They are looked at every 10 s too, which is for streams that others delete and for a cluster,
// where another node's loss breaks no connection of ours. What a cluster says while the stream has no leader is no evidence: any server
// answers then, also one that lags. Losses grows before LossNoticed tells; whoever keeps in mind that a job was
// stored keeps what Losses said before the publish, and Recover is for what was kept with less. Without a loss nothing grows, and
// nothing is looked up.
//
// A delivery from before a noticed loss is not settled: its sequence may be that of another result by now, and the server asks for no
// more. If its message is still there, it comes again after AckWait. Withdraw deletes by sequence, too, and not after a noticed loss. Of one
// that is not noticed yet it may delete another job, which whoever published it before noticing looks up then.
//
// Not seen: messages that somebody deletes or purges; a lost end of RESULTS of which nothing had come here yet, and one of JOBS that
// another bus has filled before the look. Then time-outs end the attempts. A worker's acknowledgement of a lost job may, by its
// sequence, take out one that another worker of the topic has; it is lost if that worker dies, too.
//
// # Failure handling
//
//   - NATS away: every call fails at once with ErrUnreachable inside a *RetryError. Nothing is buffered for later, since a
//     job published after its caller gave up would be a surprise. An ack or NAK that is lost costs one AckWait.
//   - A stream or a consumer that vanished is created again: on the next publish, recovery, subscription or look.
//   - Settings of a stream or consumer that differ from ours are reported (*DriftError, log) and left alone, but for a consumer of
//     results that may have less unsettled than Config says: earlier versions made it so, and it gets our bound if the server lets it.
//   - A subscription that gets nothing for 10 s while messages wait is built anew.
//   - The end of Consume: pulling stops, unsettled deliveries are NAKed, settlements under way are waited for.
package bus
