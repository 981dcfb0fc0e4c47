// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"errors"
	"fmt"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// MaxInputBytes limits the input of a job.
const MaxInputBytes = 256 << 10

// Sentinels. "Retry" says whether the same call may succeed later. bus.ErrInvalidJob
// is another one.
var (
	// ErrInputTooLarge: a job's input exceeds MaxInputBytes. No retry: it is the user's mistake.
	ErrInputTooLarge = errors.New("job input is too large")
	// ErrTooManyTopics: the job's topic is new, and there are Options.MaxTopics. Retry: unused ones
	// go after Options.TopicInactivity.
	ErrTooManyTopics = errors.New("too many topics")
	// ErrDeadlinePassed: the job's deadline is over, and its result would not be awaited. No retry.
	ErrDeadlinePassed = errors.New("deadline of the job has passed")
	// ErrRecentlyGone: a job is neither queued nor answered, but the server still remembers its
	// Msg-Id and would drop it as a duplicate. Retry: after the duplicate window it is published.
	ErrRecentlyGone = errors.New("job left the queue without a result a moment ago")

	// ErrInPart: a look for jobs failed after NATS had answered a part of it. Retry.
	ErrInPart = errors.New("the look was answered in part")

	// errFenceGone: the fence message of an epoch is not in the stream, as far as the server knows
	// that answered. Retry.
	errFenceGone = errors.New("the fence message of the job is not there")
)

// FencedError refuses the dispatch of an attempt: a writer with a higher fence has begun to recover
// it. Whoever gets it is not the holder any more, or has to become it anew with a fence above By.
// The same call never succeeds later.
type FencedError struct {
	ID        protocol.JobID
	Fence, By int64 // of the caller, and of the other
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("job %s: a writer with fence %d has taken over from fence %d", e.ID, e.By, e.Fence)
}
