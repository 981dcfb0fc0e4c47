// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// Functions that no expression can spell. They give what they are given, and hide from the checker
// what it is made of.
const (
	plainRange = "@range" // what a macro goes over
	plainValue = "@value" // of an optional
)

// loopMacros are all, exists, exists_one, filter and map in the place of CEL's. In ours a variable
// has the type of what the macro goes over if that is of scalars, and else none: it is dyn, as what
// is in inputs.
//
// Invariant: no name that an expression can spell has a type of parts. So a type is made of the
// text that it stands for, each piece once, and is no larger than that. With names that have such
// types, each of [1].map(x, {x: x}) doubles the type of the one before, and each
// [].all(a, a == {b: b} of the one around it.
func loopMacros() cel.EnvOption {
	var ours []cel.Macro
	for _, m := range cel.StandardMacros {
		if !m.IsReceiverStyle() { // has: it has no variable
			continue
		}
		expand := m.Expander()
		ours = append(ours, cel.ReceiverMacro(m.Function(), m.ArgCount(),
			func(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
				return expand(f, f.NewCall(plainRange, target), args)
			}))
	}
	return cel.Macros(ours...)
}

// scalars are the types without parts that a variable of a macro may have.
var scalars = []*cel.Type{
	cel.StringType, cel.IntType, cel.UintType, cel.BoolType,
	cel.DoubleType, cel.BytesType, cel.TimestampType, cel.DurationType,
}

// keys is how many of them, from the first on, may be keys of a map: see checkKeys.
const keys = 4

// composed are the types that have parts, or may have. An optional is the first: the type of what
// is in [] has none yet, fits each, and becomes that of the first that is tried, of which nothing
// is known.
var composed = []*cel.Type{
	cel.OptionalType(cel.DynType), cel.ListType(cel.DynType), cel.MapType(cel.DynType, cel.DynType), types.NewTypeTypeWithParam(cel.DynType),
}

// plainFunctions declares the functions that macros call. What is dyn fits all of their overloads,
// so that what they give is dyn, too.
func plainFunctions() cel.EnvOption {
	ranges, values := []cel.FunctionOpt{}, []cel.FunctionOpt{}
	declare := func(to *[]cel.FunctionOpt, function string, of, gives *cel.Type) {
		*to = append(*to, cel.Overload(fmt.Sprintf("%s_%d", function, len(*to)), []*cel.Type{of}, gives))
	}
	for _, t := range composed {
		declare(&ranges, plainRange, cel.ListType(t), cel.DynType)
		declare(&values, plainValue, t, cel.DynType)
	}
	declare(&ranges, plainRange, cel.MapType(composed[0], cel.DynType), cel.DynType)
	for i, t := range scalars {
		declare(&ranges, plainRange, cel.ListType(t), cel.ListType(t))
		if i < keys {
			declare(&ranges, plainRange, cel.MapType(t, cel.DynType), cel.MapType(t, cel.DynType))
		}
		declare(&values, plainValue, t, t)
	}
	same := cel.SingletonUnaryBinding(func(val ref.Val) ref.Val { return val })
	return func(e *cel.Env) (*cel.Env, error) {
		e, err := cel.Function(plainRange, append(ranges, same)...)(e)
		if err != nil {
			return nil, err
		}
		return cel.Function(plainValue, append(values, same)...)(e)
	}
}

// checkError is the first issue of a check in one line.
func checkError(src string, tree *ast.AST, iss *cel.Issues) error {
	all := iss.Errors()
	if len(all) == 0 {
		return compileError(src, iss)
	}
	if _, of, ours := strings.Cut(all[0].Message, "'"+plainRange+"' applied to '("); ours {
		return rangeError(tree, all[0].ExprID, inWords(strings.TrimSuffix(of, ")'")))
	}
	if strings.Contains(all[0].Message, "'"+plainValue+"'") { // all other types have an overload
		return errors.New("optMap takes no message of Protocol Buffers")
	}
	return compileError(src, iss)
}

// rangeError says of which macro a node is the range, which is of a wrong type. Nobody wrote that
// node.
func rangeError(tree *ast.AST, node int64, of string) error {
	info, column, macro := tree.SourceInfo(), 0, "a macro"
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.ComprehensionKind || e.AsComprehension().IterRange().ID() != node {
			return
		}
		over := e.AsComprehension().IterRange().AsCall().Args()[0]
		column = info.GetStartLocation(over.ID()).Column() + 1
		if call, ok := info.GetMacroCall(e.ID()); ok {
			macro = call.AsCall().FunctionName()
		}
	}))
	return fmt.Errorf("column %d: %s goes over a list or a map, not %s", column, macro, of)
}

// inWords is a type that CEL wrote in words of those who write expressions.
func inWords(of string) string {
	name, in, _ := strings.Cut(strings.TrimSuffix(of, ")"), "(")
	switch {
	case name == "optional_type":
		return "an optional: put .orValue([]) before it"
	case strings.Contains(of, "."):
		return "a message of Protocol Buffers"
	case name == "map":
		return "a map with such keys"
	case name == "wrapper":
		return article(in)
	case name == "null":
		return name
	default:
		return article(name)
	}
}
