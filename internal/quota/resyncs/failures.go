// SPDX-License-Identifier: Apache-2.0

package resyncs

import "time"

const (
	// Retry is the time until the next resync after one that failed.
	Retry = time.Second
	// maxRetry bounds it where Redis cannot be used.
	maxRetry = 30 * time.Second
	// logPause is the least time between two failures in a row that are logged.
	logPause = 30 * time.Second
)

// Failures are resyncs that failed, one after the other.
type Failures struct {
	unusable  time.Duration // the last pause for which Redis was left alone; 0: it was usable
	silent    time.Duration // pauses since a failure was logged
	logs, any bool
}

// Next is the pause after one more that failed. Redis may be unusable because of what a resync
// asks: so after each that finds it so the pause is twice as long, up to 30 s.
func (f *Failures) Next(unusable bool) time.Duration {
	if f.logs = !f.any || f.silent >= logPause; f.logs {
		f.silent = 0
	}
	f.any = true
	pause := Retry
	if unusable {
		f.unusable = min(maxRetry, max(Retry, 2*f.unusable))
		pause = f.unusable
	}
	f.silent += pause
	return pause
}

// Logs says whether the last one is to be logged.
func (f *Failures) Logs() bool { return f.logs }
