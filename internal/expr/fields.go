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
// variables that have only some. A question, has(), in or an optional read, does not count, nor do
// reads of what is asked for: they are behind the question. Neither does a variable that a macro of
// the expression calls the same.
func fieldsRead(a *ast.AST) []field {
	var all []field
	asked := map[[2]string]bool{}
	locals := localsOf(a)
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if f, ok := fieldOf(needed(e)); ok && !slices.Contains(f.has, f.name) && !slices.Contains(locals, f.variable()) {
			all = append(all, f)
		}
		if f, ok := fieldOf(questioned(e)); ok {
			asked[[2]string{f.of, f.name}] = true
		}
	}))
	return slices.DeleteFunc(all, func(f field) bool { return asked[[2]string{f.of, f.name}] })
}

// fieldOf is a field that was found to be read.
func fieldOf(of ast.Expr, name string, read bool) (field, bool) {
	switch {
	case !read:
		return field{}, false
	case of.Kind() == ast.IdentKind:
		v := of.AsIdent()
		return field{of: v, name: name}, v == varRun || v == varInputs
	default:
		return stepField(of, name)
	}
}

// variable is that of which a field is read.
func (f *field) variable() string {
	if f.of == varRun || f.of == varInputs {
		return f.of
	}
	return varSteps
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
			if len(has) == 0 {
				has = []string{"none"}
			}
			return wrong(p.text, fmt.Errorf("%s has no field %q%s; it has %s", shorten(f.of, shownExpression), shorten(f.name, shownKey), here, listed(has, shownFields)))
		}
	}
	return nil
}

const shownFields = 10 // in an error's text
