// SPDX-License-Identifier: Apache-2.0

package results

import (
	"slices"
	"unicode/utf8"

	"github.com/syncopate-dev/syncopate/internal/document"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// largeResult is from how many bytes on the output is taken out of a body before the rest is
// decoded. What is read here is read before anybody knows whether there is room for it, one result
// of a partition after the other: a flood of large ones must not hold up the others.
const largeResult = 4 << 10

// decodeResult reads a body as protocol.DecodeResult does. The output is part of the body
// and no copy.
func decodeResult(body []byte) (protocol.Result, error) {
	outline, output, ok := outlineOf(body)
	if !ok {
		return protocol.DecodeResult(body)
	}
	r, err := protocol.DecodeResult(outline)
	if err == nil {
		r.Output = output
	}
	return r, err
}

// outlineOf is a body with a short output instead of its own, and that; not ok: it is to be decoded
// as it is.
func outlineOf(body []byte) (outline, output []byte, ok bool) {
	if len(body) < largeResult || !utf8.Valid(body) {
		return nil, nil, false
	}
	fields, ok := document.Fields(body)
	if !ok {
		return nil, nil, false
	}
	begin := 0
	for _, f := range fields {
		if f.Key == "output" { // of several the last one counts
			output, begin = f.Value, f.At
		}
	}
	if len(output) < largeResult/2 {
		return nil, nil, false // the size is elsewhere
	}
	return slices.Concat(body[:begin], []byte("0"), body[begin+len(output):]), output, true
}
