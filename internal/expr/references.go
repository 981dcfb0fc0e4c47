// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// ConditionSteps lists the steps that a condition reads by name, steps.NAME or steps["NAME"], each
// once. Optional reads, steps.?NAME, do not count: they are a question whether there is such a
// step. Its error is that of CheckCondition.
func ConditionSteps(src string, with ...Option) ([]string, error) {
	p, err := condition(src, optionsOf(with))
	if err != nil {
		return nil, err
	}
	return p.steps, nil
}

// TemplateSteps lists the steps that the expressions of a template read, as ConditionSteps does.
// Its error is that of CheckTemplate.
func TemplateSteps(raw []byte, with ...Option) ([]string, error) {
	var names []string
	r := renderer{check: true, options: optionsOf(with), value: func(p *program) (any, error) {
		names = append(names, p.steps...)
		return nil, nil
	}}
	if _, err := r.document(raw); err != nil {
		return nil, err
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Outputs says of which steps an expression reads the output, so that nobody has to
// load the others.
type Outputs struct {
	Names []string // steps whose output, or which as a whole, it reads by name; sorted
	All   bool     // it reads steps in a way that their names do not tell: any of them may be meant
}

// ConditionOutputs says which outputs a condition reads. Its error is that of CheckCondition.
func ConditionOutputs(src string, with ...Option) (Outputs, error) {
	p, err := condition(src, optionsOf(with))
	if err != nil {
		return Outputs{}, err
	}
	return p.outputs, nil
}

// TemplateOutputs says which outputs the expressions of a template read. Its error is
// that of CheckTemplate.
func TemplateOutputs(raw []byte, with ...Option) (Outputs, error) {
	var all Outputs
	r := renderer{options: optionsOf(with), value: func(p *program) (any, error) {
		all.Names = append(all.Names, p.outputs.Names...)
		all.All = all.All || p.outputs.All
		return nil, nil
	}}
	if _, err := r.document(raw); err != nil {
		return Outputs{}, err
	}
	slices.Sort(all.Names)
	all.Names = slices.Compact(all.Names)
	return all, nil
}

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
