// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
)

// maxTypeDepth is how deep lists, maps and optionals may be in each other in the text of an
// expression: [[1]] is 2 deep. CEL writes types out, over and over, while it checks an expression,
// and 240 lists in each other took it 13 s.
const maxTypeDepth = 16

// typeDepth is how deep the type of a part of an expression is by what the text says: of lists and
// maps as they are written, and of functions that give one of what they are given. Where the
// checker is to find out what an empty list is of, the type may be twice as deep.
func typeDepth(tree ast.Expr) int { return typesOf(tree).most }

func typesOf(tree ast.Expr) *typeDepths {
	t := &typeDepths{known: map[int64]dynamic{}}
	t.of(tree)
	return t
}

// measure is of a type.
type measure struct {
	depth int
	open  bool // it may be of an empty list, say, of which the checker finds out from its use what it is of
	known dynamic
}

// dynamic says what is known of a type that has nothing in it.
type dynamic int

const (
	ofParts     dynamic = iota // nothing: it may have something in it
	isDyn                      // dyn, of which a part is dyn
	optionalDyn                // optional(dyn)
	noParts                    // a text, a number or a bool
)

// unknown says whether what is in a type is dyn.
func (d dynamic) unknown() bool { return d == isDyn || d == optionalDyn }

// and is of a type that has both, or may be either.
func (m measure) and(o measure) measure {
	return measure{depth: max(m.depth, o.depth), open: m.open || o.open}
}

// in is of a list, say, of what was measured.
func (m measure) in() measure { return measure{depth: m.depth + 1, open: m.open} }

// typeDepths counts.
type typeDepths struct {
	most  int
	known map[int64]dynamic // by the number of a part, where something is known of it
}

func (t *typeDepths) of(e ast.Expr) measure {
	m := t.kind(e)
	t.most = max(t.most, m.depth)
	if m.known != ofParts {
		t.known[e.ID()] = m.known
	}
	return m
}

func (t *typeDepths) kind(e ast.Expr) measure {
	switch e.Kind() {
	case ast.LiteralKind:
		if e.AsLiteral() == types.NullValue {
			return measure{open: true} // stands for any optional
		}
		return measure{known: noParts}
	case ast.IdentKind: // see loopMacros; a name with @ is one of theirs
		return measure{known: dynamicIf(!strings.HasPrefix(e.AsIdent(), "@"))}
	case ast.SelectKind:
		return selectedOf(t.of(e.AsSelect().Operand()))
	case ast.CallKind:
		return t.call(e.AsCall())
	case ast.ListKind:
		return t.list(e.AsList().Elements())
	case ast.MapKind:
		return t.mapOf(e.AsMap().Entries())
	case ast.StructKind:
		return t.message(e.AsStruct().Fields())
	case ast.ComprehensionKind:
		return t.loop(e.AsComprehension())
	default:
		return measure{}
	}
}

// gives are functions whose result has what they are given in it, so much deeper. That of others is
// of a type of its own.
var gives = map[string]int{
	operators.Conditional: 0, operators.Add: 0,
	operators.Index: -1, operators.OptIndex: 0, operators.OptSelect: 0,
	"optional.of": 1, "optional.ofNonZeroValue": 1, "optional.none": 1, "optional.unwrap": 0, "unwrapOpt": 0,
	"first": 0, "last": 0, "or": 0, "orValue": 0, "value": -1, "type": 1,
}

// looksInto are functions that tell the checker that what they are given is a list, a map or an
// optional, of what it did not know that of: each link of [][?0][?0] makes the type of [] deeper.
var looksInto = map[string]bool{
	operators.Index: true, operators.OptIndex: true, operators.OptSelect: true,
	"optional.unwrap": true, "unwrapOpt": true, "first": true, "last": true, "orValue": true, "value": true,
}

// hides are functions that give nothing with parts that the checker knows.
var hides = map[string]bool{overloads.TypeConvertDyn: true, plainRange: true, plainValue: true}

