// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/syncopate-dev/syncopate/internal/expr/budget"
)

// varWork is the variable under which an evaluation carries its budget; no expression can spell it.
const varWork = "@work"

// guard has the plan of an expression take from its budget at every node, before the node does
// something, and has mistakes say what was found where (finding.go).
//
// Invariant: each turn of a loop takes at least one unit, and a loop whose evaluation was stopped
// makes no other turn. The body of a loop is a call or && || ?:, which are nodes; its condition is
// the literal true or a call, and both are false when stopped.
type guard struct {
	charges  map[string]budget.Charge
	bindings map[string]*functions.Overload // by overload id and by function
}

func newGuard(env *cel.Env) (*guard, error) {
	g := &guard{charges: budget.Charges(), bindings: map[string]*functions.Overload{}}
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
	switch i := i.(type) {
	case *tellingAttribute: // CEL decorates an attribute again for each key that it adds
		return i, nil
	case interpreter.InterpretableAttribute:
		return &tellingAttribute{i}, nil
	case interpreter.InterpretableConst:
		return &guardedConst{i}, nil
	case interpreter.InterpretableCall:
		return g.call(i), nil
	case interpreter.InterpretableConstructor:
		return &guardedNode{InterpretableV2: i, cost: constructorCost(i)}, nil
	default: // a loop, && and ||
		return &guardedNode{InterpretableV2: i, cost: 1}, nil
	}
}

// constructorCost is what CEL says that a list or map costs to make. An empty one is no work:
// macros have some that nobody wrote.
func constructorCost(i interpreter.InterpretableConstructor) int {
	if len(i.InitVals()) == 0 {
		return 1
	}
	if i.Type() == types.ListType {
		return common.ListCreateBaseCost
	}
	return common.MapCreateBaseCost
}

func (g *guard) call(call interpreter.InterpretableCall) interpreter.InterpretableV2 {
	if g.charges[call.Function()] == nil {
		return &guardedNode{InterpretableV2: call, cost: 1}
	}
	binding := g.bindings[call.OverloadID()]
	if binding == nil {
		binding = g.bindings[call.Function()]
	}
	return &guardedCall{InterpretableCall: call, charge: g.charges[call.Function()], binding: binding}
}

// stepped takes n cost units of the evaluation and says whether it may go on.
func stepped(vars interpreter.Activation, n int) bool {
	w := workOf(vars)
	return w != nil && w.Step(n)
}

// workOf is nil, so that nothing goes on, if somebody evaluates without work: that would
// be a defect.
func workOf(vars interpreter.Activation) *budget.Budget {
	found, _ := vars.ResolveName(varWork)
	w, _ := found.(*budget.Budget)
	return w
}

// guardedNode takes some units and then does what it always did.
type guardedNode struct {
	interpreter.InterpretableV2
	cost int
}

// Eval is the older form of Exec.
func (n *guardedNode) Eval(vars interpreter.Activation) ref.Val {
	return n.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (n *guardedNode) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if !stepped(frame, n.cost) {
		return types.False
	}
	out := n.InterpretableV2.Exec(frame)
	if m, isMap := out.(traits.Mapper); isMap {
		return types.LabelErrNode(n.ID(), checkKeys(m))
	}
	return out
}

// guardedConst costs nothing, but does not keep a loop going that was stopped.
type guardedConst struct{ interpreter.InterpretableConst }

// Eval is the older form of Exec.
func (c *guardedConst) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (c *guardedConst) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if c.Value() == types.True && !stepped(frame, 0) {
		return types.False
	}
	return c.Value()
}

// guardedCall evaluates the operands of a call, charges for it, and then makes it.
type guardedCall struct {
	interpreter.InterpretableCall
	charge  budget.Charge
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
	if w := workOf(frame); w == nil || !w.Step(1) || !c.charge(w, args) {
		return types.False
	}
	out := c.call(alike(c.Function(), args))
	if err, failed := out.(*types.Err); failed {
		return types.WrapErr(&finding{error: err, node: c.ID(), operands: args})
	}
	return out
}

// alike are the operands of a sum, a difference, a product or a quotient as doubles if one of them
// is, and otherwise as they are. JSON makes 2 of 2.0, so what kind of number a variable is depends
// on its value; CEL has no arithmetic for two kinds.
func alike(function string, args []ref.Val) []ref.Val {
	switch function {
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide:
	default:
		return args
	}
	if len(args) != 2 || !isNumber(args[0]) || !isNumber(args[1]) || (args[0].Type() != types.DoubleType && args[1].Type() != types.DoubleType) {
		return args
	}
	return []ref.Val{args[0].ConvertToType(types.DoubleType), args[1].ConvertToType(types.DoubleType)}
}

func isNumber(val ref.Val) bool {
	switch val.(type) {
	case types.Int, types.Uint, types.Double:
		return true
	default:
		return false
	}
}

func (c *guardedCall) call(args []ref.Val) ref.Val {
	if c.Function() == operators.Add {
		if list, ok := budget.Sum(args); ok {
			return list
		}
		args = []ref.Val{args[0], budget.Fixed(args[1])}
	}
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
