// SPDX-License-Identifier: Apache-2.0

package liveness

import "time"

// Workers is what the server knows of the workers of a topic, from one look at the consumer that
// they share. It sees pull requests and jobs, never workers. All times are the server's, and all
// that happened before it started, or before another server took over the consumer, it has
// forgotten: the times are then zero.
type Workers struct {
	// Exists: the topic has its consumer. If not, nobody can pull, and all other fields are zero.
	// internal/bus/jobs makes it with the first job.
	Exists bool
	// Pulling is how many pull requests wait at the server. It is not the number of workers: one
	// may have several requests, and one whose places are all taken has none. A worker has none for
	// a moment between two, and one that asks without waiting is never seen. The server drops
	// requests that expired or whose client closed its connection before it counts. A client that
	// vanished without closing, as when its machine lost power, counts until its request expires:
	// 2 s with the workers of this project. Across gateways and leaf nodes any request counts for
	// its first 2 s.
	Pulling int
	// Queued is how many jobs were never delivered. While workers pull it is zero but for an
	// instant, unless as many jobs are unanswered as the consumer allows.
	Queued int
	// Busy is how many jobs were delivered and not answered. The server never gives up on them by
	// itself (nats-server #6093): a job counts also when its worker died, or gave it back, until
	// another one has done it. LastSign says whether somebody is there.
	Busy int
	// MaxBusy is how many jobs may be delivered and not answered; 0: any number. Beyond it the
	// server gives none to workers that pull.
	MaxBusy int

	// Deliveries counts all deliveries, those of the same job again included.
	Deliveries uint64
	// Reached grows when a job is delivered that never was before. It is a place in the stream, so
	// it counts nothing.
	Reached uint64
	// LastSign is when a job was last delivered, or a worker last said that one is in progress
	// (each third of AckWait, by the protocol) or gave one back with a delay. So with Busy jobs and
	// no sign for longer than that, nobody works at any of them.
	LastSign time.Time
	// LastAck is when a worker last ended a job: it is done, or no job, or nobody wants it.
	LastAck time.Time
	// AckWait is how long a worker may be silent before its job goes to another one.
	AckWait time.Duration
	// At is when the server looked, by the same clock as the times above.
	At time.Time
}
