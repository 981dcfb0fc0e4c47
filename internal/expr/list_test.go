// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/internal/expr/budget"
	"github.com/syncopate-dev/syncopate/internal/testenv/norace"
)

func TestEvalListGivesTheItemsWithTheirTypes(t *testing.T) {
	for name, tc := range map[string]struct {
		src  string
		want []any
	}{
		"an output":            {`${steps.fetch.output.pages}`, []any{"p1", "p2"}},
		"no items":             {`${inputs.object.a}`, []any{}},
		"all kinds of JSON":    {`${inputs.list}`, []any{int64(1), "x", map[string]any{"k": "v"}}},
		"all kinds of numbers": {`${[inputs.n, inputs.big, inputs.f, inputs.whole]}`, []any{int64(9007199254740993), 18446744073709551615.0, 1.5, 2.0}},
		"null and bool":        {`${[inputs.none, inputs.yes]}`, []any{nil, true}},
		"lists in a list":      {`${inputs.words.map(w, [w, [w]])}`, []any{[]any{"a", []any{"a"}}, []any{"b", []any{"b"}}}},
		"what JSON has not":    {`${[timestamp("2026-11-20T10:00:00Z"), duration("90s"), b"abc"]}`, []any{"2026-11-20T10:00:00Z", "90s", "YWJj"}},
		"a sum of lists":       {`${inputs.words + ["c"]}`, []any{"a", "b", "c"}},
		"a value in an option": {`${[optional.of([1]), 1][0]}`, []any{int64(1)}},
		"a default":            {`${steps.?late.output.pages.orValue([7])}`, []any{int64(7)}},
		"an item that is none": {`${[steps.?late]}`, []any{nil}},
		"braces of its own":    {`${[{"a": "}"}]}`, []any{map[string]any{"a": "}"}}},
		"spaces inside":        {`${ [1] }`, []any{int64(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ListSteps(tc.src); err != nil {
				t.Fatalf("check: %v", err)
			}
			got, err := Prepare(sample()).List(tc.src)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("items (-want +got):\n%s", diff)
			}
		})
	}
}

