// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// withItem is sample with an item.
func withItem(item any) Vars {
	v := sample()
	v.Item, v.HasItem = item, true
	return v
}

func TestItemIsAVariableWhereThereIsOne(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		item any
		want string
	}{
		"a text":                      {`{"v":"${item}"}`, "p1", `{"v":"p1"}`},
		"a number keeps its type":     {`{"v":"${item}"}`, int64(9007199254740993), `{"v":9007199254740993}`},
		"null is an item":             {`{"v":"${item}"}`, nil, `{"v":null}`},
		"a field":                     {`{"v":"${item.url}?n=${inputs.f}"}`, map[string]any{"url": "u"}, `{"v":"u?n=1.5"}`},
		"raw JSON is decoded":         {`{"v":"${item.a[1]}"}`, json.RawMessage(`{"a":[1,2]}`), `{"v":2}`},
		"an inner name hides it":      {`{"v":"${[1, 2].map(item, item + 1)}"}`, "p1", `{"v":[2,3]}`},
		"nobody has to read it":       {`{"v":"${run.attempt}"}`, "p1", `{"v":7}`},
		"beside the other variables":  {`{"v":"${steps.fetch.output.pages[item]}"}`, int64(1), `{"v":"p2"}`},
		"its absent keys may default": {`{"v":"${item.?id.orValue('none')}"}`, map[string]any{}, `{"v":"none"}`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := TemplateSteps([]byte(tc.in), WithItem); err != nil {
				t.Fatalf("check: %v", err)
			}
			got, err := Prepare(withItem(tc.item)).Template([]byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			inScope, err := Prepare(sample()).Render([]byte(tc.in), tc.item)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tc.want, string(inScope)); diff != "" {
				t.Errorf("in a scope: %s", diff)
			}
		})
	}
}

