// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/testenv/norace"
)

// worst are expressions that CEL takes long to check, of some 1,000 characters, in which a part
// stands as often as there is room.
func worst() map[string]string {
	repeated := func(first, part string, groups, characters int) string {
		one := first + strings.Repeat(part, (characters/groups-1-len(first))/len(part))
		return "[].all(x,[" + strings.TrimSuffix(strings.Repeat(one+",", groups), ",") + "]==x)"
	}
	lists := strings.Repeat("[", 13) + strings.Repeat("]", 13)
	keys := "{}"
	for range 5 {
		keys = "{" + keys + ":" + keys + "}"
	}
	return map[string]string{
		"sums of empty lists":     repeated("[]", "+[]", 4, 980),
		"sums of deep lists":      repeated(lists, "+[]", 4, 980),
		"elements":                repeated(lists, "+[][0]", 4, 980),
		"maps as keys":            repeated("[[[["+keys+"]]]]", "+[]", 2, 980),
		"empty maps, comparisons": strings.Replace(repeated("x<x", ",x<x", 1, 560), "[x<x", "["+strings.Repeat("{},", 130)+"x<x", 1),
		"sums of empty, refused":  strings.Replace(repeated("[]", "+[]", 4, 960), "]==x)", ",1+'a']==x)", 1),
		"sums of some":            repeated("[]", "+[]", 3, 520),
		"deep lists in a list":    repeated(lists, ",[]", 1, 980),
		"comparisons":             repeated("x==x", ",x==x", 1, 980),
	}
}

// processorTime is what this process took so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// MaxCost stands for some 50 ms, 0.2 microseconds a unit; here a unit may be ten times that, as the
// machine may be busy.
//
// mutations: costOf without copiesOf, or without the depth of types, a bound of a hundred times
// MaxCost, and mapOf that takes the deeper of key and value, make this fail.
func TestWhatTakesLongToCheckCostsThat(t *testing.T) {
	norace.Only(t)
	c, err := sharedCompiler()
	if err != nil {
		t.Fatal(err)
	}
	for name, src := range worst() {
		m, least := &Meter{}, time.Hour
		for range 3 {
			m.took = 0
			before := processorTime(t)
			_, _ = c.make(source{text: src}, m)
			least = min(least, processorTime(t)-before)
		}
		if most := time.Duration(m.took) * 2 * time.Microsecond; least > most {
			t.Errorf("%s: %s for %d units: %s", name, least, m.took, src)
		}
		if m.took > MaxCost {
			t.Errorf("%s: %d units", name, m.took)
		}
	}
}

// mutation: a costOf without its bound makes this fail.
func TestWhatTakesTooLongToCheckIsRefused(t *testing.T) {
	for _, name := range []string{"sums of empty lists", "sums of empty, refused", "elements"} {
		_, err := ConditionSteps(worst()[name])
		if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "it takes too long to check") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for part, most := range map[string]int{
		"inputs.?a.orValue([]).size() > 1":         100_000,
		"inputs.a == 1":                            50_000,
		"inputs.?a.orValue([]).all(x, x == 1)":     100_000,
		"steps.fetch.output.status in [200, 204]":  100_000,
		"inputs.names[0] + '-' + inputs.b == 'ab'": 100_000,
	} {
		src := part + strings.Repeat(" && "+part, (MaxExpressionLength-len(part))/(len(part)+len(" && ")))
		m := &Meter{}
		if _, err := ConditionSteps(src, Metered(m)); err != nil || m.took > most {
			t.Errorf("%s: %d units, %v", src, m.took, err)
		}
	}
}

// mutation: a make that counts after the check makes this fail.
func TestWhatAMeterHasNoRoomForIsNotChecked(t *testing.T) {
	const wrong = "[1].all(x, x == 'a')"
	for _, m := range []*Meter{{Most: 1}, {Pause: func() bool { return false }}} {
		if _, err := ConditionSteps(wrong, Metered(m)); !errors.Is(err, ErrUnread) {
			t.Errorf("%v", err)
		}
	}
	m := &Meter{}
	refused, err := ConditionSteps(wrong, Metered(m))
	fine := &Meter{}
	if _, same := ConditionSteps("[1].all(x, x == 22)", Metered(fine)); err == nil || same != nil || m.took < fine.took {
		t.Errorf("%v, %v, %v: %d units for what is refused, %d for another", refused, err, same, m.took, fine.took)
	}
}

// mutations: asked without a kind of node, boundBy without one of its functions, and a sum of which
// nothing is known, make this fail.
func TestCopiesAreCountedForEachQuestion(t *testing.T) {
	c, err := sharedCompiler()
	if err != nil {
		t.Fatal(err)
	}
	for src, want := range map[string]int{
		"1": 0, "[]": 0, "[[]]": 1, "[1]": 0, "{1: {}}": 4, "inputs.a": 0, "[[], {}, 1]": 3 * (1 + 2),
		"!([] == 1)":      2*1 + 1*2,
		"optional.of([])": c.functions["optional.of"].tried,

		"!(inputs.a + 'b' + inputs.c)": 0,
		"!(1 + [1])":                   0,
		"!(inputs.a + inputs.b)":       0,
		"!(inputs.a + [1])":            1 * 1,
		"!([1] + inputs.a)":            1 * 1,
		"!(null + inputs.a)":           1 * 1,
		"!inputs.a[0]":                 1 * 2,
		"!inputs[?'a'][0]":             c.functions["_[_]"].tried*2 + 1*(2+2+4),
		"!inputs.?a[?0]":               c.functions["_[?_]"].tried*c.functions["_?._"].bound + c.functions["_?._"].bound + 2,
		"![1][0]":                      1 * c.functions["_[_]"].bound,
	} {
		tree := parsedOf(t, src)
		if got := copiesOf(tree, c.functions, typesOf(tree).known); got != want {
			t.Errorf("%s: %d copies, want %d", src, got, want)
		}
	}
}

// What is read of inputs has no type: neither an index nor a sum says more of it.
//
// mutation: a boundBy that gives what a function may bind at most makes this fail.
func TestARowOfColumnsIsTaken(t *testing.T) {
	var columns []string
	for i := range 75 {
		columns = append(columns, fmt.Sprintf("item[%d]", i))
	}
	for what, src := range map[string]string{
		"in a row": strings.Join(columns, "+','+"), "side by side": strings.Join(columns, "+"), "that may not be there": strings.Join(columns[:38], ".orValue('')+','+") + ".orValue('')",
	} {
		if what == "that may not be there" {
			src = strings.ReplaceAll(src, "[", "[?")
		}
		m := &Meter{}
		if _, err := TemplateSteps([]byte(`"${`+src+`}"`), WithItem, Metered(m)); err != nil || len(src) > MaxExpressionLength {
			t.Errorf("columns %s, %d characters, %d units: %v", what, len(src), m.took, err)
		}
	}
}
