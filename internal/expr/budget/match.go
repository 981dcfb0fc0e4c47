// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"io"
	"regexp"
	"strings"
)

// Pattern is a regular expression that is matched within budgets.
type Pattern struct {
	compiled *regexp.Regexp
	live     int // states at a time
}

// Compile compiles a regular expression, after it was charged as matches of CEL is. Its error wraps
// ErrTooCostly, or is one of regexp.
func (b *Budget) Compile(pattern string) (*Pattern, error) {
	live, ok := b.takePattern(pattern)
	if !ok {
		return nil, b.Err()
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	return &Pattern{compiled, live}, nil
}

// Match says whether a text has a match. It charges for each letter before it is read: ^a reads the
// first ones of a long text only. Its error wraps ErrTooCostly.
func (p *Pattern) Match(b *Budget, text string) (bool, error) {
	letters := &paidLetters{of: strings.NewReader(text), price: p.live * unitsPerStep, budget: b}
	matches := p.compiled.MatchReader(letters)
	return matches, b.Err()
}

// paidLetters ends where the budget does.
type paidLetters struct {
	of     *strings.Reader
	price  int // of each byte
	budget *Budget
}

// ReadRune reads the next letter, if there is enough to pay it.
func (l *paidLetters) ReadRune() (r rune, size int, err error) {
	r, size, err = l.of.ReadRune()
	if err == nil && !l.budget.take(size*l.price) {
		return 0, 0, io.EOF
	}
	return r, size, err
}
