// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"regexp"
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

// unknownError is that of a text which begins with a name that no variable has. Somebody may have
// meant a text for a shell.
type unknownError struct{ text string }

// Error is the text.
func (e *unknownError) Error() string { return e.text }

// dashed is what reads a step in a way that CEL has only for names which are identifiers.
var dashed = regexp.MustCompile(`\bsteps\.([a-z0-9-]+)`)

// compileError is the first of CEL's issues in one line; its own text spans several and
// draws a caret.
func compileError(src string, iss *cel.Issues) error {
	all := iss.Errors()
	if len(all) == 0 {
		return errors.New(oneLine(iss.Err().Error())) // errtext: CEL says it in several lines
	}
	message := strings.ReplaceAll(all[0].Message, " (in container '')", "")
	message, _, _ = strings.Cut(message, " expecting {") // a list of all that CEL knows
	if message == undeclared+varItem+"'" {
		message += ": only what is evaluated for each item of a list has one"
	}
	message = fmt.Sprintf("column %d: %s", all[0].Location.Column()+1, oneLine(message))
	for _, found := range dashed.FindAllStringSubmatch(src, -1) {
		if !identifier.MatchString(found[1]) {
			return errors.New(message + ": write " + stepText(found[1]))
		}
	}
	if all[0].Location.Column() == 0 && strings.HasPrefix(all[0].Message, undeclared) && !strings.HasPrefix(all[0].Message, undeclared+varItem+"'") {
		return &unknownError{message}
	}
	return errors.New(message)
}

// undeclared is how CEL begins to say that there is no variable of a name.
const undeclared = "undeclared reference to '"

// forTemplate is an error of an expression that stands in a text.
func forTemplate(src string, err error) error {
	if unknown, ok := errors.AsType[*unknownError](err); ok {
		return &Error{Expression: src, Cause: fmt.Errorf("%w: for the text ${ write $${", unknown)}
	}
	return err
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

// listed is the first of many names.
func listed(names []string, most int) string {
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}
