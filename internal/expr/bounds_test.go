// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"

	"github.com/syncopate-dev/syncopate/internal/expr/budget"
)

// What the bounds are for: each of these few characters would take gigabytes or years
// without one. Doublings nest a list in itself, so its text is 2^33 elements long; they cost
// CEL some hundred units.
func TestNobodyStallsTheOperator(t *testing.T) {
	doubled := "[inputs.s]" + strings.Repeat(".map(x, [x, x, x, x, x, x, x, x])", 11)
	quoted := strings.Repeat("strings.quote(", 60) + `"\\"` + strings.Repeat(")", 60)
	for name, tc := range map[string]struct {
		src string
		is  error
	}{
		// mutation: room.take that never refuses, with array that does not look at the size, makes
		// this one hang.
		"a list of 2^33 elements as a result": {doubled, ErrTooLarge},
		// mutation: budget.Charges without == makes this one hang. Without its function most
		// below hang too.
		"equality of nested lists":        {"[" + doubled + "].map(l, l == l)", budget.ErrOperands},
		"inequality of nested lists":      {"[" + doubled + "].map(l, l != l)", budget.ErrOperands},
		"membership in nested lists":      {"[" + doubled + "].map(l, l in [l])", budget.ErrOperands},
		"replace of nothing by much":      {"inputs.s.replace('', inputs.s)", budget.ErrOperands},
		"join of one text many times":     {"inputs.l.map(x, inputs.s).join()", budget.ErrOperands},
		"join with a long separator":      {"inputs.l.map(x, '').join(inputs.s)", budget.ErrOperands},
		"quotes in quotes":                {quoted, ErrTooCostly},
		"naive search":                    {"inputs.s.indexOf(inputs.s.substring(0, 30000) + 'b')", ErrTooCostly},
		"a short pattern, a long machine": {"inputs.s.matches('(a{1,30}){1,30}b')", budget.ErrOperands},
		// mutation: states x bytes / 8 for unitsPerStep makes this one fail: it takes as long as
		// ten templates may.
		"a pattern of 105 states":     {"inputs.s.matches('(a|b|aa){1,15}c')", budget.ErrOperands},
		"loops in loops":              {"inputs.l.map(x, inputs.l.map(y, inputs.l.map(z, 1)))", ErrTooCostly},
		"text that doubles":           {"[inputs.s]" + strings.Repeat(".map(x, x + x)", 40), budget.ErrOperands},
		"a list that doubles":         {"[inputs.l]" + strings.Repeat(".map(x, x + x)", 50), budget.ErrOperands},
		"a list of 2^64":              {"[[1]]" + strings.Repeat(".map(x, x + x)", 64), budget.ErrOperands},
		"its equality":                {"[[1]]" + strings.Repeat(".map(x,x+x)", 64) + ".map(l, l == l)", budget.ErrOperands},
		"a long text looked at again": {"[inputs.s]" + strings.Repeat(".map(x, x + x)", 5) + ".map(y, inputs.l.map(x, y.size() + y.reverse().size()))", ErrTooCostly},
		"a large text":                {"inputs.s + inputs.s + inputs.s + inputs.s + inputs.s", ErrTooLarge},
		"a long expression":           {"1" + strings.Repeat(" + 1", MaxExpressionLength/4), ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := Prepare(heavy()).Template(quote("${" + tc.src + "}"))
			if err == nil || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("got %v, want %v", err, tc.is)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			if msg := text(err); strings.ContainsRune(msg, '\n') || len(msg) > 400 {
				t.Errorf("not one short line: %q", msg)
			}
		})
	}
}

