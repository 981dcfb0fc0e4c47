// SPDX-License-Identifier: Apache-2.0

// Package jobs is the stream of jobs. A Queue publishes jobs, recovers and withdraws them, tells
// workers to stop, and says what workers of a topic do.
//
//	Publish ──> <PREFIX>_JOBS ──> consumer of the topic ──> workers
//	Recover ──> is it in JOBS? ──no──> is it answered? ──no──> Publish
//	Withdraw, List <── <PREFIX>_JOBS          Cancel ──> <PREFIX>_CONTROL ──> workers
//
// # Guarantees
//
//   - A job is stored at most once in each epoch of its attempt, and in the last one only. The
//     window of Nats-Msg-Id is an optimisation: a work queue forgets the ids of acknowledged
//     messages when the server restarts, and jobs outlive any window.
//   - Recover publishes only what is neither queued nor answered. The leader of each stream
//     says so, JOBS first. Started is no answer: a job that a worker has is in JOBS until
//     it is answered.
//   - Withdraw deletes by sequence, and not after a noticed loss of JOBS. Of a loss that is not
//     noticed yet it may delete another job. Its publisher looks it up when the loss is noticed.
//
// # Epochs of a dispatch
//
// Fence stores a fence message of an attempt in JOBS. This begins a new epoch. JOBS takes a job or
// a fence message only if its sender names the last message about the attempt (Job.Epoch; 0: none).
// So what was published in an earlier epoch is refused, however late it comes: by a process that
// was paused, or from a connection that its sender has given up.
//
//	P publishes a job (0) ...          ... is resumed, and JOBS has the fence message: refused
//	Q            fence (0) -> N, looks, publishes (N), a worker does the job, its result is settled
//
// A fence message has the fence of its sender. One with a lower fence than the last message is not
// sent: *FencedError. The look into JOBS that follows counts only if the server that answers has
// the fence message. Fence messages are on the subject of the job with another first word of the
// topic, which no topic can have. They vanish an hour after the deadline of the attempt, from which
// on workers drop its job. Fence deletes the one before. In a cluster a message that is on its way
// keeps others about the same attempt out.
//
// The leader of RESULTS answers the second look. A new leader has all that was confirmed before it
// answers (nats-server 2.15; tested). One that was paused, and has not heard yet that it leads no
// more, may miss the last results. A job whose recovery meets that moment may be done twice.
//
// # Workers of a topic
//
// Workers asks the consumer that they share, and nothing else. The comments of its fields say what
// pull requests and jobs can show, and what they cannot. If NATS does not answer, this is an error,
// never "no workers".
package jobs
