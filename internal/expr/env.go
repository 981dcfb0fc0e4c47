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
)

const (
	varInputs = "inputs"
	varSteps  = "steps"
	varRun    = "run"

	maxCached = 2048 // compiled expressions; some 20 KiB each
)

// program is a compiled expression; safe for concurrent use.
type program struct {
	outputType *cel.Type
	prog       cel.Program
	steps      []string // names of steps that it reads, as far as the text says them
	outputs    Outputs  // of which it reads the output
}

// eval gives the value and its cost in CEL units.
func (p *program) eval(activation map[string]any) (ref.Val, uint64, error) {
	out, details, err := p.prog.Eval(activation)
	if err != nil {
		return nil, 0, evalError(err)
	}
	var cost uint64
	if c := details.ActualCost(); c != nil {
		cost = *c
	}
	return out, cost, nil
}

// compiler is the CEL environment with the programs that it made.
type compiler struct {
	env   *cel.Env
	guard *guard

	mu       sync.Mutex
	programs map[string]*program
}

// sharedCompiler is the package's only state (see doc.go). Its error would be a defect of newCompiler, which has no input.
var sharedCompiler = sync.OnceValues(newCompiler)

func newCompiler() (*compiler, error) {
	env, err := cel.NewEnv(
		cel.CustomTypeAdapter(jsonAdapter{}),
		cel.Variable(varInputs, cel.DynType),
		cel.Variable(varSteps, cel.DynType),
		cel.Variable(varRun, cel.DynType),
		cel.OptionalTypes(),
		cel.CrossTypeNumericComparisons(true),
		ext.Strings(),
		cel.Function("format", cel.DisableDeclaration(true),
			cel.MemberOverload("string_format", []*cel.Type{cel.StringType, cel.ListType(cel.DynType)}, cel.StringType)),
	)
	if err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	g, err := newGuard(env)
	if err != nil {
		return nil, fmt.Errorf("make the CEL guard: %w", err)
	}
	return &compiler{env: env, guard: g, programs: map[string]*program{}}, nil
}

// compile gives the program of src. Only good programs are cached: a bad expression ends its run, so it is seen once.
func compile(src string) (*program, error) {
	switch {
	case strings.TrimSpace(src) == "":
		return nil, errors.New("it is empty")
	case utf8.RuneCountInString(src) > MaxExpressionLength:
		return nil, fmt.Errorf("%w: more than %d characters", ErrTooLarge, MaxExpressionLength)
	}
	c, err := sharedCompiler()
	if err != nil {
		return nil, err
	}
	if p := c.cached(src); p != nil {
		return p, nil
	}
	p, err := c.make(src)
	if err != nil {
		return nil, err
	}
	c.keep(src, p)
	return p, nil
}

func (c *compiler) make(src string) (*program, error) {
	ast, iss := c.env.Compile(src)
	if iss.Err() != nil {
		return nil, compileError(iss)
	}
	prog, err := c.env.Program(ast, cel.CostLimit(MaxCost), cel.CustomDecoratorV2(c.guard.decorate))
	if err != nil {
		return nil, fmt.Errorf("plan: %s", oneLine(err.Error()))
	}
	return &program{
		outputType: ast.OutputType(), prog: prog, steps: stepsRead(ast.NativeRep()), outputs: outputsRead(ast.NativeRep()),
	}, nil
}

func (c *compiler) cached(src string) *program {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.programs[src]
}

// keep forgets everything when the cache is full: that is rare, and needs no order of use.
func (c *compiler) keep(src string, p *program) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.programs) >= maxCached {
		clear(c.programs)
	}
	c.programs[src] = p
}
