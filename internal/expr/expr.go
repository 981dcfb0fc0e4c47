// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// Bounds of expressions and of what they give.
const (
	// MaxExpressionLength is the length of one expression in characters, as in the
	// schema of `when`.
	MaxExpressionLength = 1024
	// MaxExpressions is the number of expressions in one template.
	MaxExpressions = 256
	// MaxCost bounds one evaluation, and all evaluations of one template together, in cost units;
	// some 50 ms of work, and as much again for calls with large operands. A comparison costs a
	// few, an element of a list in a macro some fifteen. It also bounds what it takes to
	// compile one expression.
	MaxCost = 250_000
	// MaxRenderedBytes is the size of a rendered template, and of one item of a list, in bytes.
	MaxRenderedBytes = 256 << 10
	// MaxDepth is how deep lists and maps may be nested in a value that an expression gives: JSON
	// readers of some languages stop at 128, and a template may nest it further. In the text of an
	// expression they may be 16 deep: see maxTypeDepth.
	MaxDepth = 100
)

// Vars are the variables of an evaluation. Values are what JSON decodes to: nil, bool, string, any
// Go number, json.Number, json.RawMessage (a document.Value once it is looked at), document.Value
// (read where it is, and never copied), []any and map[string]any of the same. Whole numbers should
// come as int64 or json.Number: a float64 has lost digits already. Nil Inputs, Steps and Run stand
// for {}. Nothing is changed.
type Vars struct {
	Inputs any
	Steps  map[string]any
	Run    map[string]any
	// Item is the variable item, and there is one only if HasItem is true: nil is an item, too.
	Item    any
	HasItem bool
}

// Option says in which place an expression stands, or how it is compiled.
type Option func(*options)

type options struct {
	item        bool
	meter       *Meter
	run, inputs []string // fields that these variables have; nil: any
}

// WithItem says that the expression is evaluated for one item of a list, so it may read
// the variable item.
func WithItem(o *options) { o.item = true }

// Metered has a meter count what it takes to compile the expression, or all those of a template.
func Metered(m *Meter) Option { return func(o *options) { o.meter = m } }

func optionsOf(with []Option) (o options) {
	for _, one := range with {
		one(&o)
	}
	return o
}

// compile gives the program of an expression. Its error is an *Error, or ErrUnread.
func (o *options) compile(src string) (*program, error) {
	if !o.meter.more() {
		return nil, ErrUnread
	}
	p, err := compile(source{text: src, item: o.item}, o.meter)
	switch {
	case err == nil:
		return p, nil
	case errors.Is(err, ErrUnread):
		return nil, err
	default:
		return nil, wrong(src, err)
	}
}

// EvalCondition evaluates src to true or false. Its error is an *Error; one that wraps ErrNotBool
// if src gave something else.
func EvalCondition(src string, v Vars) (bool, error) { return Prepare(v).Condition(src) }

// Condition is the function EvalCondition with the variables of the scope.
func (s *Scope) Condition(src string) (bool, error) {
	p, err := condition(src, options{item: s.hasItem})
	if err != nil {
		return false, err
	}
	w := s.work(MaxCost)
	out, err := p.eval(s.activation(s.item, s.hasItem, w))
	s.spent += w.Spent() + p.cost
	if err != nil {
		return false, wrong(src, err)
	}
	b, ok := unwrapOptional(out).(types.Bool)
	if !ok {
		return false, wrong(src, fmt.Errorf("%w, it gave %s", ErrNotBool, article(kind(out))))
	}
	return bool(b), nil
}

// errBare is that of a condition in what only a template needs.
var errBare = errors.New("an expression stands here by itself: leave out ${ and }")

func condition(src string, o options) (*program, error) {
	p, err := o.compile(src)
	if _, mistake := errors.AsType[*Error](err); mistake && strings.HasPrefix(strings.TrimSpace(src), opening) {
		return nil, &Error{Expression: src, Cause: errBare}
	}
	if err != nil {
		return nil, err
	}
	if t := p.outputType; !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, wrong(src, fmt.Errorf("%w, it is %s", ErrNotBool, article(cel.FormatCELType(t))))
	}
	return p, nil
}
