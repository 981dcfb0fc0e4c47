// SPDX-License-Identifier: Apache-2.0

// Package worker is the Go SDK for workers of Syncopate: programs that do the jobs
// of workflow steps.
//
//	nc, err := worker.Connect(os.Getenv("NATS_URL"))
//	w := worker.New(nc, worker.Options{})
//	w.Handle("http.fetch", fetch, worker.Concurrency(8))
//	err = w.Run(ctx)
//
// It speaks the protocol of docs/protocol.md, which any language can speak, and knows nothing of
// the operator but that.
//
// # What happens to a job
//
//	 pull ──> deadline passed? ──────────────────────────────────────> ack
//	  │ no
//	  ├── publish Started, again until there is a PubAck
//	  ├── InProgress every third of AckWait, at most a minute, from here to the end
//	  v
//	handler ──> value, error or panic ──> publish ONE result ──> PubAck ──> ack
//	  │            │ over 64 KiB               │ no PubAck: again, with backoff
//	  │            └─> object store, PubAcks ──┤ (the result carries a reference)
//	  ├── cancelled by the operator ───────────┼──────────────────────> ack, no result
//	  ├── deadline passed ─────────────────────┴──────────────────────> ack, no result
//	  └── worker stops, grace period over ────────────────────────────> NAK: another worker gets it
//
// # Guarantees
//
//   - A job is acknowledged only after the server confirmed its result, or when nobody waits for
//     one any more.
//   - A result that refers to a large output is published only after the server confirmed the whole
//     object. The object's name has the digest of the output in it, so doing a job again with the
//     same output changes nothing.
//   - A worker that dies, at whatever moment, loses nothing: the server gives the job to another
//     after AckWait. A handler may therefore see a job twice, and should do no harm then; Job.ID is
//     the same both times. It does so one after the other, unless another process has the job, too.
//   - At most Concurrency handlers of a topic run in this process, and no more jobs than that are
//     taken from the server.
//   - A handler's panic is a failed attempt, not the end of the worker; so is one of its error or
//     value, when that is read. A handler that ends its goroutine gets the job again after AckWait.
//   - Run returns only when every handler returned, so it relies on handlers that
//     mind their context.
//
// # What a handler returns
//
// A value, which becomes the step's output as JSON of at most 8 MiB, or an error: Fail gives it a
// code, Final forbids a retry, RetryAfter says "not now" without counting as a failure. Every error
// with a method RetryDelay() time.Duration in its chain of %w means the same as RetryAfter. Any
// other error is a failed attempt, retried as the step says.
//
// # Large outputs of earlier steps
//
// A job's input may hold a reference to an output (steps.<name>.outputRef in the workflow) in
// the place of the output itself. Decode it into a protocol.OutputRef, and Job.Payload reads
// what it refers to.
package worker
