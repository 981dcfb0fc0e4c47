// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// sizeOf is how many words a type has that CEL writes out.
func sizeOf(t *types.Type) int {
	size := 1
	for _, of := range t.Parameters() {
		size += sizeOf(of)
	}
	return size
}

// depthOf is how deep the parts of a type are in each other.
func depthOf(t *types.Type) int {
	depth := 0
	for _, of := range t.Parameters() {
		depth = max(depth, 1+depthOf(of))
	}
	return depth
}

// largestOf is the size of the largest type of a part of an expression, and the depth of the
// deepest. ok is false for one that CEL refuses.
func largestOf(t *testing.T, src string) (size, depth int, ok bool) {
	t.Helper()
	c, err := sharedCompiler()
	if err != nil {
		t.Fatal(err)
	}
	parsed, iss := c.env.Parse(src)
	if iss.Err() != nil {
		t.Fatalf("%s: %v", src, iss.Err())
	}
	checked, iss := c.env.Check(parsed)
	if iss.Err() != nil {
		return 0, 0, false
	}
	tree := checked.NativeRep()
	ast.PostOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		size, depth = max(size, sizeOf(tree.GetType(e.ID()))), max(depth, depthOf(tree.GetType(e.ID())))
	}))
	return size, depth, true
}

// nested is macros in each other. In the innermost a condition names each of their variables, V,
// with that of the macro around it, P.
func nested(macro, end, condition string, links int) string {
	name := func(i int) string { return string(rune('a'+i%26)) + strconv.Itoa(i/26) }
	var src strings.Builder
	for i := range links {
		src.WriteString(strings.ReplaceAll(macro, "V", name(i)))
	}
	for i := 1; i < links; i++ {
		src.WriteString(strings.NewReplacer("P", name(i-1), "V", name(i)).Replace(condition) + "&&")
	}
	return src.String() + "true" + strings.Repeat(end, links)
}

// With names that have types each link doubles the type of the one around it. Fourteen links are
// looked at first: thirty would take all memory.
//
// mutations: an environment without loopMacros, and optMap with a variable that has a type, make
// this fail.
func TestNoTypeDoublesWithANameInTwoPlaces(t *testing.T) {
	const whole = " == optional.none()"
	for _, c := range []struct{ macro, end, condition string }{
		{"[].all(V,", ")", "P=={V:V}"},
		{"[].exists(V,", ")", "P!={V:V}"},
		{"[].exists_one(V,", ")", "P in[{V:V}]"},
		{"[].all(V,", ")", "[P,{V:V}]!=[]"},
		{"[].all(V,", ")", "{1:P,2:{V:V}}!={}"},
		{"[].all(V,", ")", "(true?P:{V:V})!={}"},
		{"[].all(V,", ")", "[P]+[{V:V}]!=[]"},
		{"[].filter(V,", ")!=[]", "[{V:V}]==[P]"},
		{"[].map(V,", ")!=[]", "P==optional.of({V:V})"},
		{"[].map(V,", ",1)!=[]", "P=={V:V}"},
		{"{}.all(V,", ")", "P=={V:V}"},
		{"[inputs.value()].all(V,", ")", "P=={V:V}"},
		{"[null.value()].all(V,", ")", "P=={V:V}"},
		{"[optional.none()].all(V,", ")", "P=={V:V}.?a"},
		{"(true?[[]]:null).all(V,", ")", "P==[{V:V}]"},
		{"optional.none().optMap(V,", ")!=optional.none()", "P=={V:V}"},
		{"optional.none().optFlatMap(V,optional.of(", "))!=optional.none()", "P=={V:V}"},
	} {
		perLink := len(nested(c.macro, c.end, c.condition, 11)) - len(nested(c.macro, c.end, c.condition, 10))
		for _, links := range []int{14, (MaxExpressionLength - len(whole)) / perLink} {
			src := nested(c.macro, c.end, c.condition, links)
			size, _, ok := largestOf(t, src)
			if ok && size > len(src) {
				t.Fatalf("%s: a type has %d words", src, size)
			}
		}
	}
	chain := "[1]" + strings.Repeat(".map(x,{x:x})", 14)
	if size, _, ok := largestOf(t, chain); !ok || size > 4 {
		t.Errorf("%s: a type has %d words, %t", chain, size, ok)
	}
}

