// SPDX-License-Identifier: Apache-2.0

// Package bus is a connection to NATS JetStream and the streams on it. It is also the names, errors
// and classes of waits that the packages on top of it share. It does not import
// Kubernetes or Redis.
//
//	cmd/manager ──wires──┬──> jobs.Queue ─────────┐
//	                     ├──> results.Consumer ───┤
//	                     ├──> results.Reader ─────┼──> bus.Conn ──> NATS
//	                     ├──> payloads.Store ─────┤
//	                     └──> deadletters.Writer ─┘
//
//	jobs ──> <PREFIX>_JOBS ──> workers ──> <PREFIX>_RESULTS ──> results ──> <PREFIX>_DEADLETTERS
//
// Below the connection are losses, the evidence that a stream lost data, and beside it keys, which
// signs jobs and checks the tokens of results. Neither needs a server.
//
// # Guarantees
//
//   - Read is answered by the leader of a stream. A leader that was cut off, and has not noticed it
//     yet, may answer too.
//   - Store returns when the message is stored. A failure leaves open whether it was.
//   - Delete deletes no message that took the place of the one that was read, once the loss of the
//     stream is noticed: ErrStreamLost.
//   - Nothing is sent or taken while the streams are another installation's: *ForeignError.
//
// # Loss of data
//
// JOBS and RESULTS may lose what they had confirmed: all of it with their volume, or the end that
// was not on disk when the machine crashed. Package losses lists the evidence. Each loss is logged
// and counted once. So is one of the other streams, at the look every 10 s, but nothing follows
// from it: what was there is gone.
//
// WatchStreams looks at the streams after each reconnect, until that succeeds, and every 10 s. A
// stream that is made anew is looked at before it is used. On a single server a connection is lost
// before data is. The look every 10 s is for streams that others delete, and for a cluster, where
// the loss of another node breaks no connection of ours. While a stream has no leader any server
// answers, also one that lags: that is no evidence.
//
// Losses grows before LossNoticed has a value. Example: a run keeps what Losses said before the
// publish of its job. When Losses has grown, jobs.Queue.Recover looks the job up. Without a loss
// nothing grows, and nothing is looked up.
//
// Not seen are messages that an administrator deletes or purges, a lost end of RESULTS of which
// nothing had come here yet, and a lost end of JOBS that another process has filled before the
// look. Then runs find out: every five minutes they look for the jobs of their attempts in flight.
// A worker's acknowledgement of a lost job may, by its sequence, take out one that another worker
// of the topic has; it is lost if that worker dies, too.
//
// # Failure handling
//
//   - Without NATS every call fails at once with ErrUnreachable inside a *RetryError. Nothing is
//     buffered for later: a job that is published after its caller gave up would be a surprise.
//   - Watch asks NATS each second whether it answers. Two questions in a row without an answer are
//     an outage: calls under way fail, and new ones fail at once.
//   - A stream that vanished is created again: on the next publish, recovery, subscription or look,
//     two seconds after it was found to be gone. Until then a server may still be removing it, and
//     would take files of the new one along. All callers wait for the same end.
//   - Settings of a stream or consumer that differ from ours are reported (*DriftError, log) and
//     left alone. Only limits, replicas and bounds that are too low are raised. The bound of a
//     topic is raised where an operator gave it, and not where somebody chose it.
package bus