// opens are functions of which the checker may not know what they give if it does not know what
// they are given.
var opens = map[string]bool{
	"optional.none": true, "optional.unwrap": true, "unwrapOpt": true, "first": true, "last": true,
	"or": true, "orValue": true, "value": true,
}

func (t *typeDepths) call(c ast.CallExpr) measure {
	name, args := c.FunctionName(), c.Args()
	if c.IsMemberFunction() {
		args = append([]ast.Expr{c.Target()}, args...)
		if c.Target().Kind() == ast.IdentKind {
			name = qualified(c.Target().AsIdent(), name)
		}
	}
	if name == operators.Add {
		return t.sum(args)
	}
	var first, all measure
	for i, arg := range args {
		m := t.of(arg)
		if i == 0 {
			first = m
		}
		if i > 0 || name != operators.Conditional { // the condition says nothing of what is chosen
			all = all.and(m)
		}
	}
	return result(name, first, all)
}

// added is what is known of a sum. No list can be added to a text, say, and no text to a list.
func added(a, b dynamic) dynamic {
	switch {
	case a == noParts || b == noParts:
		return noParts
	case a == isDyn && b == isDyn:
		return isDyn
	default:
		return ofParts
	}
}

// result is of what a function gives of a first argument, and of all.
func result(name string, first, all measure) measure {
	more, has := gives[name]
	switch {
	case !has:
		return measure{known: dynamicIf(hides[name])}
	case name == operators.OptSelect && first.known.unknown():
		return measure{known: optionalDyn}
	case name == operators.Index && first.known == isDyn,
		(name == "orValue" || name == "value") && first.known == optionalDyn:
		return measure{known: isDyn}
	case looksInto[name]:
		all = lookedInto(all, more)
	default:
		all.depth = max(0, all.depth+more)
	}
	all.open = all.open || opens[name]
	return all
}

// sum is of a sum of two.
func (t *typeDepths) sum(args []ast.Expr) measure {
	a, b := t.of(args[0]), t.of(args[1])
	if known := added(a.known, b.known); known != ofParts {
		return measure{known: known}
	}
	return a.and(b)
}

func dynamicIf(yes bool) dynamic {
	if yes {
		return isDyn
	}
	return ofParts
}

// selectedOf is of a field of what was measured.
func selectedOf(m measure) measure {
	if m.known.unknown() {
		return m
	}
	return lookedInto(m, 0)
}

// lookedInto is of a part of what was measured, which is so much deeper.
func lookedInto(m measure, more int) measure {
	if m.open {
		more = 1
	}
	return measure{depth: max(0, m.depth+more), open: m.open}
}

// qualified is the name of a function with a dot in it: before the check optional.of is a function
// of what is in a variable.
func qualified(before, name string) string {
	whole := strings.TrimPrefix(before, ".") + "." + name
	if _, there := gives[whole]; there {
		return whole
	}
	return name
}

func (t *typeDepths) list(elements []ast.Expr) measure {
	all := measure{open: len(elements) == 0}
	for _, e := range elements {
		all = all.and(t.of(e))
	}
	return all.in()
}

// mapOf counts the types of keys and of values one behind the other: {k: v} with the depth of both
// would be written out twice for each map that is the key and the value of another, {w: w}.
func (t *typeDepths) mapOf(entries []ast.EntryExpr) measure {
	var keys, values measure
	for _, e := range entries {
		keys, values = keys.and(t.of(e.AsMapEntry().Key())), values.and(t.of(e.AsMapEntry().Value()))
	}
	open := len(entries) == 0 || keys.open || values.open
	return measure{depth: keys.depth + values.depth, open: open}.in()
}

// message is of google.protobuf.Value{...}, say, whose type has no parts.
func (t *typeDepths) message(fields []ast.EntryExpr) measure {
	for _, f := range fields {
		t.of(f.AsStructField().Value())
	}
	return measure{}
}

// loop is of what a macro stands for. What it goes over has no part in its result.
func (t *typeDepths) loop(c ast.ComprehensionExpr) measure {
	t.of(c.IterRange())
	t.of(c.AccuInit())
	t.of(c.LoopCondition())
	return t.of(c.LoopStep()).and(t.of(c.Result()))
}
