// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"math"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// divideParts is into how many parts Divide cuts what all streams may take together.
const divideParts = 64

// Divide gives each stream its part of the bytes that all of them together may take of a server. A
// stream that is full refuses what comes, and the others go on. Payloads have most: outputs stay
// for as long as their runs. Results have as much as jobs: the operator gets on by them, also while
// no job finds room. 0: no stream has a limit.
func Divide(total int64) MaxBytes {
	part := total / divideParts
	return MaxBytes{Jobs: 16 * part, Results: 16 * part, DeadLetters: 4 * part, Control: part, Payloads: 27 * part}
}

// bound gives a stream of ours the limit that it is to have, if it has none, or a smaller one. What
// holds more than that stays as it is, and so does what the server cannot keep that much room for:
// no message is lost by a limit, and nobody stops for one. Both are drift.
func bound(ctx context.Context, c *Conn, s jetstream.Stream, got jetstream.StreamConfig, limit int64) jetstream.StreamConfig {
	switch has, holds := got.MaxBytes, s.CachedInfo().State.Bytes; {
	case limit <= 0 || has >= limit:
		return got
	case leaderless(s.CachedInfo()): // nobody knows what it holds
		c.raises.later(c.Clock.Now())
		return got
	case holds > uint64(limit):
		c.Log.Info("Stream gets no limit, as it holds more than that", "stream", got.Name, "limit", limit, "holds", holds)
		return got
	}
	updated, err := improve(ctx, c, s, func(bounded *jetstream.StreamConfig) { bounded.MaxBytes = max(bounded.MaxBytes, limit) })
	if err != nil {
		c.raises.later(c.Clock.Now())
		refused(c, "Stream gets no limit", got.Name, err, "limit", limit)
		return got
	}
	c.Log.Info("Stream has a limit", "stream", got.Name, "limit", limit, "before", got.MaxBytes)
	return updated
}

// boundSubjects is bound for messages of one subject. It lowers what the operator may have given a
// stream that could hold more, and raises what it gave before the bytes were raised from what they
// were. Any other is an administrator's own.
func boundSubjects(
	ctx context.Context, c *Conn, s jetstream.Stream, got, want jetstream.StreamConfig, before int64,
) jetstream.StreamConfig {
	limit, has := dueOnSubject(want, got), got.MaxMsgsPerSubject
	switch {
	case limit == 0 || has == limit || has > maxLettersPerSubject, has > 0 && has < limit && has != lettersPerSubject(before):
		return got
	case leaderless(s.CachedInfo()):
		c.raises.later(c.Clock.Now())
		return got
	}
	err := spares(ctx, c, s, limit)
	var updated jetstream.StreamConfig
	if err == nil {
		updated, err = improve(ctx, c, s, func(bounded *jetstream.StreamConfig) { bounded.MaxMsgsPerSubject = limit })
	}
	if err != nil {
		c.raises.later(c.Clock.Now())
		refused(c, "Stream gets no limit of messages of one subject", got.Name, err, "limit", limit)
		return got
	}
	c.Log.Info("Stream has a limit of messages of one subject", "stream", got.Name, "limit", limit, "before", has)
	return updated
}

// redrivable is the reason of dead letters that may be redriven; deadletters.Reason...
const redrivable = "DeliveriesExhausted"

// errHoldsMore says that a limit would lose letters that may be redriven.
var errHoldsMore = errors.New("a run has more dead letters that may be redriven")

// spares says whether a limit loses no letter that may be redriven. Those of before are on one
// subject of their run; now each attempt has its own. The others may be lost. It asks only if one
// subject may have more.
func spares(ctx context.Context, c *Conn, s jetstream.Stream, limit int64) error {
	if s.CachedInfo().State.Msgs <= uint64(limit) {
		return nil
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(c.Names.Prefix+".deadletters."+redrivable+".*"))
	if err != nil {
		return err
	}
	for _, messages := range info.State.Subjects {
		if messages > uint64(limit) {
			return errHoldsMore
		}
	}
	return nil
}

// unbounded makes a stream without a limit which could not be made with one: without it no operator
// starts. The first error stands beside that of the second try.
func unbounded(limit int64, err error, create func() error) error {
	if _, refused := errors.AsType[*jetstream.APIError](err); !refused || limit <= 0 ||
		errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) || errors.Is(err, jetstream.ErrBucketExists) {
		return err
	}
	if again := create(); again != nil {
		return errors.Join(err, again)
	}
	return nil
}

// StreamBytes is what a stream holds and may hold, in bytes. A Limit of 0 is none.
type StreamBytes struct{ Holds, Limit int64 }

// JobsBytes is the stream of jobs as last seen: when streams were ensured, and every ten seconds.
// Zero: it was not.
func JobsBytes(c *Conn) StreamBytes {
	if seen := c.jobs.Load(); seen != nil {
		return *seen
	}
	return StreamBytes{}
}

// sawJobs notes what the stream of jobs holds, and may hold.
func sawJobs(c *Conn, info *jetstream.StreamInfo, limit int64) {
	if info.Config.Name == c.Names.JobsStream() && !leaderless(info) {
		c.jobs.Store(&StreamBytes{Holds: int64(min(info.State.Bytes, math.MaxInt64)), Limit: max(0, limit)})
	}
}

// Codes of the API's errors by which a publish is refused for want of room. The client library has
// no names for them.
const (
	codeAccountFull jetstream.ErrorCode = 10002 // the limits of the account are reached
	codeServerFull  jetstream.ErrorCode = 10023 // max_file or max_mem of the server is reached
	codeStoreFailed jetstream.ErrorCode = 10077 // why is in the description
)

// noRoom says whether NATS refused a message because a stream, the account or the server is full.
func noRoom(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return false
	}
	switch api.ErrorCode {
	case codeAccountFull, codeServerFull:
		return true
	case codeStoreFailed:
		return strings.HasPrefix(api.Description, "maximum bytes") || strings.HasPrefix(api.Description, "maximum messages exceeded")
	default:
		return false
	}
}
