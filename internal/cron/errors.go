// SPDX-License-Identifier: Apache-2.0

package cron

import "fmt"

// FieldError says what is wrong with a cron text or a zone. There is no use in trying again.
type FieldError struct {
	// Field is what is wrong: minute, hour, day of month, month, day of week, text or zone.
	Field string
	// Value is the part of the text that is wrong, cut to maxQuoted bytes.
	Value string
	// Need says what is allowed.
	Need string
	// Index is the place of the text in a list of texts; -1: it is the zone.
	Index int
}

// maxQuoted bounds what an error repeats of a text.
const maxQuoted = 64

// Error implements error.
func (e *FieldError) Error() string {
	return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Need)
}

func wrong(field, value, need string) *FieldError {
	return &FieldError{Field: field, Value: value[:min(len(value), maxQuoted)], Need: need}
}
