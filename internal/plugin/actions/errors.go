// SPDX-License-Identifier: Apache-2.0

package actions

import "fmt"

// UselessError is returned for what could have no effect, as a decision about a step that is over.
// To try again does not help.
type UselessError struct{ reason string }

// Error is the reason.
func (e *UselessError) Error() string { return e.reason }

func useless(format string, values ...any) error {
	return &UselessError{fmt.Sprintf(format, values...)}
}
