// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

const (
	// maxTypeSize is how large the type of a part may be: [[1]] is list(list(int)), which is 3. CEL
	// writes types out, over and over, while it checks an expression. Each link of
	// [1].map(x, {x: x}) doubles the type, and 20 links took all memory. 240 lists in each other
	// took it 13 s.
	maxTypeSize = 16
	// sizeOfOwn is the largest type of the result of a function that does not depend on what it is
	// given: list(string) of split, or optional(dyn) of inputs.?x.
	sizeOfOwn = 2
)

// grows are functions whose result is larger than what they are given, or smaller, by so much. That
// of others is no larger, or of a size of its own.
var grows = map[string]int{"optional.of": 1, "optional.ofNonZeroValue": 1, "type": 1, "value": -1, operators.Index: -1}

// checkTypes refuses an expression that CEL could not check in time. The expression is parsed only.
func checkTypes(tree ast.Expr) error {
	if typeSize(tree) > maxTypeSize {
		return fmt.Errorf("%w: lists, maps and optionals are more than %d deep in each other", ErrTooLarge, maxTypeSize)
	}
	return nil
}

// typeSize is at least the size of the largest type of a part of an expression. That of a value
// from outside is 1.
func typeSize(tree ast.Expr) int {
	t := typeSizes{vars: map[string]measure{}}
	t.of(tree)
	return t.most
}

// measure is of a type.
type measure struct {
	size int
	open bool // it is of an empty list, say, of which the checker finds out from its use what it is of
}

// larger is of a type that may be either.
func (m measure) larger(o measure) measure { return measure{max(m.size, o.size), m.open && o.open} }

// typeSizes counts. It stops once a type is too large.
type typeSizes struct {
	vars map[string]measure // of the variables of macros around
	most int
}

func (t *typeSizes) of(e ast.Expr) measure {
	if t.most > maxTypeSize {
		return measure{size: t.most}
	}
	m := t.kind(e)
	m.size = max(1, m.size)
	t.most = max(t.most, m.size)
	return m
}

func (t *typeSizes) kind(e ast.Expr) measure {
	switch e.Kind() {
	case ast.IdentKind:
		return t.vars[strings.TrimPrefix(e.AsIdent(), ".")]
	case ast.SelectKind:
		of := t.of(e.AsSelect().Operand())
		return measure{max(sizeOfOwn, of.size-2), of.open} // a map has keys, too
	case ast.CallKind:
		return t.call(e.AsCall())
	case ast.ListKind:
		return t.list(e.AsList().Elements())
	case ast.MapKind:
		return t.mapOf(e.AsMap().Entries())
	case ast.ComprehensionKind:
		return t.loop(e.AsComprehension())
	default:
		return measure{size: 1}
	}
}

func (t *typeSizes) call(c ast.CallExpr) measure {
	name, args := c.FunctionName(), c.Args()
	if c.IsMemberFunction() {
		args = append([]ast.Expr{c.Target()}, args...)
		if c.Target().Kind() == ast.IdentKind {
			name = qualified(c.Target().AsIdent(), name)
		}
	}
	all, open := measure{1, true}, name == "optional.none"
	for i, arg := range args {
		m := t.of(arg)
		if i == 0 && name == operators.Conditional {
			m.open = true // the condition, which says nothing of what is chosen
		}
		all, open = all.larger(m), open || m.open
	}
	switch {
	case name == operators.Add, name == operators.Conditional: // an empty list beside another is of what that one is of
		open = all.open
	case open && takesApart[name]:
		return measure{max(sizeOfOwn, all.size+1), true}
	}
	return measure{max(sizeOfOwn, all.size+grows[name]), open}
}

// takesApart are functions that tell the checker that what they are given is a list, a map or an
// optional, of what it did not know that of: each link of [][?0][?0] adds to the type of [].
var takesApart = map[string]bool{
	operators.Index: true, operators.OptIndex: true, operators.OptSelect: true, "value": true, "orValue": true, "or": true, "hasValue": true,
}

// qualified is the name of a function with a dot in it: before the check optional.of is a function
// of what is in a variable.
func qualified(before, name string) string {
	if whole := strings.TrimPrefix(before, ".") + "." + name; grows[whole] > 0 || whole == "optional.none" {
		return whole
	}
	return name
}

func (t *typeSizes) list(elements []ast.Expr) measure {
	all := measure{1, true}
	for _, e := range elements {
		all = all.larger(t.of(e))
	}
	return measure{1 + all.size, all.open}
}

func (t *typeSizes) mapOf(entries []ast.EntryExpr) measure {
	key, value := measure{1, true}, measure{1, true}
	for _, e := range entries {
		key, value = key.larger(t.of(e.AsMapEntry().Key())), value.larger(t.of(e.AsMapEntry().Value()))
	}
	return measure{1 + key.size + value.size, key.open || value.open}
}

// loop is of what a macro stands for: what it goes over gives its variables, and each turn adds to
// what is there.
func (t *typeSizes) loop(c ast.ComprehensionExpr) measure {
	element := t.of(c.IterRange())
	element.size--
	before := t.of(c.AccuInit())
	defer t.hide(c.IterVar(), element)()
	defer t.hide(c.IterVar2(), element)()
	defer t.hide(c.AccuVar(), before)()
	t.of(c.LoopCondition())
	t.vars[c.AccuVar()] = before.larger(t.of(c.LoopStep()))
	return t.of(c.Result())
}

// hide gives a variable a size until the function that it returns is called.
func (t *typeSizes) hide(name string, m measure) (undo func()) {
	outer, there := t.vars[name]
	t.vars[name] = m
	return func() {
		if t.vars[name] = outer; !there {
			delete(t.vars, name)
		}
	}
}