// mutations: mapOf that takes the deeper of key and value, of that leaves out a kind of
// node, a field that is no look into a type, and looksInto without an index, value or
// orValue, make this fail.
func TestATypeThatIsTooDeepIsRefused(t *testing.T) {
	for name, part := range map[string]struct{ before, in, after string }{
		"lists":               {"[", "1", "]"},
		"empty lists":         {"[", "[]", "]"},
		"maps":                {"{'a':", "1", "}"},
		"empty maps":          {"{'a':", "{}", "}"},
		"keys":                {"{", "1", ":'a'}"},
		"lists of macros":     {"[1].map(x,", "x", ")"},
		"optionals":           {"optional.of(", "inputs", ")"},
		"lists beside others": {"[1,", "2", "]"},
		"types":               {"type(", "1", ")"},
	} {
		deep := func(n int) string { return strings.Repeat(part.before, n) + part.in + strings.Repeat(part.after, n) }
		least := strings.Count(part.in, "[") + strings.Count(part.in, "{")
		if _, err := TemplateSteps(quote("${" + deep(maxTypeDepth-least) + "}")); errors.Is(err, ErrTooLarge) {
			t.Errorf("%s, %d deep: %v", name, maxTypeDepth, err)
		}
		_, err := TemplateSteps(quote("${" + deep(maxTypeDepth-least+1) + "}"))
		if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "more than 16 deep in each other") {
			t.Errorf("%s, %d deep: %v", name, maxTypeDepth+1, err)
		}
	}
	for first, link := range map[string]string{
		"(inputs.c ? [] : [])": "[?0]",
		"[]":                   "[0]",
		"inputs":               ".value()",
		"null":                 ".value()",
		"null['a']":            "[0]",
		"[][0]":                ".unwrapOpt()[0]",
		"[][0][0]":             ".first().value()",
		"optional.none()":      ".orValue(optional.none())",
		"{'a':[{'a':[]}][0]}":  ".a[0]",
	} {
		src := first + strings.Repeat(link, 18) + " == 1"
		if _, err := ConditionSteps(src); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", src, err)
		}
	}
	fields := "[][0]" // each choice tells the checker of more fields in what [] is of
	for range 6 {
		fields = "(true?" + fields + ":{'x':{'x':{}}}).x.x.x"
	}
	if _, err := ConditionSteps(fields + " == 1"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%s: %v", fields, err)
	}
	both := "{}" // each would have the type of the one before twice
	for range 5 {
		both = "{" + both + ":" + both + "}"
	}
	if _, err := ConditionSteps(both + " == 1"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%s: %v", both, err)
	}
	hidden := "google.protobuf.ListValue{values:" + strings.Repeat("[", 17) + strings.Repeat("]", 17) + "} == 1"
	if _, err := ConditionSteps(hidden); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%s: %v", hidden, err)
	}
}

// mutations: a call of any function that is as deep as what it is given, and orValue that does not
// know that a part of an input is dyn, make this fail.
func TestWhatIsNotDeepIsTaken(t *testing.T) {
	for first, link := range map[string]string{
		"[1]":                      ".map(x,x)",
		"[2]":                      ".map(x,{x:x})",
		"[[1]]":                    ".filter(x,x==[1])",
		"[type(1)]":                ".map(x,[type(x)])",
		"optional.of({'a': [1]})":  ".optMap(x,x)",
		"optional.of(2)":           ".optMap(x,[{x:x}])",
		"optional.of(1) ":          ".optFlatMap(x,optional.of(x))",
		"inputs":                   ".?a",
		"inputs ":                  ".?a.orValue({})",
		"inputs.a":                 ".?b.value()[0]",
		"inputs.list":              ".map(x,{'a':x['a'],'b':[x]})[0].b",
		"'a'":                      ".split(',')[0]",
		"{'a': {'b': {'c': [1]}}}": ".map(k,k)",
		"1":                        "==size({'a':{'b':[[1]]}})",
		"inputs.b":                 "&&[[inputs.a]]!=[[[]]]",
	} {
		if size, _, ok := largestOf(t, first+strings.Repeat(link, 8)); ok && size > 16 {
			t.Fatalf("%s: with 8 of %s a type has %d words: the longest takes all memory", first, link, size)
		}
		links := min(50, (MaxExpressionLength-len(first)-len(" == 1"))/len(link)) // more may take too long to check
		src := first + strings.Repeat(link, links) + " == 1"
		if _, err := ConditionSteps(src); errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", src, err)
		}
	}
	scalar := "[[x]].size()"
	for range 20 {
		scalar = "{'a': [" + scalar + "]}.size()"
	}
	if got := typeDepth(parsedOf(t, scalar)); got != 2 {
		t.Errorf("%s is %d deep", scalar, got)
	}
}

