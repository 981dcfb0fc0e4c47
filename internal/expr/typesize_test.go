// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/cel-go/common/ast"
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

// mutations: a compile without checkTypes, a loop that gives its variables nothing, or forgets what
// a turn adds, and a condition that says what is chosen by it, make this fail, or end the test for
// want of time or memory.
func TestATypeThatIsTooLargeIsRefused(t *testing.T) {
	for first, link := range map[string]string{
		"optional.of(1)":       ".optMap(x,{x:x})",
		"[1]":                  ".map(x,{x:x})",
		"[inputs.s]":           ".map(x,{'a':x})",
		"[[1]]":                ".map(x,[x])",
		"[type(1)]":            ".map(x,type(x)).map(x,[x])",
		"[{1: 1}]":             ".map(x,x.map(y,{y:x}))",
		"(inputs.c ? [] : [])": "[?0]",
	} {
		for _, links := range []int{16, 30} {
			src := first + strings.Repeat(link, links) + " == 1"
			if _, err := ConditionSteps(src); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "more than 16 deep in each other") {
				t.Fatalf("%s: %v", src, err)
			}
		}
	}
	deep := strings.Repeat("[", 17) + "1" + strings.Repeat("]", 17) + ".size() == 1"
	if _, err := ConditionSteps(deep); !errors.Is(err, ErrTooLarge) {
		t.Errorf("lists in each other: %v", err)
	}
}

// mutations: a value() that is as large as its optional, and a loop whose variables are as large as
// what it goes over, make this fail.
func TestLongChainsOfSmallTypesAreTaken(t *testing.T) {
	for first, link := range map[string]string{
		"[1]":                      ".map(x,x)",
		"[[1]]":                    ".filter(x,x==[1])",
		"optional.of({'a': [1]})":  ".optMap(x,x)",
		"optional.of(1) ":          ".optFlatMap(x,optional.of(x))",
		"inputs":                   ".?a",
		"inputs.list":              ".map(x,{'a':x['a'],'b':[x]})[0].b",
		"'a'":                      ".split(',')[0]",
		"{'a': {'b': {'c': [1]}}}": ".map(k,k)",
	} {
		src := first + strings.Repeat(link, (MaxExpressionLength-len(first)-len(" == 1"))/len(link)) + " == 1"
		if _, err := ConditionSteps(src); errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", src, err)
		}
	}
}

// mutation: grows without one of its functions makes this fail.
func TestFunctionsGiveNoLargerTypesThanGrowsSays(t *testing.T) {
	c, err := sharedCompiler()
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range c.itemEnv.Functions() {
		for _, o := range f.OverloadDecls() {
			most := 1
			for _, arg := range o.ArgTypes() {
				most = max(most, sizeOf(arg))
			}
			if got := sizeOf(o.ResultType()); got > max(sizeOfOwn, most+grows[name]) || got > most+grows[name] && strings.Contains(fmt.Sprint(o.ResultType()), "T") {
				t.Errorf("%s gives %s of %v", name, o.ResultType(), o.ArgTypes())
			}
		}
	}
}

// mutations: of that leaves out a kind of node, and hide that gives the outer size back too early,
// make this fail.
func TestTypesAreNoLargerThanCounted(t *testing.T) {
	c, err := sharedCompiler()
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for seed := range uint64(3_000) {
		src := someExpression(rand.New(rand.NewPCG(seed, 1)), 4)
		parsed, iss := c.env.Parse(src)
		if iss.Err() != nil {
			continue
		}
		counted := typeSize(parsed.NativeRep().Expr())
		if counted > maxTypeSize {
			continue
		}
		checked, iss := c.env.Check(parsed)
		if iss.Err() != nil {
			continue
		}
		taken++
		ast.PostOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
			if got := sizeOf(checked.NativeRep().GetType(e.ID())); got > counted {
				t.Fatalf("seed %d, %s: %s is larger than %d", seed, src, checked.NativeRep().GetType(e.ID()), counted)
			}
		}))
	}
	if taken < 300 {
		t.Errorf("%d expressions were compared", taken)
	}
}

// someExpression is one of parts in each other, whose types may not fit.
func someExpression(r *rand.Rand, depth int) string {
	if depth == 0 {
		return []string{"1", "'a'", "x", "y", "inputs", "inputs.a", "[]", "{}", "optional.none()"}[r.IntN(9)]
	}
	a, b := someExpression(r, depth-1), someExpression(r, depth-1)
	return strings.NewReplacer("A", a, "B", b).Replace([]string{
		"[A, B]", "[A]", "{A: B}", "{'a': B}", "optional.of(A)", "optional.of(A).optMap(x, B)", "[A].map(x, B)", "[A, A].filter(y, B == y)",
		"{'k': A}.map(y, B)", "optional.of(A).value()", "[A][0]", "[?optional.of(A)]", "[A].map(x, [x].map(y, B))", "A.?k", "A[?0]",
		"optional.of(A).orValue(B)", "type(A)", "A == B ? [A] : [B]", "A + [B]", "dyn(A)", "A",
	}[r.IntN(21)])
}
