// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
)

// loopMacros are all, exists, exists_one, filter and map in the place of CEL's. In ours no variable
// has a type: it is dyn, as what is in inputs.
//
// Invariant: no name that an expression can spell has a type of parts. So a type is made of the
// text that it stands for, each piece once, and is no larger than that. With names that have types,
// each of [1].map(x, {x: x}) doubles the type of the one before, and each [].all(a, a == {b: b} of
// the one around it.
func loopMacros() cel.EnvOption {
	var ours []cel.Macro
	for _, m := range cel.StandardMacros {
		if !m.IsReceiverStyle() { // has: it has no variable
			continue
		}
		expand := m.Expander()
		ours = append(ours, cel.ReceiverMacro(m.Function(), m.ArgCount(),
			func(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
				return expand(f, untyped(f, target), args)
			}))
	}
	return cel.Macros(ours...)
}

// untyped is an expression of which the checker knows no type.
func untyped(f cel.MacroExprFactory, e ast.Expr) ast.Expr {
	return f.NewCall(overloads.TypeConvertDyn, e)
}

// checkRanges refuses a macro over what is neither a list nor a map, as CEL's do: ours hide from
// the checker what they go over.
func checkRanges(tree *ast.AST) (wrong error) {
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if wrong != nil || e.Kind() != ast.ComprehensionKind || e.AsComprehension().IterRange().Kind() != ast.CallKind {
			return
		}
		over := e.AsComprehension().IterRange().AsCall().Args()[0]
		switch t := tree.GetType(over.ID()); t.Kind() {
		case types.ListKind, types.MapKind, types.DynKind:
		default:
			column := tree.SourceInfo().GetStartLocation(over.ID()).Column() + 1
			wrong = fmt.Errorf("column %d: a macro needs a list or a map, not %s", column, article(cel.FormatCELType(t)))
		}
	}))
	return wrong
}
