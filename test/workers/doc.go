// SPDX-License-Identifier: Apache-2.0

// Package workers is the conformance kit for workers in any language. It plays the operator against
// one worker of one topic and says of every sentence of docs/protocol.md that a worker can break
// whether this one keeps it. docs/workers.md is its manual: how to write a worker, and what its
// test topic has to do.
//
//	            internal/bus                      the worker under test
//	kit ──────> streams, jobs, tokens, cancel ──> (a process, or anything that runs)
//	 ^                                                │
//	 └── tap: every result and every ack, in order <──┘
//
// # How it sees
//
//   - Streams, the shape of jobs and the settings of the topic's consumer come from internal/bus
//     and nowhere else. Two settings differ: AckWait, so that nobody waits half a minute, and the
//     window of Msg-Ids of JOBS, so that a job can be delivered again.
//   - The tap is a plain subscription to results, acknowledgements, control messages and chunks of
//     outputs. One connection's messages come to it in the order in which that connection sent
//     them, so "before" and "after" are facts.
//   - What survives a restart of NATS is read from the streams: the tap is away as long
//     as its server.
//
// # Guarantees
//
//   - A check judges one sentence. A worker that breaks only that sentence fails only that check;
//     the tests show it with one wrong worker for each.
//   - No check rests on a pause: it ends when what it waits for has happened, or
//     after Config.Patience.
//   - On a machine that is too busy for its AckWait, a check that failed is done again with more
//     time (see pace.go): what it found there says nothing about the worker. What passed has
//     passed: a check whose moment had gone by says that it could not tell.
//   - After a check that failed, what is left in the queue is withdrawn and a worker that the kit
//     started is replaced.
//   - The kit deletes streams, so it refuses to touch streams that are there
//     already, unless Config.Reset.
package workers