// mutation: compiler.make that always takes itemEnv makes this fail; so does a cache that forgets
// whether there is an item.
func TestThereIsNoItemElsewhere(t *testing.T) {
	const want = `expression "item.x": column 1: undeclared reference to 'item': only what is evaluated for each item of a list has one`
	raw, src := []byte(`{"v":"${item.x}"}`), "item.x"
	_, cached := TemplateSteps(raw, WithItem)
	_, cachedCondition := ConditionSteps(src, WithItem)
	if err := errors.Join(cached, cachedCondition); err != nil {
		t.Fatal(err)
	}
	_, steps := TemplateSteps(raw)
	_, outputs := TemplateOutputs(raw)
	_, rendered := Prepare(Vars{Item: map[string]any{"x": true}}).Template(raw)
	_, stepsOfCondition := ConditionSteps(src)
	_, outputsOfCondition := ConditionOutputs(src)
	_, evaluated := EvalCondition(src, Vars{Item: map[string]any{"x": true}})
	for name, err := range map[string]error{
		"TemplateSteps": steps, "TemplateOutputs": outputs, "Render": rendered,
		"ConditionSteps": stepsOfCondition, "ConditionOutputs": outputsOfCondition, "EvalCondition": evaluated,
	} {
		if diff := cmp.Diff(want, text(err)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, err := TemplateSteps([]byte(`"${[1].map(item, item)}"`)); err != nil {
		t.Errorf("the name is free: %v", err)
	}
}

func TestWhereThereIsAnItemEveryFunctionKnowsIt(t *testing.T) {
	raw, src := []byte(`{"v":"${steps.a.output[item]}"}`), "steps.a.output[item]"
	steps, err := TemplateSteps(raw, WithItem)
	outputs, errOutputs := TemplateOutputs(raw, WithItem)
	of, errOf := ConditionSteps(src, WithItem)
	outputsOf, errOutputsOf := ConditionOutputs(src, WithItem)
	items, errItems := ListSteps("${"+src+"}", WithItem)
	if err := errors.Join(err, errOutputs, errOf, errOutputsOf, errItems); err != nil {
		t.Fatal(err)
	}
	a := []string{"a"}
	want := []any{a, Outputs{Names: a}, a, Outputs{Names: a}, a}
	if diff := cmp.Diff(want, []any{steps, outputs, of, outputsOf, items}); diff != "" {
		t.Errorf("reads (-want +got):\n%s", diff)
	}
	if ok, err := EvalCondition(`item > 1`, withItem(int64(2))); !ok || err != nil {
		t.Errorf("a condition: %v, %v", ok, err)
	}
	if got, err := Prepare(withItem([]any{"x"})).List(`${item}`); len(got) != 1 || err != nil {
		t.Errorf("a list: %v, %v", got, err)
	}
}

// mutation: activation that decodes for itself, not once per Scope, makes this fail: work per item
// grows with the other variables.
func TestAScopeDecodesItsVariablesOnce(t *testing.T) {
	raw := []byte(`{"n":"${inputs.n}","all":"${steps.list.output.size()}","item":"${item}"}`)
	allocated := func(pages int) float64 {
		s := Prepare(pagesOf(pages))
		return testing.AllocsPerRun(20, func() {
			if _, err := s.Render(raw, "x"); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := allocated(10), allocated(MaxListItems); many > 2*few { // the race detector adds some
		t.Errorf("%v allocations with 10 pages, %v with %d", few, many, MaxListItems)
	}
}

func TestAScopeIsNotChangedByItsTemplates(t *testing.T) {
	s, v := Prepare(sample()), sample()
	for range 2 {
		got, err := s.Render([]byte(`["${item}","${inputs.words + [item]}"]`), "c")
		if err != nil || string(got) != `["c",["a","b","c"]]` {
			t.Errorf("got %s, %v", got, err)
		}
	}
	if got, err := Prepare(Vars{}).Render([]byte(`"${[inputs, steps, run, item]}"`), nil); err != nil || string(got) != `[{},{},{},null]` {
		t.Errorf("got %s, %v", got, err)
	}
	if diff := cmp.Diff(sample(), v); diff != "" {
		t.Error(diff)
	}
}

// mutation: render that adds only what succeeds makes this fail; so does a scope in which one
// template's bounds are the next one's, too.
func TestAScopeAddsUpWhatItsTemplatesTake(t *testing.T) {
	s := Prepare(heavy())
	if s.Spent() != 0 {
		t.Errorf("nothing yet, but %d", s.Spent())
	}
	if _, err := s.Render([]byte(`"${item}"`), "x"); err != nil || s.Spent() == 0 || s.Spent() > 10 {
		t.Errorf("a small template: %v, %d", err, s.Spent())
	}
	for name, src := range map[string]string{
		"loops":   `inputs.l.map(x, inputs.l.map(y, inputs.l.map(z, 1)))`,
		"a guard": `inputs.s.matches('(a{1,30}){1,30}b')`,
	} {
		before := s.Spent()
		_, err := s.Render(quote("${"+src+"}"), "x")
		if took := s.Spent() - before; !errors.Is(err, ErrTooCostly) || took < MaxCost*9/10 || took > MaxCost*21/10 {
			t.Errorf("%s: %v, %d", name, err, took)
		}
	}
	before := s.Spent()
	for range 3 {
		if _, err := s.Render([]byte(`"${inputs.l.map(x, x + 1).size()}"`), "x"); err != nil {
			t.Errorf("what others took: %v", err)
		}
	}
	if s.Spent() <= before {
		t.Error("nothing added")
	}
	before = s.Spent()
	if _, err := s.Render([]byte(`"${item}"`), strings.Repeat("a", 100<<10)); err != nil || s.Spent()-before < 1000 {
		t.Errorf("a large text: %v, %d", err, s.Spent()-before)
	}
}

func TestALargeTemplateIsRefusedWithoutAnyExpression(t *testing.T) {
	if _, err := Prepare(Vars{}).Template(quote(strings.Repeat("a", MaxRenderedBytes))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

// pagesOf is a run whose step list gave so many pages, as JSON.
func pagesOf(n int) Vars {
	pages := make([]string, n)
	for i := range pages {
		pages[i] = fmt.Sprintf(`"https://example.org/%d"`, i)
	}
	return Vars{
		Inputs: json.RawMessage(`{"n":1,"topic":"storage engines"}`),
		Steps:  map[string]any{"list": map[string]any{"output": json.RawMessage("[" + strings.Join(pages, ",") + "]")}},
		Run:    map[string]any{"name": "r"},
	}
}

// The time per item must not grow with the number of items.
func BenchmarkRenderItems(b *testing.B) {
	raw := []byte(`{"text":"${item}","run":"${run.name}","topic":"${inputs.topic}","of":"${steps.list.output.size()}"}`)
	for _, n := range []int{1, 100, MaxListItems} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			v := pagesOf(n)
			items, err := Prepare(v).List(`${steps.list.output}`)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s := Prepare(v)
				for _, item := range items {
					if _, err := s.Render(raw, item); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/item")
		})
	}
}
