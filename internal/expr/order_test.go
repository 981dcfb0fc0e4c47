// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/internal/expr/budget"
)

// The items of a list that is made of a map's keys must be the same each time: a job rendered again
// is the same bytes, and item 3 of a forEach is item 3. Maps of 20 and of 100 keys: small ones are
// put in order by each loop, large ones once.
//
// mutation: inOrder that gives back m makes this fail; so does guardedNode.Exec without it, for
// maps that expressions make.
func TestMapsComeInTheSameOrderEachTime(t *testing.T) {
	keys := func(n int) (map[string]any, []any) {
		m, sorted := map[string]any{}, []any{}
		for i := range n {
			k := fmt.Sprintf("key%03d", i)
			m[k] = map[string]any{"n": i}
			sorted = append(sorted, k)
		}
		return m, sorted
	}
	small, smallKeys := keys(20)
	large, largeKeys := keys(100)
	raw, err := json.Marshal(map[string]any{"within": large})
	if err != nil {
		t.Fatal(err)
	}
	v := Vars{Inputs: map[string]any{"small": small, "large": large, "raw": json.RawMessage(raw)}}
	for name, tc := range map[string]struct {
		src  string
		want []any
	}{
		"a small map":              {`inputs.small.map(k, k)`, smallKeys},
		"a large map":              {`inputs.large.map(k, k)`, largeKeys},
		"a large map of raw JSON":  {`inputs.raw.within.map(k, k)`, largeKeys},
		"a map of the expression":  {`{"e": 1, "b": 1, "d": 1, "a": 1, "c": 1}.map(k, k)`, []any{"a", "b", "c", "d", "e"}},
		"keys of different types":  {`{true: 1, 10: 1, "a": 1, 9: 1, 2u: 1, "B": 1, false: 1}.map(k, k)`, []any{false, true, int64(9), int64(10), "B", "a", uint64(2)}},
		"a map that a call gives":  {`optional.of({"c": 1, "b": 1, "d": 1, "a": 1}).value().map(k, k)`, []any{"a", "b", "c", "d"}},
		"a map in a list":          {`[{"c": 1, "b": 1, "d": 1, "a": 1}].map(m, m.map(k, k))[0]`, []any{"a", "b", "c", "d"}},
		"a map in either branch":   {`(inputs.small.size() > 3 ? {"b": 1, "a": 1} : {"d": 1, "c": 1}).map(k, k)`, []any{"a", "b"}},
		"the first that is wanted": {`inputs.large.filter(k, inputs.large[k].n > 41)[0]`, []any{"key042"}},
	} {
		t.Run(name, func(t *testing.T) {
			src := tc.src
			if strings.HasSuffix(src, ")[0]") && !strings.HasPrefix(src, "[") {
				src = "[" + src + "]"
			}
			for range 10 {
				got, err := Prepare(v).List("${" + src + "}")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Fatalf("items (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestOrderedMapsAreMaps(t *testing.T) {
	large := map[string]any{}
	for i := range 100 {
		large[fmt.Sprint(i)] = int64(i)
	}
	v := Vars{Inputs: map[string]any{"large": large, "again": large, "small": map[string]any{"a": int64(1)}}}
	for _, src := range []string{
		`inputs.large == inputs.again`, `inputs.small == {"a": 1.0}`, `{"a": 1} == inputs.small`, `inputs.large != inputs.small`, `inputs.large.size() == 100`,
		`inputs.large["7"] == 7`, `inputs.large.?x.orValue(3) == 3`, `"7" in inputs.large && !("x" in inputs.large)`, `type(inputs.large) == type({})`,
		`!optional.ofNonZeroValue({}).hasValue() && optional.ofNonZeroValue(inputs.large).hasValue()`, `inputs.large.all(k, inputs.large[k] < 100)`,
		`has(inputs.large.x) == false`, `inputs.large.exists_one(k, k == "55")`, `dyn(inputs) == inputs`,
	} {
		if ok, err := EvalCondition(src, v); !ok || err != nil {
			t.Errorf("%s: %v, %v", src, ok, err)
		}
	}
}

// A loop over a map first copies all its keys, which costs it nothing: with a large output in it,
// one loop in another would take minutes. mutation: decoded that leaves large maps as they are
// makes this fail.
func TestLoopsOverLargeMapsEndSoon(t *testing.T) {
	const bound = time.Minute // it takes less than 1 s; more with the race detector, and the machine may be busy
	m := map[string]any{}
	for i := range 50_000 {
		m[fmt.Sprint("key", i)] = int64(i)
	}
	raw, err := json.Marshal(map[string]any{"m": m})
	if err != nil {
		t.Fatal(err)
	}
	l := make([]any, MaxListItems)
	for name, v := range map[string]Vars{"as it is": {Inputs: map[string]any{"l": l, "o": map[string]any{"m": m}}}, "raw": {Inputs: map[string]any{"l": l, "o": json.RawMessage(raw)}}} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			_, err := Prepare(v).List(`${inputs.l.map(x, inputs.o.m.exists(k, true))}`)
			if took := time.Since(start); err != nil || took > bound {
				t.Errorf("took %v, %v", took, err)
			}
		})
	}
}

func TestKeysOfAMapAreTextOrWholeNumbersOrBools(t *testing.T) {
	for src, want := range map[string]string{
		`{[1]: 1}`:           `a list cannot be a key of a map`,
		`{null: 1}.size()`:   `null cannot be a key of a map: {null: 1}`,
		`{0.0 / 0.0: 1}`:     `a double cannot be a key of a map`,
		`{{}: 1}`:            `a map cannot be a key of a map`,
		`{type(1): 1}`:       `a type cannot be a key of a map`,
		`{timestamp(0): 1}`:  `a timestamp cannot be a key of a map`,
		`{"a": {1.5: true}}`: `a double cannot be a key of a map: {1.5: true}`,
	} {
		_, err := Prepare(Vars{}).Template(quote("${ " + src + " }"))
		if diff := cmp.Diff(`expression "`+strings.ReplaceAll(" "+src+" ", `"`, `\"`)+`": `+want, text(err)); diff != "" {
			t.Error(diff)
		}
	}
}

// A list of just more than 2^63 elements has no size, and CEL panics where it is asked for, which
// may be beyond its own recover.
//
// mutation: chargeText for chargeAdd makes this run out of memory.
func TestAListWithoutASizeIsAnError(t *testing.T) {
	for _, n := range []int{63, 64} {
		src := "[[1]]" + strings.Repeat(".map(x,x+x)", n)
		for _, whole := range []string{src, src + "[0]"} {
			if _, err := Prepare(Vars{}).List("${" + whole + "}"); !errors.Is(err, ErrTooCostly) {
				t.Errorf("%d doublings as a list: %v", n, err)
			}
			if _, err := Prepare(Vars{}).Template(quote("${" + whole + "}")); !errors.Is(err, ErrTooCostly) {
				t.Errorf("%d doublings rendered: %v", n, err)
			}
		}
	}
}

// A stopped evaluation has no value, even if || would not mind the error; and it ends, whatever
// loops it is in.
//
// mutation: eval that looks at the error only makes this fail.
func TestAStoppedEvaluationHasNoValue(t *testing.T) {
	for _, src := range []string{
		`inputs.s.matches('(a{1,30}){1,30}b') || true`,
		`true || inputs.l.map(x, inputs.l.map(y, inputs.l.map(z, 1))).size() > 0 ? inputs.l.map(x, inputs.l.map(y, inputs.l.map(z, 1))).size() >= 0 || true : true`,
		`inputs.l.exists_one(x, inputs.l.all(y, inputs.l.exists(z, z == -1) || true)) || true`,
		`inputs.l.filter(x, inputs.l.exists_one(y, inputs.l.exists_one(z, z == y))).size() >= 0 || true`,
		`inputs.l.exists(x, inputs[?string(x)].hasValue() || has(inputs.x) || inputs.?l[?x] == optional.none() || inputs.l.all(z, z != -1) && false)`,
	} {
		if ok, err := EvalCondition(src, heavy()); !errors.Is(err, ErrTooCostly) {
			t.Errorf("%s: %v, %v", src, ok, err)
		}
	}
}

// Wherever it is that an evaluation runs out, it ends with an error, and with enough it does not.
//
// mutation: guardedNode, guardedCall, tellingAttribute or Qualify that does not ask whether it may
// go on makes this fail.
func TestAnEvaluationEndsWhereverItRunsOut(t *testing.T) {
	for src, want := range map[string]any{
		`inputs.list[0] + inputs[inputs.words[1] == "b" ? "n" : "f"]`:                       int64(9007199254740994),
		`[inputs.?list[?0].orValue(2), has(inputs.object.a) ? 1 : 2].size()`:                int64(2),
		`inputs.words.exists_one(w, w == "a") && inputs.words.all(w, w != "c") ? "y" : "n"`: "y",
		`{"a": inputs.words.map(w, {"w": w})}.a.filter(m, m.w > "a")[0].w`:                  "b",
		`optional.unwrap([inputs.?n, inputs.?none]).size() + (true ? 1 : 2)`:                int64(3),
	} {
		p, err := compile(source{text: src}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for cost := range MaxCost {
			a := sample().activation(cost)
			out, err := p.eval(a)
			w, _ := a[varWork].(*budget.Budget)
			if err != nil {
				if !errors.Is(err, ErrTooCostly) || w.Spent() < cost {
					t.Fatalf("%s with %d: %v", src, cost, err)
				}
				continue
			}
			if out.Value() != want || w.Cost != 0 || cost < 10 {
				t.Errorf("%s with %d, %d left: %v", src, cost, w.Cost, out)
			}
			break
		}
	}
}

// A function that cel-go adds must be looked at: does its work depend on the size of its operands?
//
// mutation: budget.Charges without any of its functions makes this fail.
func TestWhatIsNotChargedTakesConstantTime(t *testing.T) {
	c, err := newCompiler()
	if err != nil {
		t.Fatal(err)
	}
	var free []string
	for name := range c.env.Functions() {
		if c.guard.charges[name] == nil {
			free = append(free, name)
		}
	}
	slices.Sort(free)
	want := []string{
		"@not_strictly_false", "@range", "@value", "_&&_", "_?._", "_?_:_", "_[?_]", "_[_]", "__not_strictly_false__", "_in_", "_||_", "dyn", "first",
		"format", "hasValue", "in", "last", "optional.none", "optional.of", "optional.ofNonZeroValue", "or", "orValue", "type", "value",
	}
	for _, src := range []string{`_in_(1, inputs.l)`, `in(1, inputs.l)`, `"%s".format([inputs.l])`} { // names without a function behind them
		if _, err := ConditionSteps(src); err == nil {
			t.Errorf("%s is an expression", src)
		}
	}
	if diff := cmp.Diff(want, free); diff != "" {
		t.Errorf("functions without charge (-want +got):\n%s", diff)
	}
}

// The cost is part of what users are told: see doc.go.
//
// mutation: any node without its cost makes this fail.
func TestWhatTheNodesOfAnExpressionCost(t *testing.T) {
	for src, want := range map[string]int{
		`true`: 0, `inputs`: 1, `inputs.object.b`: 3, `inputs.list[0]`: 3, `inputs.words[inputs.f == 1.5 ? 0 : 1]`: 6, `inputs.?nope.?x`: 2,
		`inputs.?object.?b`: 3, `has(inputs.f)`: 2, `1 + 2`: 1, `[1, 2]`: 10, `{"a": 1}`: 30, `true || false`: 1, `size([])`: 2,
		`[1, 2].map(x, x)`: 1 + 1 + 10 + 1 + 2*(1+10+1+1) + 1,
	} {
		p, err := compile(source{text: src}, nil)
		if err != nil {
			t.Fatal(err)
		}
		a := sample().activation(MaxCost)
		if _, err := p.eval(a); err != nil {
			t.Errorf("%s: %v", src, err)
		}
		if w, _ := a[varWork].(*budget.Budget); MaxCost-w.Cost != want {
			t.Errorf("%s costs %d, want %d", src, MaxCost-w.Cost, want)
		}
	}
}

// endless is a list that counts how often somebody asked for the next of its elements.
type endless struct {
	traits.Lister
	asked int
}

func (l *endless) Iterator() traits.Iterator { return &steps{Iterator: l.Lister.Iterator(), list: l} }

type steps struct {
	traits.Iterator
	list *endless
}

func (s *steps) HasNext() ref.Val { return types.True }

func (s *steps) Next() ref.Val {
	if s.list.asked++; s.list.asked > 1_000_000 {
		panic("asked for a million elements")
	}
	return types.IntZero
}

// mutation: guardedConst that stays true makes the first of these ask for a million.
func TestALoopThatWasStoppedMakesNoOtherTurn(t *testing.T) {
	for _, src := range []string{
		`l.map(x, x)`, `l.filter(x, x == 1)`, `l.exists(x, x == 1)`, `l.all(x, x == 0)`, `l.exists_one(x, x == 1)`, `l.map(x, x == 0, x)`,
		`l.map(x, l.map(y, l.exists(z, false)))`, `l.all(x, l.exists(y, l.nope) || true)`,
	} {
		l := &endless{Lister: types.NewDynamicList(jsonAdapter{}, []any{int64(0)})}
		_, err := EvalCondition("dyn("+strings.ReplaceAll(src, "l.", "inputs.l.")+") == 1", Vars{Inputs: map[string]any{"l": l}})
		if !errors.Is(err, ErrTooCostly) || l.asked > MaxCost {
			t.Errorf("%s: %d elements, %v", src, l.asked, err)
		}
	}
}

// Without work an evaluation does nothing: a variable that is forgotten must not be a limit
// that is forgotten.
func TestWithoutWorkNothingIsDone(t *testing.T) {
	p, err := compile(source{text: `[1].exists(x, true)`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := Vars{}.activation(MaxCost)
	delete(a, varWork)
	if out, err := p.eval(a); err == nil && out.Value() == true {
		t.Errorf("got %v", out)
	}
}
