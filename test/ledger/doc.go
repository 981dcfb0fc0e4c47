// SPDX-License-Identifier: Apache-2.0

// Package ledger proves what becomes of results, with operators as processes against a real API
// server, a real Redis and a nats-server that is a process of its own, so that it can be killed. It
// has tests and benchmarks only.
//
//	test process                                         processes that can die
//	clerks (workers) --- jobs, results, PubAcks ------->  nats-server  <---> operator <---> redis-server
//	   | every result, every PubAck                                             |
//	ledger                                                                      v
//	   ^ every status write, by a watch <----------------------------------  API server
//
// # The ledger
//
// A plan says how each attempt of each step of each run ends: Succeeded, Failed, Retry, or finally
// Failed. It follows from a seed; LEDGER_SEED=<seed> runs the same plan again. Clerks work by the
// plan and the protocol (docs/protocol.md). They are slow now and then, forget to acknowledge jobs,
// and publish results again: at once and late, with the same Msg-Id and with others, with the same
// content and with another. Each result carries a value that no other has. Meanwhile the operator
// and NATS are killed, restarted and stopped.
//
// In the end the judge, a pure function with tests of its own, compares what was published with
// each status write:
//
//   - G1: an attempt of which some result was confirmed by a PubAck has an effect.
//   - G2: it has one effect, by one of its own results. Neither a copy nor a late result changes
//     anything any more.
//   - Its job was dispatched once: an operator that loses a result may not hide it by having the
//     job done again.
//   - The final statuses count the attempts and failures of the plan, no more and no less.
//   - No result is left in its stream, and none became a dead letter.
//
// # The others
//
//   - A hot run: what 1,000 results of one run do to the latency of others.
//   - Bad input: whatever is wrong with a message, it ends as a refusal or a dead letter
//     with a reason, soon; the good result of the same job still counts; and messages behind
//     it do not wait.
//   - A cache that is behind: a result whose run the operator has never heard of is kept
//     until it has.
//
// # Benchmarks
//
// The full sizes: 20,000 results of 500 runs (some minutes), 1,000 cold runs beside a hot one,
// 1,000 results behind poison. Figures depend on the machine; those of the hot run are ratios, and
// come with a control: the hot run's status writes, made by somebody else.
//
//	go test ./test/ledger -run '^$' -bench . -benchtime 1x -timeout 60m
package ledger
