// SPDX-License-Identifier: Apache-2.0

package document

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"
)

// MaxNesting is that of encoding/json: how many lists and objects may be in each other.
const MaxNesting = 10_000

// Field is one of an object, as it is in a text: a key that stands there twice is two fields.
type Field struct {
	Key   string
	Value []byte // part of the text, without blanks around it
	At    int    // where in the text it begins
}

// Fields are those of the object that a text is; not ok: the text is no JSON, or no object. Nothing
// but the keys is copied.
func Fields(text []byte) (fields []Field, ok bool) {
	s := scanner{text: text, rest: pausing(nil)}
	s.skip()
	if s.peek() != '{' {
		return nil, false
	}
	ok = s.members(func(key []byte, begin int) {
		fields = append(fields, Field{Key: unescaped(key), Value: text[begin:s.at], At: begin})
	})
	s.skip()
	return fields, ok && s.at == len(text)
}

// Elements tells of each element of the list that a text is, a part of the text without blanks
// around it; not ok: the text is no JSON, or no list, and some may have been told. pause is called
// now and then if it is not nil.
func Elements(text []byte, tell func(element []byte), pause func()) (ok bool) {
	s := scanner{text: text, rest: pausing(pause)}
	s.skip()
	if s.peek() != '[' {
		return false
	}
	ok = s.elements(func(begin int) { tell(text[begin:s.at]) })
	s.skip()
	return ok && s.at == len(text)
}

// Checked is a text that is JSON, and must not change. The zero Checked is of no text.
type Checked struct {
	text []byte
	n    int // values and keys in it
}

// Check says whether a text of at most MaxBytes is what encoding/json takes for JSON, several times
// as fast as json.Valid. pause is called now and then if it is not nil: a large text takes long.
func Check(text []byte, pause func()) (c Checked, ok bool) {
	s := scanner{text: text, rest: pausing(pause)}
	s.skip()
	ok = s.value()
	s.skip()
	if !ok || s.at != len(text) || len(text) > MaxBytes {
		return Checked{}, false
	}
	return Checked{text, s.n}, true
}

// IsZero says whether it is of no text.
func (c Checked) IsZero() bool { return c.n == 0 }

// scanner checks a text in one pass. Its methods say whether what they read is JSON.
type scanner struct {
	text  []byte
	at    int
	n     int // values and keys so far
	depth int
	rest  pauses
}

// peek is the next byte; 0, which is none of JSON, at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// take reads one byte if it is the next.
func (s *scanner) take(b byte) bool {
	if s.peek() != b {
		return false
	}
	s.at++
	return true
}

// skip is small enough to be part of whoever calls it: most texts have no blanks.
func (s *scanner) skip() {
	if s.at < len(s.text) && s.text[s.at] <= ' ' {
		s.blanks()
	}
}

func (s *scanner) blanks() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\n' || s.text[s.at] == '\t' || s.text[s.at] == '\r') {
		s.at++
	}
}

func (s *scanner) value() bool {
	switch c := s.peek(); c {
	case '{':
		return s.members(nil)
	case '[':
		return s.elements(nil)
	case '"':
		return s.string()
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	default:
		return s.number()
	}
}

func (s *scanner) word(w string) bool {
	s.n++
	begin := s.at
	s.at = min(s.at+len(w), len(s.text))
	return string(s.text[begin:s.at]) == w
}

// open reads the first byte of a list or an object, whose end was not read yet.
func (s *scanner) open() bool {
	s.n++
	s.at++
	s.depth++
	s.skip()
	return s.depth <= MaxNesting
}

// closed reads what follows a part: a comma, after which there is another one, or the end.
func (s *scanner) closed(end byte) (over, ok bool) {
	s.rest.at(s.at)
	s.skip()
	switch s.peek() {
	case ',':
		s.at++
		s.skip()
		return false, true
	case end:
		s.at++
		s.depth--
		return true, true
	}
	return false, false
}

// elements reads a list, and tells where each element began, once it was read.
func (s *scanner) elements(tell func(begin int)) bool {
	if !s.open() {
		return false
	}
	if s.take(']') {
		s.depth--
		return true
	}
	for {
		begin := s.at
		if !s.value() {
			return false
		}
		if tell != nil {
			tell(begin)
		}
		if over, ok := s.closed(']'); over || !ok {
			return ok
		}
	}
}

// members reads an object, and tells of each key, without quotes, and where its value begins, once
// it was read.
func (s *scanner) members(tell func(key []byte, begin int)) bool {
	if !s.open() {
		return false
	}
	if s.take('}') {
		s.depth--
		return true
	}
	for {
		if !s.member(tell) {
			return false
		}
		if over, ok := s.closed('}'); over || !ok {
			return ok
		}
	}
}

func (s *scanner) member(tell func(key []byte, begin int)) bool {
	begin := s.at
	if !s.string() {
		return false
	}
	key := s.text[begin+1 : s.at-1]
	s.skip()
	if !s.take(':') {
		return false
	}
	s.skip()
	begin = s.at
	if !s.value() {
		return false
	}
	if tell != nil {
		tell(key, begin)
	}
	return true
}

func (s *scanner) string() bool {
	s.n++
	if !s.take('"') {
		return false
	}
	for {
		s.at = plainEnd(s.text, s.at)
		switch s.peek() {
		case '"':
			s.at++
			return true
		case '\\':
			if !s.escape() {
				return false
			}
			s.rest.at(s.at)
		default:
			return false // a control character, or the end
		}
	}
}

func (s *scanner) escape() bool {
	s.at++
	c := s.peek()
	s.at++
	if c != 'u' {
		return c != 0 && strings.IndexByte(`"\/bfnrt`, c) >= 0
	}
	if s.at+4 > len(s.text) {
		return false
	}
	_, err := strconv.ParseUint(string(s.text[s.at:s.at+4]), 16, 16)
	s.at += 4
	return err == nil
}

func (s *scanner) number() bool {
	s.n++
	s.take('-')
	if !s.take('0') && !s.digits() {
		return false
	}
	if s.take('.') && !s.digits() {
		return false
	}
	if s.take('e') || s.take('E') {
		_ = s.take('+') || s.take('-')
		return s.digits()
	}
	return true
}

func (s *scanner) digits() bool {
	at := s.at
	for at < len(s.text) && s.text[at]-'0' <= 9 {
		at++
	}
	some := at > s.at
	s.at = at
	return some
}

// plainEnd is the index, from i on, of the first byte that is not simply part of a string: a quote,
// a backslash, or below a blank.
func plainEnd(text []byte, i int) int {
	for ; i+8 <= len(text); i += 8 {
		if n := plainBytes(binary.LittleEndian.Uint64(text[i:])); n < 8 {
			return i + n
		}
	}
	for i < len(text) && text[i] >= ' ' && text[i] != '"' && text[i] != '\\' {
		i++
	}
	return i
}

// plainBytes is how many of eight bytes come before the first that is a quote, a backslash, or
// below a blank: a byte minus its bound has borrowed its highest bit if it was below, or was zero.
// A byte that borrowed may make those after it look so, too, but none before it.
func plainBytes(b uint64) int {
	const each, high = 0x0101010101010101, 0x8080808080808080
	quote, backslash := b^each*'"', b^each*'\\'
	return bits.TrailingZeros64(((b-each*' ')&^b|(quote-each)&^quote|(backslash-each)&^backslash)&high) / 8
}