// mutation: list without its check of the type makes "a map literal" pass ListSteps.
// mutation: list that takes text beside the expression makes "a space before it" pass.
func TestMistakesOfAListAreNamedInOneLine(t *testing.T) {
	const form = "it must be one ${...} with nothing before or after it"
	for name, tc := range map[string]struct {
		src   string
		check string // error of ListSteps; "" if it passes
		eval  string
		is    error
	}{
		"no braces":             {`inputs.list`, `expression "inputs.list": ` + form, `expression "inputs.list": ` + form, nil},
		"nothing":               {``, `expression "": ` + form, `expression "": ` + form, nil},
		"a space before it":     {` ${inputs.list}`, `expression " ${inputs.list}": ` + form, `expression " ${inputs.list}": ` + form, nil},
		"a space after it":      {`${inputs.list} `, `expression "${inputs.list} ": ` + form, `expression "${inputs.list} ": ` + form, nil},
		"two expressions":       {`${[1]}${[2]}`, `expression "${[1]}${[2]}": ` + form, `expression "${[1]}${[2]}": ` + form, nil},
		"an escaped opening":    {`$${[1]}`, `expression "$${[1]}": ` + form, `expression "$${[1]}": ` + form, nil},
		"not ended":             {`${[1]`, `expression "${[1]": ${ without its }`, `expression "${[1]": ${ without its }`, nil},
		"an empty expression":   {`${}`, `expression "": it is empty`, `expression "": it is empty`, nil},
		"syntax":                {`${[1}`, `expression "[1": column 3: Syntax error: mismatched input '<EOF>'`, `expression "[1": column 3: Syntax error: mismatched input '<EOF>'`, nil},
		"an unknown variable":   {`${pages}`, `expression "pages": column 1: undeclared reference to 'pages'`, `expression "pages": column 1: undeclared reference to 'pages'`, nil},
		"a map literal":         {`${ {"a": 1} }`, `expression " {\"a\": 1} ": not a list, it is a map(string, int)`, `expression " {\"a\": 1} ": not a list, it is a map(string, int)`, ErrNotList},
		"a number literal":      {`${1}`, `expression "1": not a list, it is an int`, `expression "1": not a list, it is an int`, ErrNotList},
		"a map":                 {`${inputs.object}`, "", `expression "inputs.object": not a list, it gave a map`, ErrNotList},
		"a string":              {`${inputs.s}`, "", `expression "inputs.s": not a list, it gave a string`, ErrNotList},
		"an int":                {`${inputs.n}`, "", `expression "inputs.n": not a list, it gave an int`, ErrNotList},
		"null":                  {`${inputs.none}`, "", `expression "inputs.none": not a list, it gave null`, ErrNotList},
		"an option":             {`${[optional.none()][0]}`, `expression "[optional.none()][0]": not a list, it is an optional_type(dyn)`, `expression "[optional.none()][0]": not a list, it is an optional_type(dyn)`, ErrNotList},
		"an option without one": {`${[optional.none(), 1][0]}`, "", `expression "[optional.none(), 1][0]": not a list, it gave null`, ErrNotList},
		"a missing key":         {`${steps.fetch.output.page}`, "", `expression "steps.fetch.output.page": no such key: page: steps.fetch.output has pages, status`, nil},
		"an item without JSON":  {`${[1, type(1)]}`, "", `expression "[1, type(1)]": item 1: a type has no JSON form`, nil},
		"an item of bad JSON":   {`${[steps.broken]}`, "", `expression "[steps.broken]": item 0: not a JSON document: unexpected end of JSON input`, nil},
		"one item too many":     {`${inputs.many + [1]}`, "", `expression "inputs.many + [1]": too large: the list has 10001 items, more than 10000`, ErrTooLarge},
		"an item too deep":      {`${[inputs.words, inputs.deeper]}`, "", `expression "[inputs.words, inputs.deeper]": item 1: too large: lists and maps are nested deeper than 100`, ErrTooLarge},
		"a map too deep":        {`${[{"a": inputs.deep}]}`, "", `expression "[{\"a\": inputs.deep}]": item 0: too large: lists and maps are nested deeper than 100`, ErrTooLarge},
		"a map at the bottom":   {`${[inputs.deeperMap]}`, "", `expression "[inputs.deeperMap]": item 0: too large: lists and maps are nested deeper than 100`, ErrTooLarge},
		"a key too large":       {`${[{inputs.large + "aa": 1}]}`, "", `expression "[{inputs.large + \"aa\": 1}]": item 0: too large: the result has more than 262144 bytes`, ErrTooLarge},
		"an item too large":     {`${["a", inputs.large + "a"]}`, "", `expression "[\"a\", inputs.large + \"a\"]": item 1: too large: the result has more than 262144 bytes`, ErrTooLarge},
		"items too large":       {`${inputs.many.map(x, inputs.large)}`, "", `expression "inputs.many.map(x, inputs.large)": too large: the items have more than 4194304 bytes together`, ErrTooLarge},
		"no item here":          {`${[item]}`, `expression "[item]": column 2: undeclared reference to 'item': only what is evaluated for each item of a list has one`, `expression "[item]": column 2: undeclared reference to 'item': only what is evaluated for each item of a list has one`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ListSteps(tc.src)
			if diff := cmp.Diff(tc.check, text(err)); diff != "" {
				t.Errorf("check: %s", diff)
			}
			items, err := Prepare(atTheBounds(t)).List(tc.src)
			if diff := cmp.Diff(tc.eval, text(err)); diff != "" {
				t.Errorf("eval: %s", diff)
			}
			if e := (*Error)(nil); !errors.As(err, &e) || items != nil || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("error %v with %d items", err, len(items))
			}
		})
	}
}