// mutation: budget.Charges without any one of its functions makes this fail: the call is
// made, and free.
func TestGuardedCallsAreChargedBeforeTheyAreMade(t *testing.T) {
	const much, little = 1000, 20
	v := Vars{Inputs: map[string]any{
		"s": strings.Repeat("a", much), "l": []any{strings.Repeat("b", much)}, "n": strings.Repeat("0", much), "h": strings.Repeat("0h", much),
	}}
	for _, src := range []string{
		"inputs.l == inputs.l", "inputs.l != inputs.l", "'x' in inputs.l", "inputs.s in {}", "inputs.l.join()", "['', '', ''].join(inputs.s)",
		"inputs.s.replace('x', '')", "''.replace('', inputs.s)", "inputs.s.replace('x', '', 1)", "inputs.s.matches('b')", "''.matches(inputs.s)", "''.matches('a{100}')",
		"inputs.s.indexOf('b')", "inputs.s.indexOf('b', 1)", "inputs.s.lastIndexOf('b')",
		"inputs.s + 'b'", "inputs.s < 'b'", "inputs.s <= 'b'", "inputs.s > 'b'", "inputs.s >= 'b'",
		"inputs.s.size()", "size(inputs.s)", "string(inputs.s)", "bytes(inputs.s)", "int(inputs.n)", "uint(inputs.n)", "double(inputs.n)",
		"duration(inputs.h)", "timestamp('2026-11-20T10:00:00Z') < timestamp('2026-11-20T10:00:01Z')", "timestamp(0).getDate('UTC')",
		"inputs.s.contains('b')", "inputs.s.startsWith('b')", "inputs.s.endsWith('b')",
		"inputs.s.charAt(1)", "inputs.s.lowerAscii()", "inputs.s.upperAscii()", "inputs.s.substring(1)", "inputs.s.trim()", "inputs.s.reverse()", "inputs.s.split('b')",
		"strings.quote(inputs.s)",
		"optional.unwrap([optional.of(1), optional.of(2)]).size()", "[optional.of(1), optional.of(2)].unwrapOpt().size()",
	} {
		t.Run(src, func(t *testing.T) {
			p, err := compile(source{text: src}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.eval(v.activation(MaxCost)); err != nil {
				t.Errorf("with enough: %v", err)
			}
			a, w := v.activation(MaxCost), budget.New(MaxCost)
			a[varWork], w.Units = w, little
			if _, err := p.eval(a); !errors.Is(err, budget.ErrOperands) {
				t.Errorf("with little: %v", err)
			}
		})
	}
}

// heavy is as much as a run may have: 64 KiB of text and a thousand numbers.
func heavy() Vars {
	l := make([]any, 1000)
	for i := range l {
		l[i] = int64(i)
	}
	return Vars{Inputs: map[string]any{"s": strings.Repeat("a", 64<<10), "l": l}}
}

func quote(s string) []byte {
	b, _ := json.Marshal(s) // of a string never fails
	return b
}

func TestUsualSizesAreWithinTheBounds(t *testing.T) {
	for name, src := range map[string]string{
		"a filter over a thousand elements":    `inputs.l.filter(x, x % 2 == 0 && x in inputs.l).size() == 500`,
		"equality of large texts":              `inputs.s == inputs.s`,
		"a pattern over a large text":          `!inputs.s.matches("^[a-z]+[0-9]$")`,
		"replace in a large text":              `inputs.s.replace("a", "b").size() == inputs.s.size()`,
		"a join of a thousand":                 `inputs.l.map(x, string(x)).join(", ").size() > 1000`,
		"an expression of the longest length":  "true" + strings.Repeat(" ", MaxExpressionLength-4),
		"an expression of the most characters": `"` + strings.Repeat("ü", MaxExpressionLength-6) + `"!=""`,
	} {
		t.Run(name, func(t *testing.T) {
			if ok, err := EvalCondition(src, heavy()); err != nil || !ok {
				t.Errorf("%v, %v", ok, err)
			}
		})
	}
}

// An element of a sum of many lists is as near as one of a single list, as it costs the same. In
// CEL's own sum it is as deep as there are lists: a legal condition took 6 s.
//
// mutations: a guardedCall that leaves sums of lists to CEL, and a weighList that charges for none
// of the elements, make this fail.
func TestAListOf240PartsLookedAt(t *testing.T) {
	src := "[inputs.l].map(l, l" + strings.Repeat("+l", 239) + ")"
	p, err := compile(source{text: src + "[0]"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.eval(heavy().activation(MaxCost))
	if err != nil {
		t.Fatal(err)
	}
	list, _ := out.(traits.Lister)
	if parts, _ := list.Value().([]traits.Lister); list.Size() != types.Int(240_000) || len(parts) != 240 {
		t.Errorf("%v elements in %d parts", list.Size(), len(parts))
	}
	spent := func(elements int) int {
		s := Prepare(Vars{Inputs: map[string]any{"l": make([]any, elements)}})
		if out, err := s.Template(quote("${" + src + ".all(m, m == m)}")); err != nil || string(out) != "true" {
			t.Errorf("of lists of %d: %s, %v", elements, out, err)
		}
		return s.Spent()
	}
	const more = 240 * (1000 - 100) * 2 * 16 / budget.UnitsPerCost
	if few, many := spent(100), spent(1000); many-few < more {
		t.Errorf("longer lists take %d units more, want %d", many-few, more)
	}
}

// optMap and optFlatMap give a user the empty list as one that CEL adds to in place: each x+x
// doubles it. What is added so is paid, and a list that is added to itself is no longer than it is.
//
// mutations: a chargeAdd that charges text only, and a guardedCall without Fixed, make this fail.
func TestAListThatGrowsInPlaceIsPaid(t *testing.T) {
	s := Prepare(Vars{Inputs: map[string]any{"e": []any{}, "l": make([]any, 1000)}})
	for name, src := range map[string]string{
		"itself":       "optional.of(inputs.e).optMap(x, [x+[0]" + strings.Repeat(", x+x", 100) + "]).hasValue()",
		"flat":         "optional.of(inputs.e).optFlatMap(x, [x+[0]" + strings.Repeat(", x+x", 100) + "].size() > 0 ? optional.of(1) : optional.none()).hasValue()",
		"a large list": "optional.of(inputs.e).optMap(x, [inputs.l].map(l, l" + strings.Repeat("+l", 60) + ").map(y, [" + strings.Repeat("x+y, ", 40) + "x])).hasValue()",
	} {
		if out, err := s.Condition(src); !errors.Is(err, ErrTooCostly) {
			t.Errorf("%s: %t, %v", name, out, err)
		}
	}
	out, err := s.Template(quote("${optional.of(inputs.e).optMap(x, ((x+[1,2])+x).size()).value()}"))
	if err != nil || string(out) != "4" {
		t.Errorf("with itself it is %s, %v", out, err)
	}
}

// mutation: renderer.expression that does not count makes this fail.
func TestExpressionsOfATemplateAreCounted(t *testing.T) {
	list := strings.Repeat(`"${1}",`, MaxExpressions)
	if _, err := TemplateSteps([]byte("[" + strings.TrimSuffix(list, ",") + "]")); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	if _, err := TemplateSteps([]byte("[" + list + `"${1}"]`)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("past the bound: %v", err)
	}
}

// mutation: evaluation.value that gives each expression a new budget makes this fail.
func TestExpressionsOfATemplateShareTheirCost(t *testing.T) {
	one := `"${inputs.l.map(x, x + 1).size()}"`
	if _, err := Prepare(heavy()).Template([]byte("[" + one + "]")); err != nil {
		t.Errorf("one: %v", err)
	}
	many := "[" + strings.Repeat(one+",", MaxExpressions-1) + one + "]"
	if _, err := Prepare(heavy()).Template([]byte(many)); !errors.Is(err, ErrTooCostly) {
		t.Errorf("many: %v", err)
	}
}

func TestTheCacheIsBoundedAndSafe(t *testing.T) {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range maxCached {
				c.keep(source{text: fmt.Sprint(g, i)}, &program{})
				c.cached(source{text: fmt.Sprint(g, i-1)})
			}
		})
	}
	wg.Wait()
	if n := len(c.classes[0].programs); n > maxCached { // mutation: put without a bound
		t.Errorf("%d programs", n)
	}
	for range 100 { // the same program serves concurrent evaluations
		wg.Go(func() {
			if ok, err := EvalCondition(`steps.fetch.output.status == 200`, sample()); !ok || err != nil {
				t.Error(ok, err)
			}
		})
	}
	wg.Wait()
}

