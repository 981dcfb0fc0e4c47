// SPDX-License-Identifier: Apache-2.0

package jobs

import "github.com/syncopate-dev/syncopate/pkg/protocol"

// fixedBytes is what a job takes in its stream beside what StoredBytes counts: the record of the
// store, the names of its headers, and those of their values that have about one length, as the
// token has.
const fixedBytes = 600

// fenceFixed is what a fence message takes beside its ids and topics: records, names of headers,
// and values of about one length.
const fenceFixed = 300

// FenceBytes is about what the fence message of a job takes of the stream, see StoredBytes:
// some 500 bytes.
func FenceBytes(j Job) int64 { return int64(fenceFixed + 2*len(j.ID.String()) + 2*len(j.Topic)) }

// StoredBytes is about what a job with an input of so many bytes takes of its stream: for 1,000
// bytes 1,700 or so. It is more rather than less.
//
// It counts as nats-server 2.15 does where it compares a stream with its limit: the lengths of
// subject, headers and data, and 34 bytes for the record in a file, or 16 in memory (the raw sizes
// of messages in its file store and memory store). A stream with replicas counts each message once.
func StoredBytes(j Job, input int) int64 {
	const ids, topics = 6, 2 // how often the job's id and its topic are in subject and headers
	n := fixedBytes + max(input, len("{}")) + ids*len(j.ID.String()) + topics*len(j.Topic) + len(j.Source)
	for _, lock := range j.Locks {
		n += len(lock) + len(protocol.HeaderLockFence+": \r\n")
	}
	return int64(n)
}