// atTheBounds is sample with values that are as large and deep as they may be, and one
// that is deeper.
func atTheBounds(tb testing.TB) Vars {
	tb.Helper()
	v := sample()
	raw, _ := v.Inputs.(json.RawMessage)
	doc, err := decode(raw)
	inputs, ok := doc.(map[string]any)
	if err != nil || !ok {
		tb.Fatal(err)
	}
	many := make([]any, MaxListItems)
	for i := range many {
		many[i] = int64(i)
	}
	inputs["many"] = many
	inputs["deep"] = json.RawMessage(strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth))
	inputs["deeper"] = json.RawMessage(strings.Repeat(`[{"a":`, MaxDepth/2) + "[]" + strings.Repeat("}]", MaxDepth/2))
	inputs["deeperMap"] = json.RawMessage(strings.Repeat(`[{"a":`, MaxDepth/2) + "{}" + strings.Repeat("}]", MaxDepth/2))
	inputs["large"] = strings.Repeat("a", MaxRenderedBytes-1)
	v.Inputs = inputs
	return v
}

// mutation: > for >= at any of the bounds' comparisons, or one unit less, makes this or the
// table above fail.
func TestAListAtItsBoundsIsTaken(t *testing.T) {
	for name, src := range map[string]string{
		"the most items": `${inputs.many}`,
		"the deepest":    `${[inputs.deep]}`,
		"the largest":    `${[inputs.large]}`,
		"all together":   `${[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15].map(x, inputs.large)}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Prepare(atTheBounds(t)).List(src); err != nil {
				t.Error(err)
			}
		})
	}
}

// What people do to a list before they fan out must work for the most items. mutation: MaxCost for
// MaxListCost makes this fail.
func TestUsualListsOfTheMostItemsAreWithinTheCost(t *testing.T) {
	pages := make([]any, MaxListItems)
	for i := range pages {
		pages[i] = map[string]any{"url": "https://example.org/", "id": int64(i), "new": i%2 == 0}
	}
	v := Vars{Steps: map[string]any{"list": map[string]any{"output": map[string]any{"pages": pages}}}, Inputs: map[string]any{"limit": int64(7)}}
	for name, src := range map[string]string{
		"as they are":              `${steps.list.output.pages}`,
		"one field of each":        `${steps.list.output.pages.map(p, p.id)}`,
		"those that are new":       `${steps.list.output.pages.filter(p, p.new && p.id > inputs.limit)}`,
		"a field of those":         `${steps.list.output.pages.map(p, p.new, p.url)}`,
		"filtered, then mapped":    `${steps.list.output.pages.filter(p, p.new).map(p, p.url)}`,
		"each with another value":  `${steps.list.output.pages.map(p, {"page": p, "limit": inputs.limit})}`,
		"those whose url is usual": `${steps.list.output.pages.filter(p, p.url.startsWith("https://") && p.id != 3)}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Prepare(v).List(src); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWhatAListReads(t *testing.T) {
	const src = `${steps.b.output.pages + steps["a"].output + (steps.c.phase == "Failed" ? [] : [1])}`
	names, err := ListSteps(src)
	if diff := cmp.Diff([]string{"a", "b", "c"}, names); diff != "" || err != nil {
		t.Errorf("steps (-want +got):\n%s, %v", diff, err)
	}
	outputs, err := ListOutputs(src)
	if diff := cmp.Diff(Outputs{Names: []string{"a", "b"}}, outputs); diff != "" || err != nil {
		t.Errorf("outputs (-want +got):\n%s, %v", diff, err)
	}
	for _, bad := range []string{`steps.a.output`, `${item}`, `${`} {
		if _, err := ListSteps(bad); err == nil {
			t.Errorf("%s has steps", bad)
		}
		if _, err := ListOutputs(bad); err == nil {
			t.Errorf("%s has outputs", bad)
		}
	}
}

// Whatever is written as a list, over as much as a run may have, ends soon, in a list within the
// bounds or in an error.
//
// mutation: itemsOf without the bound of all items together makes "the same large text in
// each" a list; contents in words in tellingQualifier, not when told, makes "a mistake in
// each" take minutes.
func TestNoListStallsTheOperator(t *testing.T) {
	norace.Only(t)
	const bound = time.Minute // the slowest takes less than 1 s, and the machine may be busy
	keys := map[string]any{}
	l := make([]any, MaxListItems)
	for i := range l {
		l[i] = map[string]any{"n": int64(i), "s": strings.Repeat("a", 100)}
	}
	for i := range 50_000 {
		keys[fmt.Sprint("key", i)] = true
	}
	v := Vars{Inputs: map[string]any{
		"l": l, "s": strings.Repeat("a", 60<<10), "keys": keys,
		"deep": json.RawMessage(strings.Repeat("[", 9000) + strings.Repeat("]", 9000)),
	}}
	doubled := "[[1]]" + strings.Repeat(".map(x, x + x)", 60)
	for name, tc := range map[string]struct {
		src string
		is  error // nil: any end will do
	}{
		"the same large text in each":     {"inputs.l.map(x, inputs.s)", ErrTooLarge},
		"the list in each":                {"inputs.l.map(x, inputs.l)", ErrTooLarge},
		"a loop in a loop":                {"inputs.l.map(x, inputs.l.map(y, 1).size())", ErrTooCostly},
		"a filter in a filter":            {"inputs.l.filter(x, inputs.l.exists(y, y.n < 0))", ErrTooCostly},
		"membership of each":              {"inputs.l.filter(x, x in inputs.l)", ErrTooCostly},
		"equality with all of them":       {"inputs.l.filter(x, inputs.l == inputs.l)", ErrTooCostly},
		"a pattern for each":              {"inputs.l.filter(x, inputs.s.matches('(a|b|aa){1,15}c'))", ErrTooCostly},
		"a usual pattern for each":        {"inputs.l.filter(x, x.s.matches('^[a-z]+$'))", nil},
		"a list of 2^60":                  {doubled + "[0]", budget.ErrOperands},
		"a list of 2^65":                  {"[[1]]" + strings.Repeat(".map(x,x+x)", 65) + "[0]", budget.ErrOperands},
		"a list of 2^40 as an item":       {"[[1]]" + strings.Repeat(".map(x, [x, x])", 40), ErrTooLarge},
		"a text that doubles":             {"[inputs.s]" + strings.Repeat(".map(x, x + x)", 40), ErrTooCostly},
		"a list that doubles":             {"[inputs.l]" + strings.Repeat(".map(x, x + x)", 50), budget.ErrOperands},
		"a sum in each":                   {"inputs.l.map(x, inputs.l + inputs.l).map(y, y.size())", nil},
		"one very deep":                   {"[inputs.deep]", ErrTooLarge},
		"a mistake in each":               {"inputs.l.filter(x, inputs.keys.nope || true)", nil},
		"a mistake of a call in each":     {"inputs.l.filter(x, inputs.keys - 1 == 2 || true)", nil},
		"a mistake in each, and no end":   {"inputs.l.filter(x, inputs.keys.nope)", nil},
		"a mistake in a mistake":          {"inputs.l.filter(x, inputs.l[inputs.l[inputs.l[x.n + 1].n + 1].n + 1].n > 0)", nil},
		"text of all":                     {"inputs.l.map(x, string(x.n)).join(',').split(',')", nil},
		"each letter of a large text":     {"inputs.s.split('')", ErrTooLarge},
		"too many for one item":           {"[inputs.l" + strings.Repeat(" + inputs.l", 80) + "]", ErrTooLarge},
		"many sums, one after the other":  {"inputs.l" + strings.Repeat(" + inputs.l", 80), ErrTooLarge},
		"a map of all, and then its keys": {"[inputs.l.map(x, {x.s + string(x.n): x})].map(m, m.size())", nil},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			items, err := Prepare(v).List("${" + tc.src + "}")
			if took := time.Since(start); took > bound {
				t.Errorf("took %v", took)
			} else {
				t.Logf("took %v: %d items, %v", took, len(items), err)
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("got %v, want %v", err, tc.is)
			}
			if msg := text(err); strings.ContainsRune(msg, '\n') || len(msg) > 400 {
				t.Errorf("not one short line: %q", msg)
			}
		})
	}
}

func BenchmarkEvalList(b *testing.B) {
	v := atTheBounds(b)
	for name, src := range map[string]string{"as they are": `${inputs.many}`, "filtered": `${inputs.many.filter(x, x % 2 == 0)}`} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Prepare(v).List(src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
