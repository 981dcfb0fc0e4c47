// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/common/ast"
)

// mutation: an environment with CEL's own optMap or optFlatMap makes this fail: each link of a
// chain has what is before it twice, so 30 links are more than a replica has memory for.
func TestAChainOfOptionalsIsAsLargeAsItsText(t *testing.T) {
	for _, c := range []struct{ first, link string }{
		{"optional.of(1)", ".optMap(x,x)"},
		{"optional.of(1)", ".optFlatMap(x,optional.of(x))"},
		{"optional.of(" + strings.Repeat("[", 10) + "1" + strings.Repeat("]", 10) + ")", ".optMap(x,[x].map(y,y)[0])"},
	} {
		longest := (MaxExpressionLength - len(c.first) - len(".hasValue()")) / len(c.link)
		for _, links := range []int{1, 3, 8, min(longest, 25)} { // more may take too long to check
			src := c.first + strings.Repeat(c.link, links) + ".hasValue()"
			if links > 8 && t.Failed() {
				t.Fatal("the longest takes all memory")
			}
			_, err := compile(source{text: src}, nil)
			if err != nil {
				t.Fatalf("%d links of %s: %v", links, c.link, err)
			}
			nodes := 0
			ast.PostOrderVisit(parsedOf(t, src), ast.NewExprVisitor(func(ast.Expr) { nodes++ }))
			if most := 4 * len(src); nodes > most {
				t.Errorf("%d links of %s: %d characters have %d nodes, more than %d", links, c.link, len(src), nodes, most)
			}
			if yes, err := EvalCondition(src, Vars{}); err != nil || !yes {
				t.Errorf("%d links of %s: %t, %v", links, c.link, yes, err)
			}
		}
	}
}

// mutations: a macro that has its variable for what is outside of it, or that takes none for some,
// make this fail.
func TestOptionalMacrosDoWhatTheyDoInCEL(t *testing.T) {
	v := Vars{Inputs: map[string]any{"a": 1, "list": []any{}, "deep": map[string]any{"b": "x"}}}
	for src, want := range map[string]string{
		"inputs.?a.optMap(x, x + 1)":                                                             "2",
		"inputs.?none.optMap(x, x + 1).orValue(7)":                                               "7",
		"inputs.?a.optFlatMap(x, x == 1 ? optional.none() : optional.of(x)).hasValue()":          "false",
		"inputs.?deep.optFlatMap(x, x.?b).orValue(0)":                                            `"x"`,
		"inputs.?a.optMap(x, inputs.?deep.optMap(y, [x, y.b])).value().value()":                  `[1,"x"]`,
		"inputs.?a.optMap(x, x + 1).optMap(x, inputs.?a.optMap(y, x + y).value()).value()":       "3",
		"inputs.?a.optMap(x, inputs.?a.optMap(x, x + 5).value() + x).value()":                    "7",
		"inputs.?list.optMap(x, x + [1]).value()":                                                "[1]",
		"optional.of(inputs.list).optMap(inputs, inputs).value()":                                "[]",
		"[1, 2].map(i, optional.of(i).optMap(x, x * i).value())":                                 "[1,4]",
		"optional.of(1).optMap(x, [x, 2].exists(y, optional.of(y).optMap(z, z > x).value()))":    "true",
		"optional.ofNonZeroValue('').optMap(x, x.size()).or(optional.of('a').optMap(x, 2))":      "2",
		"inputs.?deep.?c.optMap(x, x).or(inputs.?deep.?b.optMap(x, x + x)).optMap(x, x).value()": `"xx"`,
	} {
		got, err := Prepare(v).Template(quote("${" + src + "}"))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", src, got, err)
		}
	}
	for src, want := range map[string]string{
		"inputs.a.optMap(x, x)":                         "no such overload: hasValue(int)",
		"[inputs.a.optMap(x, x)]":                       "no such overload: hasValue(int): inputs.a.optMap(x, x)",
		"inputs.missing.optMap(x, x)":                   "no such key: missing: inputs has a, deep, list",
		"inputs.?a.optMap(x, x.b)":                      "no such key",
		"inputs.?a.optMap(1, 2)":                        "optMap() variable name must be a simple identifier",
		"inputs.?a.optFlatMap(inputs.b, optional.of())": "optFlatMap() variable name must be a simple identifier",
	} {
		if _, err := Prepare(v).Template(quote("${" + src + "}")); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v", src, err)
		}
	}
}
