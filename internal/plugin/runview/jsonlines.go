// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"bytes"
	"encoding/json"
	"iter"
)

// maxIndent is how deep JSON is indented. Each level is paid for in each line below it, so that
// a MiB of brackets would become gigabytes of spaces.
const maxIndent = 64

var (
	indent  = []byte("  ")
	deepest = bytes.Repeat(indent, maxIndent)
)

// JSONLines is JSON as json.Indent has it, one line at a time: who shows the first ones pays for no
// others. What is nested deeper than 64 levels stays in one line. What is not JSON keeps its own
// lines. A line is there until the next one.
func JSONLines(raw []byte) iter.Seq[[]byte] {
	if !json.Valid(raw) {
		return bytes.SplitSeq(raw, []byte("\n"))
	}
	return func(yield func([]byte) bool) {
		l := liner{yield: yield}
		for at := 0; at < len(raw) && !l.enough; {
			at += l.take(raw[at:])
		}
		if !l.enough {
			yield(l.line)
		}
	}
}

// IsDeep says whether JSON has what JSONLines does not indent, or nearly so.
func IsDeep(raw []byte) bool {
	for line := range JSONLines(raw) {
		if bytes.HasPrefix(line, deepest) {
			return true
		}
	}
	return false
}

// liner makes lines of JSON that is valid.
type liner struct {
	yield  func([]byte) bool
	line   []byte
	depth  int
	enough bool // no more lines are wanted
}

// take takes what is first in the rest, and says how long that is.
func (l *liner) take(rest []byte) int {
	switch c := rest[0]; c {
	case ' ', '\t', '\r', '\n':
	case '"':
		n := quoted(rest)
		l.line = append(l.line, rest[:n]...)
		return n
	case '{', '[':
		inside := bytes.TrimLeft(rest[1:], " \t\r\n")
		if l.line = append(l.line, c); inside[0] == c+2 { // the sign that ends it
			l.line = append(l.line, inside[0])
			return len(rest) - len(inside) + 1
		}
		l.depth++
		l.next(l.depth)
	case '}', ']':
		l.depth--
		l.next(l.depth + 1)
		l.line = append(l.line, c)
	case ',':
		l.line = append(l.line, c)
		l.next(l.depth)
	case ':':
		l.line = append(l.line, ": "...)
	default:
		l.line = append(l.line, c)
	}
	return 1
}

// next begins a line, unless what is so deep has none of its own.
func (l *liner) next(depth int) {
	if depth > maxIndent || l.enough {
		return
	}
	l.enough = !l.yield(l.line)
	l.line = l.line[:0]
	for range l.depth {
		l.line = append(l.line, indent...)
	}
}

// quoted is how long the string is that the rest begins with.
func quoted(rest []byte) int {
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(rest)
}
