package expr

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// ConditionSteps lists the steps that a condition reads by name, steps.NAME or steps["NAME"], each once. Optional reads,
// steps.?NAME, do not count: they are a question whether there is such a step. Its error is that of CheckCondition.
func ConditionSteps(src string) ([]string, error) {
	p, err := condition(src)
	if err != nil {
		return nil, err
	}
	return p.steps, nil
}

// TemplateSteps lists the steps that the expressions of a template read, as ConditionSteps does. Its error is that of
// CheckTemplate.
func TemplateSteps(raw []byte) ([]string, error) {
	var names []string
	r := renderer{value: func(p *program) (any, error) {
		names = append(names, p.steps...)
		return nil, nil
	}}
	if _, err := r.document(raw); err != nil {
		return nil, err
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

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
	switch e.Kind() {
	case ast.SelectKind:
		s := e.AsSelect()
		return s.FieldName(), isSteps(s.Operand())
	case ast.CallKind:
		c := e.AsCall()
		if c.FunctionName() != operators.Index || len(c.Args()) != 2 || !isSteps(c.Args()[0]) || c.Args()[1].Kind() != ast.LiteralKind {
			return "", false
		}
		name, ok := c.Args()[1].AsLiteral().(types.String)
		return string(name), ok
	default:
		return "", false
	}
}

func isSteps(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == varSteps }
