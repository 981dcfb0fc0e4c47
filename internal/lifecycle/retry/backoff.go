// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Backoff is the wait after failure number n (from 1) of the attempt id: min(max, initial *
// (factor/100)^(n-1)), spread uniformly by +-jitter. The jitter is a hash of the job id: pure,
// and yet different for each step, run and attempt, so that runs that failed together do not
// come back together.
func Backoff(b v1alpha1.Backoff, n int32, id protocol.JobID) time.Duration {
	base, spread := spreadWait(b, n)
	return base - spread + time.Duration(fraction(id, uint64(2*spread)+1))
}

// spreadWait is the wait after failure number n, and how much the jitter adds or takes at the most.
func spreadWait(b v1alpha1.Backoff, n int32) (base, spread time.Duration) {
	limit := clamp(bounds.ValueOr(b.MaxMillis, bounds.DefaultMaxMillis), 0, bounds.MaxBackoffMillis)
	factor := clamp(int64(bounds.PositiveOr(b.FactorPercent, bounds.DefaultFactorPercent)), 100, 1000)
	wait := clamp(bounds.ValueOr(b.InitialMillis, bounds.DefaultInitialMillis), 0, limit)
	for ; n > 1 && wait < limit && wait > 0 && factor > 100; n-- {
		// +99 rounds up: without it a wait of a few milliseconds would never grow.
		wait = min(limit, (wait*factor+99)/100)
	}
	percent := clamp(int64(bounds.ValueOr(b.JitterPercent, bounds.DefaultJitterPercent)), 0, 100)
	base = time.Duration(wait) * time.Millisecond
	return base, base * time.Duration(percent) / 100
}

// Longest is the longest wait that a job can have been given whose failures are n: after the last
// of them, or because a worker asked for it, for at most limit.
func Longest(b v1alpha1.Backoff, n int32, limit time.Duration) time.Duration {
	if n < 1 {
		return limit
	}
	base, spread := spreadWait(b, n)
	return max(base+spread, limit)
}

// fraction is a number in [0, n) that depends on id only.
func fraction(id protocol.JobID, n uint64) uint64 {
	sum := sha256.Sum256([]byte(id.String()))
	hi, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:8]), n)
	return hi
}

// After is the wait that a worker asked for with Retry, capped.
func After(millis int64, limit time.Duration) time.Duration {
	return time.Duration(clamp(millis, bounds.MinRetryAfter.Milliseconds(), limit.Milliseconds())) * time.Millisecond
}

func clamp(v, low, high int64) int64 { return max(low, min(v, high)) }
