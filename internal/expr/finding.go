// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"
)

const (
	noOverload = "no such overload" // CEL's words for operands of wrong types

	shownKeys = 5  // of a map in an error's text
	shownKey  = 24 // characters of each
)

// finding is an error with the node of the expression that met it, and what it met there. CEL says
// "no such key: x" of an expression of any length; where that was and what was there instead is
// known at that moment only. It is put into words when it ends the evaluation: a loop can meet
// thousands of errors which || and && do not mind.
type finding struct {
	error    // CEL's
	node     int64
	operands []ref.Val // of a call; or what has no such key
}

// Unwrap gives CEL's error.
func (f *finding) Unwrap() error { return f.error }

// tellingAttribute is a variable whose keys are looked up by telling qualifiers.
type tellingAttribute struct {
	interpreter.InterpretableAttribute
}

// AddQualifier adds a key to look up.
func (a *tellingAttribute) AddQualifier(q interpreter.Qualifier) (interpreter.Attribute, error) {
	return a.InterpretableAttribute.AddQualifier(&tellingQualifier{q})
}

// Eval is the older form of Exec.
func (a *tellingAttribute) Eval(vars interpreter.Activation) ref.Val {
	return a.Exec(interpreter.AsFrame(vars))
}

// Exec takes a unit and gives the value.
func (a *tellingAttribute) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if !stepped(frame, 1) {
		return types.False
	}
	return a.InterpretableAttribute.Exec(frame)
}

// tellingQualifier looks a key up, for a unit. If it is not there, its error is a finding.
type tellingQualifier struct{ interpreter.Qualifier }

// Qualify gives the value of the key in obj.
func (q *tellingQualifier) Qualify(vars interpreter.Activation, obj any) (any, error) {
	if !stepped(vars, 1) {
		return types.False, nil
	}
	value, err := q.Qualifier.Qualify(vars, obj)
	if err == nil {
		return value, nil
	}
	_, found := errors.AsType[*finding](err)
	if _, failed := errors.AsType[*types.Err](err); found || failed {
		return nil, err // of the expression that says which key, or obj is an error itself
	}
	return nil, &finding{error: err, node: q.ID(), operands: []ref.Val{jsonAdapter{}.NativeToValue(obj)}}
}

// QualifyIfPresent gives the value of the key in obj, if it is there.
func (q *tellingQualifier) QualifyIfPresent(vars interpreter.Activation, obj any, presenceOnly bool) (any, bool, error) {
	if !stepped(vars, 1) {
		return types.False, true, nil
	}
	return q.Qualifier.QualifyIfPresent(vars, obj, presenceOnly)
}

// told is an error of evaluation, with its place and what was found there.
func (p *program) told(err error) string {
	message := err.Error()
	if got, isRange := strings.CutSuffix(message, "', expected iterable type"); isRange { // got 'types.Int
		return "a macro needs a list or a map, not " + article(strings.ToLower(got[strings.LastIndexByte(got, '.')+1:]))
	}
	f, found := errors.AsType[*finding](err)
	if !found {
		f = &finding{error: err}
		if e, failed := errors.AsType[*types.Err](err); failed {
			f.node = e.NodeID()
		}
	}
	if details := placeOf(p.env, p.text, f.node).details(f, message); details != "" {
		return message + ": " + details
	}
	return message
}

// details are empty if they would be the expression again.
func (at place) details(f *finding, message string) string {
	switch node := at.node; {
	case node == nil:
		return ""
	case f.operands != nil && container(node) != nil:
		return at.write(container(node)) + " " + contents(f.operands[0])
	case f.operands != nil && message == noOverload:
		return at.write(node) + " is " + signature(node.AsCall().FunctionName(), f.operands)
	case message == noOverload && isLogic(node):
		return at.noBool(node.AsCall())
	case node.ID() == at.root.ID():
		return ""
	default:
		return at.write(node)
	}
}

// place is a node in the tree of an expression; nil if CEL did not say which.
type place struct {
	root, node ast.Expr
	info       *ast.SourceInfo
}

// placeOf reads the text again, for programs are many and mistakes few: nobody keeps the tree. Ids
// are given in order of reading.
func placeOf(env *cel.Env, text string, id int64) place {
	var at place
	if parsed, iss := env.Parse(text); iss.Err() == nil {
		at = place{root: parsed.NativeRep().Expr(), info: parsed.NativeRep().SourceInfo()}
		ast.PostOrderVisit(at.root, ast.NewExprVisitor(func(e ast.Expr) {
			if e.ID() == id || asksOptional(e, id) {
				at.node = e
			}
		}))
	}
	return at
}

// write gives the text of a part.
func (at place) write(e ast.Expr) string {
	text, _ := parser.Unparse(e, at.info) // what was read can be written
	return shorten(strings.Join(strings.Fields(text), " "), shownExpression)
}

// noBool says which operand of && || ?: is meant. Where CEL wrote them for a macro, its own
// variable is one operand.
func (at place) noBool(call ast.CallExpr) string {
	first, second := call.Args()[0], call.Args()[1]
	switch {
	case call.FunctionName() == operators.Conditional:
		return at.write(first) + " is not a bool"
	case first.Kind() == ast.IdentKind && strings.HasPrefix(first.AsIdent(), "@"):
		return at.write(second) + " is not a bool"
	default:
		return "not both are bools: " + at.write(first) + ", " + at.write(second)
	}
}

func isLogic(e ast.Expr) bool {
	return e.Kind() == ast.CallKind &&
		slices.Contains([]string{operators.LogicalAnd, operators.LogicalOr, operators.Conditional}, e.AsCall().FunctionName())
}

// container is the part in which a node looks a key up, or nil.
func container(e ast.Expr) ast.Expr {
	switch {
	case e.Kind() == ast.SelectKind:
		return e.AsSelect().Operand()
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index:
		return e.AsCall().Args()[0]
	default:
		return nil
	}
}

// contents says of a value what keys can be looked up in it. It shows keys and no values, which
// may be secret.
func contents(val ref.Val) string {
	switch v := val.(type) {
	case traits.Mapper:
		return "has " + keysOf(v)
	case traits.Lister:
		return fmt.Sprintf("is a list of %v", v.Size())
	default:
		return "is " + article(kind(val))
	}
}

func keysOf(m traits.Mapper) string {
	var keys []string
	for it := m.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, shorten(fmt.Sprint(it.Next().Value()), shownKey))
	}
	slices.Sort(keys)
	if len(keys) == 0 {
		return "no keys"
	}
	return listed(keys, shownKeys)
}

// signature is a call with the types of its operands in their places.
func signature(function string, operands []ref.Val) string {
	kinds := make([]string, len(operands))
	for i, o := range operands {
		kinds[i] = kind(o)
	}
	name, isOperator := operators.FindReverse(function)
	switch {
	case isOperator && len(kinds) == 2:
		return kinds[0] + " " + name + " " + kinds[1]
	case isOperator:
		return name + strings.Join(kinds, "")
	default:
		return function + "(" + strings.Join(kinds, ", ") + ")"
	}
}