func parsedOf(t *testing.T, src string) ast.Expr {
	t.Helper()
	c, err := sharedCompiler()
	if err != nil {
		t.Fatal(err)
	}
	parsed, iss := c.env.Parse(src)
	if iss.Err() != nil {
		t.Fatalf("%s: %v", src, iss.Err())
	}
	return parsed.NativeRep().Expr()
}

// ownDepth is how deep a type is that the text does not show: list(string) of split, and
// type(list(dyn)) of list.
const ownDepth = 2

// What is said of functions holds for each that the environment has, and none has what it is given
// in two places of its result.
//
// mutations: gives, or opens, without one of its functions makes this fail.
func TestFunctionsGiveWhatIsSaidOfThem(t *testing.T) {
	c, err := sharedCompiler()
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range c.itemEnv.Functions() {
		if name == operators.OptSelect { // the checker does not go by what is declared of it
			continue
		}
		for _, o := range f.OverloadDecls() {
			most, result := 0, o.ResultType()
			for _, arg := range o.ArgTypes() {
				most = max(most, depthOf(arg))
			}
			more, has := gives[name]
			if depthOf(result) > max(ownDepth, most+more) || depthOf(result) > most+more && variables(result) > 0 {
				t.Errorf("%s gives %s of %v", name, result, o.ArgTypes())
			}
			if variables(result) > 1 || variables(result) > 0 && !has {
				t.Errorf("%s gives %s, as it is not said", name, result)
			}
			bare := slices.ContainsFunc(o.ArgTypes(), func(t *types.Type) bool { return t.Kind() == types.TypeParamKind })
			if len(f.OverloadDecls()) == 1 && variables(result) > 0 && !bare && !opens[name] { // of dyn it is not known
				t.Errorf("%s may give %s of anything", name, result)
			}
		}
	}
}

// variables is how many variables are in a type.
func variables(t *types.Type) int {
	if t.Kind() == types.TypeParamKind {
		return 1
	}
	n := 0
	for _, of := range t.Parameters() {
		n += variables(of)
	}
	return n
}

// mutations: an environment without loopMacros, and of that leaves out a kind of node, make this
// fail.
func TestTypesAreNoDeeperThanTheirText(t *testing.T) {
	for name, c := range map[string]struct {
		some func(r *rand.Rand) string
		most func(counted int) int
	}{
		"parts in each other": {
			some: func(r *rand.Rand) string { return "dyn(" + someExpression(r, 4) + ")==1" },
			most: func(counted int) int { return 2*counted + ownDepth },
		},
		"conditions": {some: someConditions, most: func(counted int) int { return max(counted, ownDepth) }},
	} {
		taken := 0
		for seed := range uint64(1_000) {
			src := "[].all(x,[].all(y,[].all(z,[].all(v,[].all(w," + c.some(rand.New(rand.NewPCG(seed, 1))) + ")))))"
			counted := typeDepth(parsedOf(t, src))
			if counted > maxTypeDepth {
				continue
			}
			size, depth, ok := largestOf(t, src)
			if !ok {
				continue
			}
			taken++
			if depth > c.most(counted) || size > len(src) {
				t.Fatalf("%s, seed %d, %s: a type has %d words and is %d deep, by the text %d", name, seed, src, size, depth, counted)
			}
		}
		if taken < 100 {
			t.Errorf("%s: %d expressions were compared", name, taken)
		}
	}
}

