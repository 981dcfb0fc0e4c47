// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// StoredBytes is the length of a string in JSON, at most.
func StoredBytes(s string) int {
	n := 2
	for _, r := range s {
		switch {
		case r < ' ' || strings.ContainsRune("<>&\u2028\u2029\"\\", r):
			n += len(`\u0000`)
		default:
			n += utf8.RuneLen(r)
		}
	}
	return n
}

// Cut bounds a text to n characters and makes it valid UTF-8.
func Cut(s string, n int) string {
	if len(s) > n*utf8.UTFMax {
		s = s[:n*utf8.UTFMax] // bounds the work on a text of any length
	}
	s = strings.ToValidUTF8(s, "?")
	last := 0 // where the last character begins that may be there
	for i := range s {
		switch n--; n {
		case 0:
			last = i
		case -1:
			return s[:last] + "…"
		}
	}
	return s
}

// CutBytes bounds a text to n bytes.
func CutBytes(s string, n int) string {
	s = Cut(s, MaxMessageChars)
	for len(s) > n {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// Printable bounds a text to n characters, and replaces those that control a terminal or the
// direction of text: what a user or a worker writes must not cut, colour or turn round the lines of
// whoever reads it. It cuts first: a worker may send 95 KB of which a line is kept.
func Printable(s string, n int) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, Cut(s, n))
}

// CutStored bounds a text to what takes at most n bytes in JSON.
func CutStored(s string, n int) string {
	used := StoredBytes("")
	for i, r := range s {
		if used += StoredBytes(string(r)) - StoredBytes(""); used > n {
			return s[:i]
		}
	}
	return s
}
