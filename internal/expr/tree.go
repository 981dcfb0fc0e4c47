// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// outputsRead finds the outputs in the tree of an expression. Reading a field of a step that is
// known not to be its output is no reason to load it; everything else is. An optional read names
// its step, too: it is about no other one.
func outputsRead(a *ast.AST) Outputs {
	reads := map[string]int{} // of a step, less those of other fields
	mentions := 0             // of `steps`, less those that name a step
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if isSteps(e) {
			mentions++
		}
		if name, ok := stepAsked(e); ok {
			mentions--
			reads[name]++
		}
		if of, field, ok := selected(e); ok && slices.Contains(besidesOutput(), field) {
			if name, ok := stepAsked(of); ok {
				reads[name]--
			}
		}
	}))
	out := Outputs{All: mentions > 0}
	for name, n := range reads {
		if n > 0 {
			out.Names = append(out.Names, name)
		}
	}
	slices.Sort(out.Names)
	return out
}

// besidesOutput are the other fields of a step.
func besidesOutput() []string { return []string{"phase", "error", "outputRef", "items", "approval"} }

// stepsRead finds the names in the tree of an expression.
func stepsRead(a *ast.AST) []string {
	var names []string
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if name, ok := stepRead(e); ok {
			names = append(names, name)
		}
	}))
	slices.Sort(names)
	return slices.Compact(names)
}

func stepRead(e ast.Expr) (string, bool) {
	if e.Kind() == ast.SelectKind {
		s := e.AsSelect()
		return s.FieldName(), isSteps(s.Operand())
	}
	of, name, ok := byText(e, operators.Index)
	return name, ok && isSteps(of)
}

// stepAsked is stepRead also for optional reads: steps.?NAME and steps[?"NAME"].
func stepAsked(e ast.Expr) (string, bool) {
	if name, ok := stepRead(e); ok {
		return name, true
	}
	of, name, ok := byText(e, operators.OptSelect, operators.OptIndex)
	return name, ok && isSteps(of)
}

// selected is what a field is read of, also optionally, and the field.
func selected(e ast.Expr) (of ast.Expr, field string, ok bool) {
	if e.Kind() == ast.SelectKind {
		return e.AsSelect().Operand(), e.AsSelect().FieldName(), true
	}
	return byText(e, operators.OptSelect)
}

// byText is what a call of one of some operators reads of, and the text by which it does.
func byText(e ast.Expr, ops ...string) (of ast.Expr, text string, ok bool) {
	if e.Kind() != ast.CallKind || !slices.Contains(ops, e.AsCall().FunctionName()) {
		return nil, "", false
	}
	args := e.AsCall().Args()
	if len(args) != 2 || args[1].Kind() != ast.LiteralKind {
		return nil, "", false
	}
	name, ok := args[1].AsLiteral().(types.String)
	return args[0], string(name), ok
}

// isSteps: where a local variable has the same name, the checker leaves the dot before ours.
func isSteps(e ast.Expr) bool {
	return e.Kind() == ast.IdentKind && strings.TrimPrefix(e.AsIdent(), ".") == varSteps
}

// needed is what a field is read of that has to be there, and the field.
func needed(e ast.Expr) (of ast.Expr, name string, ok bool) {
	if e.Kind() == ast.SelectKind {
		s := e.AsSelect()
		return s.Operand(), s.FieldName(), !s.IsTestOnly()
	}
	return byText(e, operators.Index)
}

// questioned is of what it is asked whether it has a field, and the field.
func questioned(e ast.Expr) (of ast.Expr, name string, ok bool) {
	if e.Kind() == ast.SelectKind {
		s := e.AsSelect()
		return s.Operand(), s.FieldName(), s.IsTestOnly()
	}
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.In {
		if args := e.AsCall().Args(); args[0].Kind() == ast.LiteralKind {
			text, ok := args[0].AsLiteral().(types.String)
			return args[1], string(text), ok
		}
	}
	return byText(e, operators.OptSelect, operators.OptIndex)
}

// localsOf are the variables that the macros of an expression have.
func localsOf(a *ast.AST) (names []string) {
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.ComprehensionKind {
			c := e.AsComprehension()
			names = append(names, c.IterVar(), c.IterVar2(), c.AccuVar()) // optMap has the user's name in the last
		}
	}))
	return names
}

// identifier is a name that CEL takes behind a dot.
var identifier = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// stepText is how an expression reads a step.
func stepText(name string) string {
	if identifier.MatchString(name) {
		return varSteps + "." + name
	}
	return varSteps + "[" + strconv.Quote(name) + "]"
}
