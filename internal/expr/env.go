// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"

	"github.com/syncopate-dev/syncopate/internal/expr/budget"
)

const (
	varInputs = "inputs"
	varSteps  = "steps"
	varRun    = "run"
	varItem   = "item"
)

// source is what a program is made of.
type source struct {
	text string
	item bool // there is a variable item
}

// program is a compiled expression; safe for concurrent use.
type program struct {
	source
	env        *cel.Env
	outputType *cel.Type
	prog       cel.Program
	steps      []string // names of steps that it reads, as far as the text says them
	outputs    Outputs  // of which it reads the output
	fields     []field  // that it reads and may not be there
	cost       int      // see costOf
}

// eval gives the value. The activation has an evaluation's work in it.
func (p *program) eval(activation map[string]any) (ref.Val, error) {
	out, _, err := p.prog.Eval(activation)
	switch w, ok := activation[varWork].(*budget.Budget); {
	case ok && w.Err() != nil:
		return nil, w.Err()
	case err != nil:
		return nil, errors.New(oneLine(p.told(err)))
	default:
		return out, nil
	}
}

// compiler is the CEL environments with the programs that it made.
type compiler struct {
	env     *cel.Env
	itemEnv *cel.Env // has the variable item, too
	guard   *guard

	functions map[string]choices // of both environments

	cache
}

// sharedCompiler is the package's only state (see doc.go). Its error would be a defect of
// newCompiler, which has no input.
var sharedCompiler = sync.OnceValues(newCompiler)

func newCompiler() (*compiler, error) {
	env, err := newEnv()
	itemEnv, errItem := newEnv(cel.Variable(varItem, cel.DynType))
	if err := errors.Join(err, errItem); err != nil {
		return nil, fmt.Errorf("make the CEL environments: %w", err)
	}
	g, err := newGuard(env)
	if err != nil {
		return nil, fmt.Errorf("make the CEL guard: %w", err)
	}
	return &compiler{env: env, itemEnv: itemEnv, guard: g, functions: choicesIn(env)}, nil
}

func newEnv(more ...cel.EnvOption) (*cel.Env, error) {
	return cel.NewEnv(append([]cel.EnvOption{
		cel.CustomTypeAdapter(jsonAdapter{}),
		cel.Variable(varInputs, cel.DynType),
		cel.Variable(varSteps, cel.DynType),
		cel.Variable(varRun, cel.DynType),
		cel.EnableMacroCallTracking(), // for the text of a part with macros in it
		cel.OptionalTypes(),
		loopMacros(), // of macros with the same name the last one counts
		optionalMacros(),
		plainFunctions(),
		cel.CrossTypeNumericComparisons(true),
		ext.Strings(),
		cel.Function("format", cel.DisableDeclaration(true),
			cel.MemberOverload("string_format", []*cel.Type{cel.StringType, cel.ListType(cel.DynType)}, cel.StringType)),
	}, more...)...)
}

// compile gives the program of src. Only good programs are cached: a bad expression ends its run,
// so it is seen once. A meter counts what it takes before most of that is done. The error is
// ErrUnread if the meter has no more to give.
func compile(src source, m *Meter) (*program, error) {
	if err := checkText(src.text); err != nil {
		return nil, m.first(costOfMistake(src.text), err)
	}
	c, err := sharedCompiler()
	if err != nil {
		return nil, err
	}
	if p := c.cached(src); p != nil {
		return p, m.again(p)
	}
	p, err := c.make(src, m)
	if err != nil {
		return nil, err
	}
	c.keep(src, p)
	m.note(p)
	return p, nil
}

// checkText refuses a text that need not be parsed.
func checkText(text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return errors.New("it is empty")
	case utf8.RuneCountInString(text) > MaxExpressionLength:
		return fmt.Errorf("%w: more than %d characters", ErrTooLarge, MaxExpressionLength)
	default:
		return nil
	}
}

func (c *compiler) make(src source, m *Meter) (*program, error) {
	env := c.env
	if src.item {
		env = c.itemEnv
	}
	parsed, iss := env.Parse(src.text)
	if iss.Err() != nil {
		return nil, m.first(costOfMistake(src.text), compileError(src.text, iss))
	}
	cost, err := c.costOf(src.text, parsed.NativeRep().Expr())
	if err := m.first(cost, err); err != nil {
		return nil, err
	}
	checked, iss := env.Check(parsed)
	if iss.Err() != nil {
		return nil, checkError(src.text, parsed.NativeRep(), iss)
	}
	tree := checked.NativeRep()
	prog, err := env.Program(checked, cel.CustomDecoratorV2(c.guard.decorate))
	if err != nil {
		return nil, fmt.Errorf("plan: %s", oneLine(err.Error())) // errtext: CEL says it in several lines
	}
	return &program{
		source: src, env: env, outputType: checked.OutputType(), prog: prog,
		steps: stepsRead(tree), outputs: outputsRead(tree), fields: fieldsRead(tree), cost: cost,
	}, nil
}
