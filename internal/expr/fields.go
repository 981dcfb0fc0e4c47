// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/common/ast"
)

// field is a field that an expression reads by name, and fails without.
type field struct {
	of   string   // the text of what it is read of
	name string   // of the field
	has  []string // the fields that there are; nil: the place of the expression says it
}

// Fields says which fields the variables run and inputs have; nil: any.
func Fields(run, inputs []string) Option {
	return func(o *options) { o.run, o.inputs = run, inputs }
}

// stepFields are the fields of a step, or of a part of it; nil: any.
func stepFields(part string) []string {
	switch part {
	case "":
		return append(besidesOutput(), "output")
	case "items":
		return []string{"total", "succeeded", "failed"}
	case "outputRef":
		return []string{"name", "digest", "size"}
	case "error":
		return []string{"code", "message"}
	case "approval":
		return []string{"decision", "approver", "comment"}
	default:
		return nil
	}
}

// fieldsRead finds in the tree of an expression the fields that no step has, and those of other
// variables that have only some. A question, has() or an optional read, does not count. Neither
// does a variable that a macro of the expression calls the same.
func fieldsRead(a *ast.AST) (all []field) {
	locals := localsOf(a)
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		of, name, ok := needed(e)
		if !ok {
			return
		}
		if of.Kind() == ast.IdentKind {
			if v := of.AsIdent(); (v == varRun || v == varInputs) && !slices.Contains(locals, v) {
				all = append(all, field{of: v, name: name})
			}
			return
		}
		if f, ok := stepField(of, name); ok && !slices.Contains(f.has, name) && !slices.Contains(locals, varSteps) {
			all = append(all, f)
		}
	}))
	return all
}

// stepField is a field of what may be a step, or a part of one.
func stepField(of ast.Expr, name string) (field, bool) {
	if step, ok := stepRead(of); ok {
		return field{of: stepText(step), name: name, has: stepFields("")}, true
	}
	whole, part, ok := needed(of)
	if !ok {
		return field{}, false
	}
	step, ok := stepRead(whole)
	has := stepFields(part)
	return field{of: stepText(step) + "." + part, name: name, has: has}, ok && has != nil
}

// fieldsKnown says what is wrong with the fields that the expression reads in its place: an *Error.
func (p *program) fieldsKnown(o options) error {
	for _, f := range p.fields {
		has, here := f.has, ""
		switch f.of {
		case varRun:
			has, here = o.run, " here"
		case varInputs:
			has = o.inputs
		}
		if has != nil && !slices.Contains(has, f.name) {
			has = slices.Sorted(slices.Values(has))
			return wrong(p.text, fmt.Errorf("%s has no field %q%s; it has %s", shorten(f.of, shownExpression), shorten(f.name, shownKey), here, listed(has, shownFields)))
		}
	}
	return nil
}

const shownFields = 10 // in an error's text
