// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// Canonical is the value in the form in which the API server hands it back: keys in order, 1.0 as
// 1, no blanks, < > & and what ends a line in JavaScript escaped. Its error is that of a number
// beyond float64. pause is called now and then if it is not nil.
func (v Value) Canonical(pause func()) ([]byte, error) {
	w := writer{to: make([]byte, 0, len(v.doc.text)), most: math.MaxInt, rest: pausing(pause)}
	err := w.value(v)
	return w.to, err
}

// Plain is Canonical with < > & and what ends a line in JavaScript as they are: for what the API
// server does not store. Its error wraps ErrTooLarge if it would have more than most bytes: of 1e20
// it makes 21 digits. What is not to be handed out is not written either.
func (v Value) Plain(most int, pause func()) ([]byte, error) {
	w := writer{to: make([]byte, 0, len(v.doc.text)), plain: true, most: most, rest: pausing(pause)}
	if err := w.value(v); err != nil {
		return nil, err
	}
	if len(w.to) > most {
		return nil, ErrTooLarge
	}
	return w.to, nil
}

// writer appends values in their canonical form.
type writer struct {
	to    []byte
	plain bool
	most  int // bytes, from which on it stops
	rest  pauses
}

func (w *writer) value(v Value) error {
	if len(w.to) > w.most {
		return ErrTooLarge
	}
	w.rest.at(len(w.to))
	switch v.Kind() {
	case List:
		return w.list(v)
	case Object:
		return w.object(v)
	case Number:
		n, err := v.Number()
		if err != nil {
			return err
		}
		w.to = appendNumber(w.to, n)
	case String:
		w.string(v)
	default:
		w.to = append(w.to, v.doc.raw(v.node)...)
	}
	return nil
}

func (w *writer) list(v Value) error {
	w.to = append(w.to, '[')
	for i := range v.Len() {
		if i > 0 {
			w.to = append(w.to, ',')
		}
		if err := w.value(v.Index(i)); errors.Is(err, ErrTooLarge) {
			return err // it says nothing of a place
		} else if err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	w.to = append(w.to, ']')
	return nil
}

func (w *writer) object(v Value) error {
	w.to = append(w.to, '{')
	for i := range v.Len() {
		if i > 0 {
			w.to = append(w.to, ',')
		}
		key := Value{v.doc, v.doc.nodes[int(v.node.at)+2*i]}
		w.string(key)
		w.to = append(w.to, ':')
		if err := w.value(v.At(i)); err != nil {
			return err
		}
	}
	w.to = append(w.to, '}')
	return nil
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

// string writes a string with its quotes.
func (w *writer) string(v Value) {
	raw := v.doc.raw(v.node)
	if v.node.kind() != escaped && (w.plain || !toEscape(raw)) {
		w.to = append(append(append(w.to, '"'), raw...), '"')
		return
	}
	w.to = append(w.to, '"')
	c := cursor{text: raw}
	for r, ok := c.next(); ok; r, ok = c.next() {
		if w.plain && isScript(r) {
			w.to = utf8.AppendRune(w.to, r)
		} else {
			w.to = appendRune(w.to, r)
		}
		w.rest.at(len(w.to))
	}
	w.to = append(w.to, '"')
}

// toEscape says whether a text that is not escaped has something that is to be. One search for each
// is five times as fast as one for all.
func toEscape(raw []byte) bool {
	return bytes.IndexByte(raw, '<') >= 0 || bytes.IndexByte(raw, '>') >= 0 || bytes.IndexByte(raw, '&') >= 0 ||
		bytes.Contains(raw, []byte("\u2028")) || bytes.Contains(raw, []byte("\u2029"))
}

// isScript says whether a rune is one that the API server escapes though JSON has no need of it.
func isScript(r rune) bool {
	return r == '<' || r == '>' || r == '&' || r == '\u2028' || r == '\u2029'
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
	}
	if r < ' ' || isScript(r) {
		return appendEscaped(to, r)
	}
	return utf8.AppendRune(to, r)
}

// appendEscaped appends a rune of 16 bits by its number.
func appendEscaped(to []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(to, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
