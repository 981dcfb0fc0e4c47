// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"math"
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

// Last says whether a job is not tried again after this many failures, the last one with a code.
func Last(step *v1alpha1.Step, code string, failures int32) bool {
	retryable := len(step.Retry.OnCodes) == 0 || slices.Contains(step.Retry.OnCodes, code)
	return !retryable || failures >= bounds.PositiveOr(step.Retry.MaxFailures, bounds.DefaultMaxFailures)
}

// Code is an error code as status shows it.
func Code(code string) string {
	code = bounds.CutStored(bounds.Printable(code, bounds.MaxCodeChars), bounds.MaxCodeChars+len(`""`))
	if code == "" {
		return facts.CodeUnspecified
	}
	return code
}

// Inc counts one more, without an overflow.
func Inc(n int32) int32 {
	if n == math.MaxInt32 {
		return n
	}
	return n + 1
}
