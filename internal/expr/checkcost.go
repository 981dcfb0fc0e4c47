// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// What it takes to compile an expression, in cost units. They were fitted to the CPU time of those
// that take the most: a unit is 0.02 to 0.4 microseconds.
const (
	costToCompile     = 100 // an expression
	costPerNode       = 50  // of its tree, in which macros are written out
	charactersPerCost = 2
	copiesPerCost     = 2 // bindings of type variables
	depthsPerCost     = 2 // squares of the depth of types, for each node: CEL writes a type out once for each of its parts
)

// costOf is what it takes to compile an expression that is parsed only. It is counted also if a
// compiled one is found, so that what somebody counts does not depend on what others evaluated
// before. Its error wraps ErrTooLarge: CEL could not check the expression in time. The cost is then
// that of what was done to find out.
func (c *compiler) costOf(text string, tree ast.Expr) (int, error) {
	nodes := 0
	ast.PostOrderVisit(tree, ast.NewExprVisitor(func(ast.Expr) { nodes++ }))
	read := costToCompile + costPerNode*nodes + len(text)/charactersPerCost
	parts := typesOf(tree)
	depth := parts.most
	if depth > maxTypeDepth {
		return read, fmt.Errorf("%w: lists, maps and optionals are more than %d deep in each other", ErrTooLarge, maxTypeDepth)
	}
	cost := read + copiesOf(tree, c.functions, parts.known)/copiesPerCost + nodes*depth*depth/depthsPerCost
	if cost > MaxCost {
		return read, fmt.Errorf("%w: it takes too long to check: it has too many operators, lists and maps for one expression", ErrTooLarge)
	}
	return cost, nil
}

// costOfMistake is what it may take to find out that a text is no expression.
func costOfMistake(text string) int {
	return costToCompile + costPerNode*min(len(text), MaxExpressionLength)/2
}

// choices are of a function: how many the checker tries for one call, and how many type variables
// it may bind: of all arguments, and of those behind the first one that are variables themselves.
type choices struct{ tried, bound, behind int }

// choicesIn are those of the functions of an environment.
func choicesIn(env *cel.Env) map[string]choices {
	all := map[string]choices{}
	for name, f := range env.Functions() {
		var n choices
		for _, o := range f.OverloadDecls() {
			n.tried++
			n.bound += len(o.TypeParams())
			for _, arg := range o.ArgTypes()[min(1, len(o.ArgTypes())):] {
				if arg.Kind() == types.TypeParamKind {
					n.behind++
				}
			}
		}
		all[name] = n
	}
	return all
}

// copiesOf is how many bindings of type variables the checker copies at most for an expression that
// is parsed only, of which this is known: each time that it asks whether a type fits another it
// copies all that it has. So 240 of []+[]+[] took it 0.15 s. The tree is visited in the order in
// which the checker goes.
func copiesOf(tree ast.Expr, functions map[string]choices, known map[int64]dynamic) int {
	bound, copies := 0, 0
	ast.PostOrderVisit(tree, ast.NewExprVisitor(func(e ast.Expr) {
		asks, binds := asked(e, functions, known)
		copies += asks * bound
		bound += binds
	}))
	return copies
}

// asked is how often the checker asks for a node, and how many variables it may bind there.
func asked(e ast.Expr, functions map[string]choices, known map[int64]dynamic) (asks, binds int) {
	switch e.Kind() {
	case ast.CallKind:
		call := e.AsCall()
		f := functions[call.FunctionName()]
		if call.IsMemberFunction() && call.Target().Kind() == ast.IdentKind {
			whole := functions[qualified(call.Target().AsIdent(), call.FunctionName())]
			f = choices{tried: max(f.tried, whole.tried), bound: max(f.bound, whole.bound)}
		}
		return max(f.tried, len(call.Args())), boundBy(call, f, known)
	case ast.ListKind:
		return e.AsList().Size(), boundIf(e.AsList().Size() == 0, 1)
	case ast.MapKind:
		return 2 * e.AsMap().Size(), boundIf(e.AsMap().Size() == 0, 2)
	case ast.StructKind:
		return len(e.AsStruct().Fields()), 0
	case ast.ComprehensionKind:
		return 3, 0 // its range, its condition and its step
	default:
		return 0, 0
	}
}

// boundBy is how many variables a call may bind. What is dyn fits a list, or a map, and says
// nothing of what is in it.
func boundBy(call ast.CallExpr, f choices, known map[int64]dynamic) int {
	of := func(i int) dynamic { return known[call.Args()[i].ID()] }
	switch call.FunctionName() {
	case operators.Index, operators.OptIndex:
		return boundIf(of(0) == ofParts, f.bound-f.behind) + f.behind
	case operators.Add:
		return boundIf(added(of(0), of(1)) == ofParts, f.bound)
	default:
		return f.bound
	}
}

func boundIf(yes bool, n int) int {
	if yes {
		return n
	}
	return 0
}
