// SPDX-License-Identifier: Apache-2.0

package bus

import "github.com/nats-io/nats.go/jetstream"

// The limit of dead letters on one subject. Whoever may publish results makes letters of two
// subjects without a token, and of a run's own with one. What may be redriven has a subject of its
// attempt, so that this limit does not lose it. letterCost is what a letter that can never
// be applied takes at most, in bytes; see deadletters.Writer.
const (
	maxLettersPerSubject = 10_000
	letterCost           = 5 << 10
	forgedSubjects       = 2
	forgedPart           = 4 // of the stream, one part in so many is for forged letters
)

// lettersPerSubject is the limit of dead letters on one subject, of a stream of so many bytes; 0:
// it has no limit.
func lettersPerSubject(bytes int64) int64 {
	if bytes <= 0 {
		return maxLettersPerSubject
	}
	return min(maxLettersPerSubject, max(1, bytes/(forgedPart*forgedSubjects*letterCost)))
}

// dueOnSubject is the limit of messages on one subject that a stream is to have. It follows from
// the bytes that it may hold, which an administrator may have given it. 0: none.
func dueOnSubject(want, got jetstream.StreamConfig) int64 {
	if want.MaxMsgsPerSubject > 0 && got.MaxBytes > 0 {
		return lettersPerSubject(got.MaxBytes)
	}
	return max(0, want.MaxMsgsPerSubject)
}
