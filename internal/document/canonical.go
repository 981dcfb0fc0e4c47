// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// AppendCanonical appends the value in the form in which the API server hands it back: keys in
// order, 1.0 as 1, no blanks, < > & and what ends a line in JavaScript escaped. Its error is that
// of a number beyond float64.
func (v Value) AppendCanonical(to []byte) ([]byte, error) {
	switch v.Kind() {
	case List:
		return v.appendList(to)
	case Object:
		return v.appendObject(to)
	case Number:
		n, err := v.Number()
		if err != nil {
			return nil, err
		}
		return appendNumber(to, n), nil
	case String:
		return v.appendString(to), nil
	default:
		return append(to, v.doc.raw(v.node)...), nil
	}
}

func (v Value) appendList(to []byte) (_ []byte, err error) {
	to = append(to, '[')
	for i := range v.Len() {
		if i > 0 {
			to = append(to, ',')
		}
		if to, err = v.Index(i).AppendCanonical(to); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return append(to, ']'), nil
}

func (v Value) appendObject(to []byte) (_ []byte, err error) {
	to = append(to, '{')
	for i := range v.Len() {
		if i > 0 {
			to = append(to, ',')
		}
		key := Value{v.doc, v.doc.nodes[int(v.node.at)+2*i]}
		to = append(key.appendString(to), ':')
		if to, err = v.At(i).AppendCanonical(to); err != nil {
			return nil, err
		}
	}
	return append(to, '}'), nil
}

// appendNumber writes a number as encoding/json does, but for -0, which is read as 0 the next time.
func appendNumber(to []byte, n any) []byte {
	if i, whole := n.(int64); whole {
		return strconv.AppendInt(to, i, 10)
	}
	f, _ := n.(float64)
	if f == 0 {
		return append(to, '0')
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(to, f, 'f', -1, 64)
	}
	before := len(to)
	to = strconv.AppendFloat(to, f, 'e', -1, 64)
	if n := len(to); n-before >= 4 && to[n-4] == 'e' && to[n-3] == '-' && to[n-2] == '0' { // e-09 is e-9
		to[n-2] = to[n-1]
		to = to[:n-1]
	}
	return to
}

// appendString writes a string with its quotes.
func (v Value) appendString(to []byte) []byte {
	raw := v.doc.raw(v.node)
	to = append(to, '"')
	if v.node.kind() != escaped && !toEscape(raw) {
		return append(append(to, raw...), '"')
	}
	c := cursor{text: raw}
	for r, ok := c.next(); ok; r, ok = c.next() {
		to = appendRune(to, r)
	}
	return append(to, '"')
}

// toEscape says whether a text that is not escaped has something that is to be. One search for each
// is five times as fast as one for all.
func toEscape(raw []byte) bool {
	return bytes.IndexByte(raw, '<') >= 0 || bytes.IndexByte(raw, '>') >= 0 || bytes.IndexByte(raw, '&') >= 0 ||
		bytes.Contains(raw, []byte("\u2028")) || bytes.Contains(raw, []byte("\u2029"))
}

func appendRune(to []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(to, '\\', byte(r))
	case '\b':
		return append(to, `\b`...)
	case '\f':
		return append(to, `\f`...)
	case '\n':
		return append(to, `\n`...)
	case '\r':
		return append(to, `\r`...)
	case '\t':
		return append(to, `\t`...)
	case '<', '>', '&', '\u2028', '\u2029':
		return fmt.Appendf(to, `\u%04x`, r)
	}
	if r < ' ' {
		return fmt.Appendf(to, `\u%04x`, r)
	}
	return utf8.AppendRune(to, r)
}
