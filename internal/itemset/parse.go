// SPDX-License-Identifier: Apache-2.0

package itemset

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse reads the text of a set, in no other form than String writes it. Its error wraps ErrText
// and names the place.
func Parse(text string) (Set, error) {
	if text == "" {
		return Set{}, nil
	}
	p := parser{text: text}
	var s Set
	free := 0 // the smallest index that the next range may start with
	for {
		r, err := p.span(free)
		if err != nil {
			return Set{}, err
		}
		s.spans = append(s.spans, r)
		free = int(r.last) + 2
		if p.at == len(text) {
			return s, nil
		}
		if !p.skip(',') {
			return Set{}, p.wrong(p.at, "neither a comma nor the end")
		}
	}
}

// parser is a text, and how far it was read.
type parser struct {
	text string
	at   int
}

func (p *parser) span(free int) (span, error) {
	start := p.at
	first, err := p.number()
	if err != nil {
		return span{}, err
	}
	if first < free {
		return span{}, p.wrong(start, "%d must be at least %d: ranges ascend and do not touch", first, free)
	}
	last := first
	if p.skip('-') {
		start = p.at
		if last, err = p.number(); err != nil {
			return span{}, err
		}
		if last <= first {
			return span{}, p.wrong(start, "the range ends with %d and starts with %d", last, first)
		}
	}
	return span{int16(first), int16(last)}, nil
}

func (p *parser) number() (int, error) {
	start := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	digits := p.text[start:p.at]
	switch {
	case digits == "":
		return 0, p.wrong(start, "no number")
	case len(digits) > 1 && digits[0] == '0':
		return 0, p.wrong(start, "a number with a leading zero")
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n >= MaxItems {
		return 0, p.wrong(start, "a number of %d or more", MaxItems)
	}
	return n, nil
}

func (p *parser) skip(c byte) bool {
	if !strings.HasPrefix(p.text[p.at:], string(c)) {
		return false
	}
	p.at++
	return true
}

// wrong names the place as people count, from 1.
func (p *parser) wrong(at int, format string, args ...any) error {
	return fmt.Errorf("%w: character %d: %s", ErrText, at+1, fmt.Sprintf(format, args...))
}
