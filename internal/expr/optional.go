// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

const (
	varOptional = "@optional" // holds what optMap and optFlatMap are called on; no expression can spell it
	noVar       = "#unused"
)

// optionalMacros are optMap and optFlatMap in the place of CEL's, which write out what they are
// called on twice: each link of a chain doubled the tree, and 14 took the checker minutes. Ours
// keep it in a variable. So the tree grows as the text does.
func optionalMacros() cel.EnvOption {
	return cel.Macros(
		cel.ReceiverMacro("optMap", 2, func(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
			return mapped(f, "optMap", target, args, func(e ast.Expr) ast.Expr { return f.NewCall("optional.of", e) })
		}),
		cel.ReceiverMacro("optFlatMap", 2, func(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
			return mapped(f, "optFlatMap", target, args, func(e ast.Expr) ast.Expr { return e })
		}),
	)
}

// mapped is what such a macro stands for: the second argument, with the value of the target in the
// variable of the first, or none.
func mapped(f cel.MacroExprFactory, macro string, target ast.Expr, args []ast.Expr, made func(ast.Expr) ast.Expr) (ast.Expr, *cel.Error) {
	if args[0].Kind() != ast.IdentKind {
		return nil, f.NewError(args[0].ID(), macro+"() variable name must be a simple identifier")
	}
	some := f.NewMemberCall("hasValue", f.NewIdent(varOptional))
	value := f.NewCall(plainValue, f.NewMemberCall("value", f.NewIdent(varOptional)))
	return bound(f, varOptional, target, f.NewCall(operators.Conditional,
		some, made(bound(f, args[0].AsIdent(), value, args[1])), f.NewCall("optional.none"))), nil
}

// bound is an expression that has a variable: a loop over nothing, whose result it is.
func bound(f cel.MacroExprFactory, name string, value, in ast.Expr) ast.Expr {
	return f.NewComprehension(f.NewList(), noVar, name, value, f.NewLiteral(types.False), f.NewIdent(name), in)
}

// asksOptional says whether a part is such a macro, and the node its question whether there is a
// value: what the macro is called on may be no optional, and nobody wrote that question.
func asksOptional(e ast.Expr, id int64) bool {
	if e.Kind() != ast.ComprehensionKind || e.AsComprehension().AccuVar() != varOptional {
		return false
	}
	return e.AsComprehension().Result().AsCall().Args()[0].ID() == id
}
