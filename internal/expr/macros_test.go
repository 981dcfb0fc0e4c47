// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"strings"
	"testing"
)

// A variable of a macro over scalars has their type, so what can never be true is refused.
//
// mutations: a range or a value that is dyn, and plainFunctions without one of the scalars, make
// this fail.
func TestWhatIsNeverEqualInAMacroIsRefused(t *testing.T) {
	const noOverload = "found no matching overload for "
	for src, want := range map[string]string{
		"'1,2,3'.split(',').exists(x, x == 2)":                         noOverload + "'_==_' applied to '(string, int)'",
		"['a'].exists(x, x == 1)":                                      noOverload + "'_==_' applied to '(string, int)'",
		"[1].all(x, x != 'a')":                                         noOverload + "'_!=_' applied to '(int, string)'",
		"[1u].all(x, x in ['a'])":                                      noOverload + "'@in' applied to '(uint, list(string))'",
		"[true].all(x, x == 1)":                                        noOverload + "'_==_' applied to '(bool, int)'",
		"[1.5].all(x, x == 'a')":                                       noOverload + "'_==_' applied to '(double, string)'",
		"[b'a'].all(x, x == 'a')":                                      noOverload + "'_==_' applied to '(bytes, string)'",
		"[duration('1s')].all(x, x == '1s')":                           noOverload + "'_==_' applied to '(duration, string)'",
		"[timestamp(0)].all(x, x == 0)":                                noOverload + "'_==_' applied to '(timestamp, int)'",
		"{'a': 1}.all(k, k == 1)":                                      noOverload + "'_==_' applied to '(string, int)'",
		"{1: 1}.all(k, k == 'a')":                                      noOverload + "'_==_' applied to '(int, string)'",
		"{1u: 1}.all(k, k == 'a')":                                     noOverload + "'_==_' applied to '(uint, string)'",
		"{true: 1}.all(k, k == 'a')":                                   noOverload + "'_==_' applied to '(bool, string)'",
		"'1,2'.split(',').filter(x, x != '').map(y, y).all(z, z != 3)": noOverload + "'_!=_' applied to '(string, int)'",
		"[1].all(x, has(x.y))":                                         "type 'int' does not support field selection",
		"optional.of(1).optMap(x, x) == optional.of('1')":              noOverload + "'_==_'",
		"optional.of('a').optFlatMap(x, optional.of(x == 1)).value()":  noOverload + "'_==_' applied to '(string, int)'",
	} {
		if _, err := ConditionSteps(src); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", src, err)
		}
	}
}

// mutation: plainFunctions without one of the composed types, so that [] is of something,
// makes this fail.
func TestAMacroGoesOverAnythingElse(t *testing.T) {
	for _, src := range []string{
		"[].all(x, x > 0)", "[].all(x, x == 'a')", "{}.all(k, k == 'a')", "(inputs.b ? [] : ['a']).all(x, x == 'a')", "[].all(x, x.all(y, y == 1))",
		"[[1]].all(x, x[0] == 1)", "[{1: 1}].all(x, x[1] == 1)", "[1, 'a'].all(x, x != true)", "[null].all(x, x == null)", "[type(1)].all(x, x == int)",
		"[optional.of(1)].all(x, x.value() == 1)", "[1, 2.5].all(x, x > 0)", "[1].all(x, x > 0.5)", "[inputs.n].all(x, x == 1)", "inputs.all(k, k != 'x')",
		"inputs.l.all(x, x == 1)", "dyn(['a']).all(x, x != 1)", "google.protobuf.ListValue{}.all(x, x == 1)", "google.protobuf.Struct{}.all(k, k == 'a')",
		"optional.none().optMap(x, x == 1).orValue(true)", "inputs.?n.optMap(x, x == 1).value()", "optional.of([1]).optMap(x, x[0] == 1).value()",
		"optional.of({'a': 1}).optMap(x, x.a == 1).value()", "optional.of(int).optMap(x, x == int).value()", "optional.of(null).optMap(x, x == null).value()",
		"optional.of(optional.of(1)).optMap(x, x.value() == 1).value()", "[].map(x, x) == [] && [].map(x, x) != [1] && [].map(x, x) != ['a']",
	} {
		if yes, err := EvalCondition(src, Vars{Inputs: map[string]any{"l": []any{int64(1)}, "n": int64(1), "b": true}}); err != nil || !yes {
			t.Errorf("%s: %t, %v", src, yes, err)
		}
	}
	for _, src := range []string{"[[1]].exists(x, x == 'a')", "inputs.l.exists(x, x == 'a')"} { // docs/workflows.md says so
		if yes, err := EvalCondition(src, Vars{Inputs: map[string]any{"l": []any{int64(1)}}}); err != nil || yes {
			t.Errorf("%s: %t, %v", src, yes, err)
		}
	}
}
