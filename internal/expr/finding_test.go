// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each mistake says where it is and what was found there.
//
// mutation: decorator that leaves attributes as they are makes those about keys fail; c.call(args)
// without its finding those about operands; told without its look at && || ?: those about bools.
func TestMistakesSayWhatWasFoundWhere(t *testing.T) {
	v := sample()
	v.Item, v.HasItem = map[string]any{"id": int64(7), "tags": []any{"x"}}, true
	v.Run = map[string]any{
		"empty": map[string]any{}, "nothing": nil,
		"many": map[string]any{"g": 1, "f": 1, "e": 1, "d": 1, "c": 1, "b": 1, "a": 1},
		"long": map[string]any{strings.Repeat("k", 100): "secret"},
		"bad":  json.RawMessage(`{"a":`), "huge": json.Number("1e999"),
	}
	for name, tc := range map[string]struct{ src, want string }{
		"a key of a string":               {`inputs.s.x`, `no such key: x: inputs.s is a string`},
		"a key of a key of a string":      {`inputs.object.b.y.z`, `no such key: y: inputs.object.b is an int`},
		"a key of null":                   {`run.nothing.x`, `no such key: x: run.nothing is null`},
		"a key of a list":                 {`inputs.list.k`, `unsupported index type 'string' in list: inputs.list is a list of 3`},
		"a key that is not there":         {`steps.fetch.outputs.pages`, `no such key: outputs: steps.fetch has output, phase`},
		"a key of nothing":                {`run.empty.x`, `no such key: x: run.empty has no keys`},
		"a key of many":                   {`run.many.x`, `no such key: x: run.many has a, b, c, d, e and 2 more`},
		"a key among long ones":           {`run.long.x`, `no such key: x: run.long has ` + strings.Repeat("k", 21) + `...`},
		"a step in brackets":              {`steps["late"].output`, `no such key: late: steps has broken, fetch, sign-off`},
		"a key that is computed":          {`steps[inputs.words[0]]`, `no such key: a: steps has broken, fetch, sign-off`},
		"a key whose expression is wrong": {`steps[inputs.wordz[0]]`, `no such key: wordz: inputs has big, dollar, f, list, n and 6 more`},
		"a key of another type":           {`inputs[1]`, `no such key: 1: inputs has big, dollar, f, list, n and 6 more`},
		"an index beyond the end":         {`inputs.words[2]`, `index out of bounds: 2: inputs.words is a list of 2`},
		"a key of what a call gives":      {`inputs.words.map(w, w)[5]`, `index out of bounds: 5: inputs.words.map(w, w) is a list of 2`},
		"a key in a loop":                 {`inputs.list.map(p, p.url)`, `no such key: url: p is an int`},
		"a key of either":                 {`(inputs.yes ? inputs.object : inputs.f).x`, `no such key: x: inputs.yes ? inputs.object : inputs.f has a, b`},
		"a key of the item":               {`item.url`, `no such key: url: item has id, tags`},
		"a key before a test":             {`has(inputs.nope.x)`, `no such key: nope: inputs has big, dollar, f, list, n and 6 more`},
		"a sum of different types":        {`"n is " + inputs.n`, `no such overload: "n is " + inputs.n is string + int`},
		"a comparison of different types": {`steps.fetch.output.status > "199"`, `no such overload: steps.fetch.output.status > "199" is int > string`},
		"a comparison deep inside":        {`inputs.yes && [1].exists(x, inputs.s < x)`, `no such overload: inputs.s < x is string < int`},
		"a difference":                    {`inputs.s - 1`, `no such overload: inputs.s - 1 is string - int`},
		"a negative text":                 {`-inputs.s`, `no such overload: -inputs.s is -string`},
		"not of a number":                 {`!inputs.n`, `no such overload: !inputs.n is !int`},
		"membership in a number":          {`1 in inputs.n`, `no such overload: 1 in inputs.n is int in int`},
		"a method of another type":        {`inputs.n.startsWith("9")`, `no such overload: inputs.n.startsWith("9") is startsWith(int, string)`},
		"a function of another type":      {`size(inputs.f) > 0`, `no such overload: size(inputs.f) is size(double)`},
		"a number that is none":           {`1 + int(inputs.words[0])`, `type conversion error from 'string' to 'int': int(inputs.words[0])`},
		"a division inside":               {`1 + 1 / (inputs.n - inputs.n)`, `division by zero: 1 / (inputs.n - inputs.n)`},
		"a condition that is no bool":     {`inputs.s ? 1 : 2`, `no such overload: inputs.s is not a bool`},
		"and of no bool":                  {`inputs.s && inputs.yes`, `no such overload: not both are bools: inputs.s, inputs.yes`},
		"or of no bool":                   {`inputs.n || false`, `no such overload: not both are bools: inputs.n, false`},
		"a filter by no bool":             {`inputs.words.filter(w, w)`, `no such overload: w is not a bool`},
		"a question of no bool":           {`inputs.words.all(w, w)`, `no such overload: w is not a bool`},
		"an option that is not opened":    {`[inputs.?f, 1][0] + 1`, `no such overload: [inputs.?f, 1][0] + 1 is optional + int`},
		"an option of what is no list":    {`optional.unwrap(inputs.n)`, `no such overload: optional.unwrap(int)`},
		"a loop over a number":            {`inputs.n.map(x, x)`, `a macro needs a list or a map, not an int`},
		"a loop over null":                {`run.nothing.exists(x, true)`, `a macro needs a list or a map, not null`},
		"raw JSON that is none":           {`run.bad.a`, `not a JSON document: unexpected end of JSON input`},
		"a number beyond all":             {`run.huge + 1`, `number 1e999 is out of range`},
		"a key of such a number":          {`run.huge.x`, `number 1e999 is out of range`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Prepare(v).Template(quote("${" + tc.src + "}"))
			if diff := cmp.Diff("expression "+strconv.Quote(tc.src)+": "+tc.want, text(err)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAConditionSaysWhatItGave(t *testing.T) {
	for src, want := range map[string]string{
		`inputs.n`:             `expression "inputs.n": not a bool, it gave an int`,
		`inputs.none`:          `expression "inputs.none": not a bool, it gave null`,
		`inputs.list`:          `expression "inputs.list": not a bool, it gave a list`,
		`[timestamp(0)][0]`:    `expression "[timestamp(0)][0]": not a bool, it is a timestamp`,
		`[timestamp(0), 1][0]`: `expression "[timestamp(0), 1][0]": not a bool, it gave a timestamp`,
		`1 + 1`:                `expression "1 + 1": not a bool, it is an int`,
	} {
		_, err := EvalCondition(src, sample())
		if diff := cmp.Diff(want, text(err)); diff != "" {
			t.Error(diff)
		}
	}
}

// What a mistake is told with costs nothing to an evaluation that does not mind it.
func TestMistakesThatNobodyMindsAreNone(t *testing.T) {
	for _, src := range []string{
		`inputs.nope || true`, `!(inputs.s + 1 == 2 && false)`, `inputs.words.exists(w, w.x || w == "b")`, `!has(inputs.n.x)`, `steps.?late.?output.orValue(true)`,
		`inputs.?n.?x.orValue(true)`, `optional.ofNonZeroValue(inputs.?nope.orValue("")).orValue("d") == "d"`,
	} {
		if ok, err := EvalCondition(src, sample()); !ok || err != nil {
			t.Errorf("%s: %v, %v", src, ok, err)
		}
	}
}

// mutation: eval that finds a stopped evaluation by the text of its error makes this fail.
func TestKeysAreNotTakenForLimits(t *testing.T) {
	_, err := Prepare(sample()).Template(quote(`${inputs["actual cost limit exceeded, operands are too large"]}`))
	if err == nil || strings.Contains(err.Error(), "too costly") {
		t.Errorf("got %v", err)
	}
}
