package expr

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// varWork is the variable under which an evaluation carries its *work; no expression can spell it.
const varWork = "@work"

var errOperands = errors.New("operands are too large")

// guard replaces guarded calls in an expression's plan.
type guard struct {
	charges  map[string]charge
	bindings map[string]*functions.Overload // by overload id and by function
}

func newGuard(env *cel.Env) (*guard, error) {
	g := &guard{charges: guardedFunctions(), bindings: map[string]*functions.Overload{}}
	for name := range g.charges {
		overloads, err := env.Functions()[name].Bindings()
		if err != nil {
			return nil, fmt.Errorf("bindings of %s: %w", name, err)
		}
		for _, o := range overloads {
			g.bindings[o.Operator] = o
		}
	}
	return g, nil
}

func (g *guard) decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := i.(interpreter.InterpretableCall)
	if !ok || g.charges[call.Function()] == nil {
		return i, nil
	}
	binding := g.bindings[call.OverloadID()]
	if binding == nil {
		binding = g.bindings[call.Function()]
	}
	return &guardedCall{InterpretableCall: call, charge: g.charges[call.Function()], binding: binding}, nil
}

// guardedCall evaluates the operands of a call, charges for it, and then makes it.
type guardedCall struct {
	interpreter.InterpretableCall
	charge  charge
	binding *functions.Overload
}

// Eval is the older form of Exec.
func (c *guardedCall) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (c *guardedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	operands := c.Args()
	args := make([]ref.Val, len(operands))
	for i, operand := range operands {
		if args[i] = operand.Exec(frame); types.IsUnknownOrError(args[i]) {
			return args[i]
		}
	}
	found, _ := frame.ResolveName(varWork)
	if w, ok := found.(*work); !ok || !c.charge(w, args) {
		return types.LabelErrNode(c.ID(), types.WrapErr(errOperands))
	}
	return types.LabelErrNode(c.ID(), c.call(args))
}

func (c *guardedCall) call(args []ref.Val) ref.Val {
	switch {
	case c.Function() == operators.Equals:
		return types.Equal(args[0], args[1])
	case c.Function() == operators.NotEquals:
		return types.Bool(types.Equal(args[0], args[1]) != types.True)
	case c.binding != nil && (c.binding.OperandTrait == 0 || args[0].Type().HasTrait(c.binding.OperandTrait)):
		return applied(c.binding, args)
	}
	return types.NewErr("no such overload")
}

func applied(b *functions.Overload, args []ref.Val) ref.Val {
	switch {
	case len(args) == 1 && b.Unary != nil:
		return b.Unary(args[0])
	case len(args) == 2 && b.Binary != nil:
		return b.Binary(args[0], args[1])
	case b.Function != nil:
		return b.Function(args...)
	}
	return types.NewErr("no such overload")
}
