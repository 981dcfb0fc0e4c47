package expr

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// Bounds of expressions and of what they give.
const (
	// MaxExpressionLength is the length of one expression in characters, as in the schema of `when`.
	MaxExpressionLength = 1024
	// MaxExpressions is the number of expressions in one template.
	MaxExpressions = 256
	// MaxCost bounds one evaluation, and all evaluations of one template together, in CEL cost units; some 100 ms of
	// work. A comparison costs a few, an element of a list in a macro some ten.
	MaxCost = 250_000
	// MaxRenderedBytes is the size of a rendered template in bytes.
	MaxRenderedBytes = 256 << 10
)

// Vars are the variables of an evaluation. Values are what JSON decodes to: nil, bool, string, any Go number, json.Number,
// json.RawMessage (decoded when it is looked at), []any and map[string]any of the same. Whole numbers should come as int64 or
// json.Number: a float64 has lost digits already. Nil fields stand for {}. Nothing is changed.
type Vars struct {
	Inputs any
	Steps  map[string]any
	Run    map[string]any
}

// activation is what CEL looks names up in. It is made for one evaluation or template: CEL keeps in it what the functions
// give, so raw JSON is decoded once, and only if an expression names its variable.
func (v Vars) activation() map[string]any {
	if v.Inputs == nil {
		v.Inputs = map[string]any{}
	}
	return map[string]any{
		varInputs: func() any { return decoded(v.Inputs) },
		varSteps:  func() any { return decoded(v.Steps) },
		varRun:    func() any { return decoded(v.Run) },
		varWork:   &work{left: maxWork},
	}
}

// CheckCondition compiles src and wants its type to be bool, or unknown until it is evaluated. Its error is an *Error.
func CheckCondition(src string) error {
	_, err := condition(src)
	return err
}

// EvalCondition evaluates src to true or false. Its error is an *Error; one that wraps ErrNotBool if src gave something else.
func EvalCondition(src string, v Vars) (bool, error) {
	p, err := condition(src)
	if err != nil {
		return false, err
	}
	out, _, err := p.eval(v.activation())
	if err != nil {
		return false, wrong(src, err)
	}
	b, ok := unwrapOptional(out).(types.Bool)
	if !ok {
		return false, wrong(src, fmt.Errorf("%w, it gave a %s", ErrNotBool, typeName(out)))
	}
	return bool(b), nil
}

func condition(src string) (*program, error) {
	p, err := compile(src)
	if err != nil {
		return nil, wrong(src, err)
	}
	if t := p.outputType; !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, wrong(src, fmt.Errorf("%w, it is a %s", ErrNotBool, cel.FormatCELType(t)))
	}
	return p, nil
}
