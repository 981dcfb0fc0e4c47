// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"slices"

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
	// few, an element of a list in a macro some fifteen.
	MaxCost = 250_000
	// MaxRenderedBytes is the size of a rendered template, and of one item of a list, in bytes.
	MaxRenderedBytes = 256 << 10
	// MaxDepth is how deep lists and maps may be nested in a value that an expression gives: JSON
	// readers of some languages stop at 128, and a template may nest it further.
	MaxDepth = 100
)

// Vars are the variables of an evaluation. Values are what JSON decodes to: nil, bool, string, any
// Go number, json.Number, json.RawMessage (decoded when it is looked at), document.Value (read
// where it is, and never copied), []any and map[string]any of the same. Whole numbers should come
// as int64 or json.Number: a float64 has lost digits already. Nil Inputs, Steps and Run stand for
// {}. Nothing is changed.
type Vars struct {
	Inputs any
	Steps  map[string]any
	Run    map[string]any
	// Item is the variable item, and there is one only if HasItem is true: nil is an item, too.
	Item    any
	HasItem bool
}

// Option says in which place an expression stands.
type Option int

// WithItem says that the expression is evaluated for one item of a list, so it may read
// the variable item.
const WithItem Option = 1

func hasItem(with []Option) bool { return slices.Contains(with, WithItem) }

// CheckCondition compiles src and wants its type to be bool, or unknown until it is evaluated. Its
// error is an *Error.
func CheckCondition(src string, with ...Option) error {
	_, err := condition(src, hasItem(with))
	return err
}

// EvalCondition evaluates src to true or false. Its error is an *Error; one that wraps ErrNotBool
// if src gave something else.
func EvalCondition(src string, v Vars) (bool, error) { return Prepare(v).Condition(src) }

// Condition is the function EvalCondition with the variables of the scope.
func (s *Scope) Condition(src string) (bool, error) {
	p, err := condition(src, s.hasItem)
	if err != nil {
		return false, err
	}
	w := s.work(MaxCost)
	out, err := p.eval(s.activation(s.item, s.hasItem, w))
	s.spent += w.Spent() + compileCost(src)
	if err != nil {
		return false, wrong(src, err)
	}
	b, ok := unwrapOptional(out).(types.Bool)
	if !ok {
		return false, wrong(src, fmt.Errorf("%w, it gave %s", ErrNotBool, article(kind(out))))
	}
	return bool(b), nil
}

func condition(src string, item bool) (*program, error) {
	p, err := compile(source{text: src, item: item})
	if err != nil {
		return nil, wrong(src, err)
	}
	if t := p.outputType; !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, wrong(src, fmt.Errorf("%w, it is %s", ErrNotBool, article(cel.FormatCELType(t))))
	}
	return p, nil
}
