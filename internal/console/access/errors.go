// SPDX-License-Identifier: Apache-2.0

package access

import "errors"

var (
	// ErrUnknown is returned when it is not known who asks. To try again helps with other
	// credentials only.
	ErrUnknown = errors.New("who asks is not known")
	// ErrRefused is returned for who is known, and may not use the console so.
	ErrRefused = errors.New("refused")
	// ErrBusy is returned when too many ask. To try again helps after a while.
	ErrBusy = errors.New("too many ask who they are")
)
