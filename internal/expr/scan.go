// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"strings"
)

const (
	opening = "${"
	escaped = "$${" // a literal opening
)

// part is a stretch of a string: literal text, or the source of an expression.
type part struct {
	text       string
	expression bool
}

// split cuts a string into text and expressions; neighbouring text is one part. Its error
// is an *Error.
func split(s string) ([]part, error) {
	var parts []part
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			parts = append(parts, part{text: text.String()})
			text.Reset()
		}
	}
	for s != "" {
		dollar := strings.IndexByte(s, '$')
		if dollar < 0 {
			break
		}
		text.WriteString(s[:dollar])
		s = s[dollar:]
		switch {
		case strings.HasPrefix(s, escaped):
			text.WriteString(opening)
			s = s[len(escaped):]
		case strings.HasPrefix(s, opening):
			src, rest, ok := cutExpression(s[len(opening):])
			if !ok {
				return nil, wrong(s, errors.New("${ without its }"))
			}
			flush()
			parts = append(parts, part{text: src, expression: true})
			s = rest
		default:
			text.WriteByte('$')
			s = s[1:]
		}
	}
	text.WriteString(s)
	flush()
	return parts, nil
}

// cutExpression cuts s, which stands after ${, at the } that belongs to it. It knows as much of
// CEL's lexis as that takes: string literals, comments and nested braces.
func cutExpression(s string) (src, rest string, ok bool) {
	depth := 0
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '"' || c == '\'':
			i = skipString(s, i)
			continue
		case c == '/' && strings.HasPrefix(s[i:], "//"):
			i = skipComment(s, i)
			continue
		case c == '{':
			depth++
		case c == '}' && depth == 0:
			return s[:i], s[i+1:], true
		case c == '}':
			depth--
		}
		i++
	}
	return "", "", false
}

// skipString gives the index after the string literal that starts at the quote s[i], or len(s) if
// it does not end.
func skipString(s string, i int) int {
	raw := isRaw(s[:i])
	quote := s[i : i+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s[i:], triple) {
		quote = triple
	}
	for i += len(quote); i < len(s); i++ {
		if strings.HasPrefix(s[i:], quote) {
			return i + len(quote)
		}
		if s[i] == '\\' && !raw {
			i++
		}
	}
	return len(s)
}

// isRaw says whether the text before a quote ends in a prefix (r, R, with b or B before it or after
// it) that takes the meaning from backslashes, and not in a longer name.
func isRaw(before string) bool {
	start := len(before)
	for start > 0 && isWord(before[start-1]) {
		start--
	}
	switch strings.ToLower(before[start:]) {
	case "r", "br", "rb":
		return true
	}
	return false
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func skipComment(s string, i int) int {
	if end := strings.IndexByte(s[i:], '\n'); end >= 0 {
		return i + end + 1
	}
	return len(s)
}
