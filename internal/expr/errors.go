// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/cel"

	"github.com/syncopate-dev/syncopate/internal/expr/budget"
)

// Error says which expression is wrong and why. Every error of this package that is about
// one expression is an *Error; the mistake is the author's, so no retry helps. Its text is
// one short line.
type Error struct {
	Expression string // the expression without ${ and }
	Cause      error
}

// Error is "expression <e>: <cause>" with a long expression shortened.
func (e *Error) Error() string {
	return fmt.Sprintf("expression %q: %v", shorten(e.Expression, shownExpression), e.Cause)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Causes that callers may match. None is worth a retry.
var (
	// ErrNotBool: a condition is, or gave, something else than true or false.
	ErrNotBool = errors.New("not a bool")
	// ErrNotList: the expression for a list is, or gave, something else.
	ErrNotList = errors.New("not a list")
	// ErrTooLarge: an expression is too long, a template has too many of them, or a result is too
	// large or nested too deep.
	ErrTooLarge = errors.New("too large")
	// ErrTooCostly: an evaluation was stopped at its cost limit.
	ErrTooCostly = budget.ErrTooCostly
	// ErrTemplate: the template is not one JSON document.
	ErrTemplate = errors.New("not a JSON document")
)

const (
	shownExpression = 80  // characters of an expression in an error's text
	shownCause      = 200 // characters of CEL's message in an error's text
)

// wrong makes an *Error of err unless it is one.
func wrong(expression string, err error) error {
	if _, already := errors.AsType[*Error](err); already {
		return err
	}
	return &Error{Expression: expression, Cause: err}
}

// compileError is the first of CEL's issues in one line; its own text spans several and
// draws a caret.
func compileError(iss *cel.Issues) error {
	all := iss.Errors()
	if len(all) == 0 {
		return errors.New(oneLine(iss.Err().Error())) // errtext: CEL says it in several lines
	}
	message := strings.ReplaceAll(all[0].Message, " (in container '')", "")
	message, _, _ = strings.Cut(message, " expecting {") // a list of all that CEL knows
	if message == "undeclared reference to '"+varItem+"'" {
		message += ": only what is evaluated for each item of a list has one"
	}
	return fmt.Errorf("column %d: %s", all[0].Location.Column()+1, oneLine(message))
}

func oneLine(s string) string {
	return shorten(strings.Join(strings.Fields(s), " "), shownCause)
}

// shorten keeps at most n characters of s.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-3]) + "..."
}