func FuzzRender(f *testing.F) {
	for _, seed := range []string{
		`${inputs.n}`, `$${x} ${ {"a": "}"}.a }`, `${r'\'}`, `${'''}'''}`, `${1 // }`, `${steps["sign-off"].output}`, `${`, `$`, `${[1].map(x, x)}`,
		`${strings.quote(inputs.s)}`, `${inputs.words.join()}`, `${"a".replace()}`, `${b"\xff"}`, `${"\ud800"}`, `${optional.of(1)}`,
		`${inputs.n.x.y}`, `${inputs.list[9]}`, `${inputs.list["a"]}`, `${steps[inputs.s]}`, `${inputs.n.map(x, x)}`, `${inputs.list.filter(x, x)}`, `${item}`, `${!inputs.n}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw := quote(s)
		_, check := TemplateSteps(raw)
		out, err := Prepare(sample()).Template(raw)
		if e := (*Error)(nil); err != nil && !errors.As(err, &e) && !errors.Is(err, ErrTooLarge) {
			t.Errorf("no error of this package: %v", err)
		}
		if check != nil && err == nil && !strings.Contains(check.Error(), "has no field") { // it may not be read
			t.Errorf("the check refuses what renders: %v", check)
		}
		if err == nil && !json.Valid(out) {
			t.Errorf("not JSON: %q", out)
		}
		again, errAgain := Prepare(sample()).Template(raw)
		if string(again) != string(out) || text(err) != text(errAgain) {
			t.Errorf("not deterministic: %q %v, %q %v", out, err, again, errAgain)
		}
		if strings.ContainsRune(text(err), '\n') {
			t.Errorf("more than a line: %v", err)
		}
		_, _ = EvalCondition(s, sample())
	})
}

// FuzzEvalList: what the check refuses is no list, and whatever is one is within the bounds, the
// same each time, and JSON.
func FuzzEvalList(f *testing.F) {
	for _, seed := range []string{
		`${inputs.list}`, `${[inputs.n, inputs.f, null, {"a": [item]}]}`, `${inputs.list.map(x, [x, x])}`, `${inputs.object}`, ` ${[]}`, `${[]}${[]}`, `$${[]}`, ``,
		`${[0.0 / 0.0]}`, `${[type(1)]}`, `${[steps]}`, `${[[1]].map(x, x + x)}`, `${[timestamp(0), duration("1s"), b"a", 1u]}`, `${steps.?x.orValue([])}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, src string) {
		v := sample()
		v.Item, v.HasItem = json.RawMessage(`{"id":1}`), true
		_, check := ListSteps(src, WithItem)
		items, err := Prepare(v).List(src)
		if check != nil && err == nil && !strings.Contains(check.Error(), "has no field") { // it may not be read
			t.Errorf("the check refuses a list: %v", check)
		}
		if e := (*Error)(nil); err != nil && (!errors.As(err, &e) || items != nil) || strings.ContainsRune(text(err), '\n') {
			t.Errorf("error %q beside %d items", text(err), len(items))
		}
		if len(items) > MaxListItems {
			t.Errorf("%d items", len(items))
		}
		raw, errJSON := json.Marshal(items)
		if errJSON != nil {
			t.Errorf("not JSON: %v", errJSON)
		}
		again, errAgain := Prepare(v).List(src)
		if rawAgain, _ := json.Marshal(again); string(rawAgain) != string(raw) || text(err) != text(errAgain) {
			t.Errorf("not deterministic: %s %v, %s %v", raw, err, rawAgain, errAgain)
		}
	})
}

func FuzzRenderDocument(f *testing.F) {
	f.Add([]byte(`{"a":["${inputs.n}",{"b":"x ${run.name}"}]}`))
	f.Add([]byte(`"${inputs}"`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if out, err := Prepare(sample()).Template(raw); err == nil && !json.Valid(out) {
			t.Errorf("not JSON: %q", out)
		}
	})
}

func BenchmarkEvalCondition(b *testing.B) {
	v := sample()
	for b.Loop() {
		if _, err := EvalCondition(`steps.fetch.output.status == 200`, v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRender(b *testing.B) {
	v, raw := sample(), []byte(`{"url":"https://x/${run.name}","pages":"${steps.fetch.output.pages}","n":"${inputs.n + 1}"}`)
	for b.Loop() {
		if _, err := Prepare(v).Template(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	c, err := newCompiler()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := c.make(source{text: `steps.fetch.output.status == 200 && inputs.n > 1`}, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// activation is what CEL looks names up in.
func (v Vars) activation(maxCost int) map[string]any {
	return Prepare(v).activation(v.Item, v.HasItem, budget.New(maxCost))
}
