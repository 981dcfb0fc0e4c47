// SPDX-License-Identifier: Apache-2.0

package document

import (
	"cmp"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// cursor reads the runes of a JSON string, without its quotes. What is no rune is U+FFFD,
// as in encoding/json.
type cursor struct {
	text []byte
	at   int
}

// next is the next rune; not ok: there is none.
func (c *cursor) next() (r rune, ok bool) {
	if c.at >= len(c.text) {
		return 0, false
	}
	if c.text[c.at] != '\\' {
		r, n := utf8.DecodeRune(c.text[c.at:])
		c.at += n
		return r, true
	}
	short := c.text[c.at+1]
	if short != 'u' {
		c.at += len(`\n`)
		return unescapedByte(short), true
	}
	r = c.unit()
	c.at += len(`\u0000`)
	if !utf16.IsSurrogate(r) {
		return r, true
	}
	pair := utf16.DecodeRune(r, c.unit())
	if pair != utf8.RuneError {
		c.at += len(`\u0000`)
	}
	return pair, true
}

// unit is the \uXXXX that stands at the cursor; U+FFFD if there is none, which is no half
// of a pair.
func (c *cursor) unit() rune {
	rest := c.text[c.at:]
	if len(rest) < len(`\u0000`) || rest[0] != '\\' || rest[1] != 'u' {
		return utf8.RuneError
	}
	n, err := strconv.ParseUint(string(rest[2:6]), 16, 32)
	if err != nil {
		return utf8.RuneError
	}
	return rune(n)
}

func unescapedByte(b byte) rune {
	switch b {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	default:
		return rune(b)
	}
}

// compare compares two texts by their runes, which is the order of their bytes.
func (c *cursor) compare(other *cursor) int {
	for {
		a, more := c.next()
		b, otherMore := other.next()
		switch {
		case !more && !otherMore:
			return 0
		case !more:
			return -1
		case !otherMore:
			return 1
		case a != b:
			return cmp.Compare(a, b)
		}
	}
}

// compareText compares with a text that is not escaped.
func (c *cursor) compareText(text string) int {
	for _, b := range text {
		a, more := c.next()
		if !more {
			return -1
		}
		if a != b {
			return cmp.Compare(a, b)
		}
	}
	if _, more := c.next(); more {
		return 1
	}
	return 0
}

func unescaped(raw []byte) string {
	var b strings.Builder
	b.Grow(len(raw))
	c := cursor{text: raw}
	for r, ok := c.next(); ok; r, ok = c.next() {
		b.WriteRune(r)
	}
	return b.String()
}