// someConditions say of five names, all at once, what they are. None looks into a name, so no type
// is deeper than the text.
func someConditions(r *rand.Rand) string {
	var all []string
	for range 5 {
		name := func() string { return string("xyzvw"[r.IntN(5)]) }
		all = append(all, strings.NewReplacer("P", name(), "Q", name()).Replace([]string{
			"P == {Q: Q}", "P != [Q]", "P in [{Q: Q}]", "[P] + [[Q]] != []", "(inputs.c ? P : [Q]) == 1", "[P, {Q: Q}] == []", "{1: P, 2: [Q]} != {}",
			"P == optional.of(Q)", "optional.none() != optional.of([P, [Q]])", "P == Q",
		}[r.IntN(10)]))
	}
	return strings.Join(all, " && ")
}

// someExpression is one of parts in each other, whose types may not fit.
func someExpression(r *rand.Rand, depth int) string {
	if depth == 0 {
		return []string{"1", "'a'", "x", "y", "z", "v", "w", "inputs", "inputs.a", "[]", "[]", "{}", "optional.none()", "null", "inputs.value()"}[r.IntN(15)]
	}
	a, b := someExpression(r, depth-1), someExpression(r, depth-1)
	name := string("xyzvw"[r.IntN(5)])
	return strings.NewReplacer("A", a, "B", b, "N", name).Replace([]string{
		"[A, B]", "[A]", "{A: B}", "{'a': B}", "optional.of(A)", "optional.of(A).optMap(N, B)", "[A].map(N, B)", "[A, A].filter(N, B == N)",
		"{'k': A}.map(N, B)", "optional.of(A).value()", "[A][0]", "[?optional.of(A)]", "[A].map(N, [N].map(y, B))", "A.?k", "A[?0]",
		"optional.of(A).orValue(B)", "type(A)", "((A) == (B) ? [A] : [B])", "((A) + [B])", "dyn(A)", "A",
		"[].all(N, A)", "[].all(N, [A] == [{N: N}] && (B))", "((A) == (B) && N == {w: w})", "((A) in [B])", "((A) + (B))", "(inputs.c ? A : B)", "{1: A, 2: B}",
		"A.value()", "A.orValue(B)", "A.or(B)", "A.unwrapOpt()", "A.first()", "google.protobuf.ListValue{values: A}", "A[0]", "A.k", "[N, {w: v}, A]", "[].exists(N, A == B)",
	}[r.IntN(38)])
}

// mutations: a plainRange that takes anything, and a compile that does not put CEL's words into
// others, make this fail.
func TestAMacroOverNoListIsRefused(t *testing.T) {
	for src, want := range map[string]string{
		"'a,b'.exists(x, x == 'a')":                              "column 1: exists goes over a list or a map, not a string",
		"1 == 1 && inputs.n.size().all(x, x > 1)":                "all goes over a list or a map, not an int",
		"[1].all(x, inputs.?a.exists(y, y == x))":                "column 18: exists goes over a list or a map, not an optional: put .orValue([]) before it",
		"inputs.?l.map(x, x) == []":                              "map goes over a list or a map, not an optional: put .orValue([]) before it",
		"google.protobuf.Int64Value{}.all(x, x)":                 "all goes over a list or a map, not an int",
		"google.protobuf.Empty{}.all(x, x)":                      "all goes over a list or a map, not a message of Protocol Buffers",
		"{1.5: 1}.all(x, true)":                                  "all goes over a list or a map, not a map with such keys",
		"null.filter(x, x) == 1":                                 "filter goes over a list or a map, not null",
		"[1].all(x, x.all(y, y))":                                "column 12: all goes over a list or a map, not an int",
		"optional.of(google.protobuf.Empty{}).optMap(x, x) == 1": "optMap takes no message of Protocol Buffers",
		"inputs.l.map(x, 1).filter(x, 'a'.map(x))":               "undeclared reference to 'map'",
	} {
		if _, err := ConditionSteps(src); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v", src, err)
		}
	}
	for _, src := range []string{"inputs.all(x, x == x)", "[].all(x, x)", "{}.all(x, x)", "[[1]].all(x, x.all(y, y > 0))", "'a'.split(',').all(x, x == 'a')"} {
		if _, err := ConditionSteps(src); err != nil {
			t.Errorf("%s: %v", src, err)
		}
	}
}
