// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"math"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mutation: n instead of n-1 steps of growth, or jitter on one side only, makes this fail.
func TestBackoff(t *testing.T) {
	with := func(initial int64, factor int32, limit int64, jitter int32) v1alpha1.Backoff {
		return v1alpha1.Backoff{InitialMillis: &initial, FactorPercent: factor, MaxMillis: &limit, JitterPercent: &jitter}
	}
	tests := map[string]struct {
		backoff   v1alpha1.Backoff
		n         int32
		low, high time.Duration
	}{
		"the first wait is the initial one": {with(1000, 200, 60000, 0), 1, time.Second, time.Second},
		"it doubles":                        {with(1000, 200, 60000, 0), 4, 8 * time.Second, 8 * time.Second},
		"it is capped":                      {with(1000, 200, 60000, 0), 1000, time.Minute, time.Minute},
		"it may stay":                       {with(1000, 100, 60000, 0), 1000, time.Second, time.Second},
		"a small one grows too":             {with(1, 110, 60000, 0), 3, 3 * time.Millisecond, 3 * time.Millisecond},
		"zero stays zero":                   {with(0, 200, 60000, 100), 9, 0, 0},
		"jitter spreads to both sides":      {with(1000, 200, 60000, 20), 1, 800 * time.Millisecond, 1200 * time.Millisecond},
		"full jitter starts at zero":        {with(1000, 200, 60000, 100), 1, 0, 2 * time.Second},
		"an absent one has the defaults":    {v1alpha1.Backoff{}, 2, 1600 * time.Millisecond, 2400 * time.Millisecond},
		"absurd values are bounded":         {with(math.MaxInt64, math.MaxInt32, math.MaxInt64, math.MaxInt32), math.MaxInt32, 0, 48 * time.Hour},
		"negative values are bounded":       {with(math.MinInt64, math.MinInt32, math.MinInt64, math.MinInt32), math.MinInt32, 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			least, most := time.Duration(math.MaxInt64), time.Duration(0)
			for attempt := range int32(2000) {
				d := Backoff(tt.backoff, tt.n, job("a", attempt+1))
				least, most = min(least, d), max(most, d)
			}
			if least < tt.low || most > tt.high {
				t.Errorf("[%s, %s], want within [%s, %s]", least, most, tt.low, tt.high)
			}
			if width := tt.high - tt.low; tt.n < 10 && (least > tt.low+width/50 || most < tt.high-width/50) {
				t.Errorf("[%s, %s] does not fill [%s, %s]", least, most, tt.low, tt.high)
			}
			once := Backoff(tt.backoff, tt.n, job("a", 1))
			if again := Backoff(tt.backoff, tt.n, job("a", 1)); again != once {
				t.Errorf("%s, then %s", once, again)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	for millis, want := range map[int64]time.Duration{
		-1: bounds.MinRetryAfter, 0: bounds.MinRetryAfter, 1500: 1500 * time.Millisecond, 3_600_000: time.Hour, 3_600_001: time.Hour, math.MaxInt64: time.Hour, math.MinInt64: bounds.MinRetryAfter,
	} {
		if got := After(millis, time.Hour); got != want {
			t.Errorf("retryAfter(%d) = %s, want %s", millis, got, want)
		}
	}
}

func job(step string, attempt int32) protocol.JobID {
	return protocol.JobID{RunUID: "u-1", Step: step, Item: protocol.NoItem, Attempt: attempt}
}
