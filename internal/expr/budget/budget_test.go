// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"errors"
	"math"
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// mutation: Step that leaves stopped alone, or goes below zero, makes this fail.
func TestBudget_Step(t *testing.T) {
	b := New(3)
	if !b.Step(2) || !b.Step(1) || b.Err() != nil || b.Spent() != 3 {
		t.Fatalf("within the budget: %v, spent %d", b.Err(), b.Spent())
	}
	if b.Step(1) || !errors.Is(b.Err(), ErrTooCostly) || errors.Is(b.Err(), ErrOperands) || b.Cost != 0 {
		t.Errorf("beyond it: %v, %d left", b.Err(), b.Cost)
	}
	if b.Step(0) || b.take(0) {
		t.Error("a budget that is spent lets something go on")
	}
}

// mutation: take without its look at n < 0 makes this fail.
func TestBudget_TakeOverflows(t *testing.T) {
	for _, n := range []int{UnitsPerCost + 1, math.MaxInt, -1} {
		b := New(1)
		if b.take(n) || !errors.Is(b.Err(), ErrOperands) || !errors.Is(b.Err(), ErrTooCostly) || b.Units != 0 {
			t.Errorf("%d units: %v, %d left", n, b.Err(), b.Units)
		}
	}
}

// mutation: Step or take without did; did that does not begin anew, or asks for more than
// costBetween.
func TestBudget_Pauses(t *testing.T) {
	pauses := 0
	b := New(10 * costBetween)
	b.Pause = func() { pauses++ }
	for n, c := range []struct {
		take func() bool
		want int
	}{
		{func() bool { return b.Step(costBetween - 1) }, 0},
		{func() bool { return b.Step(1) }, 1},
		{func() bool { return b.take(UnitsPerCost * (costBetween - 1)) }, 1},
		{func() bool { return b.take(UnitsPerCost) }, 2},
	} {
		if !c.take() || pauses != c.want {
			t.Errorf("%d: %d pauses, want %d; %v", n, pauses, c.want, b.Err())
		}
	}
	b.Pause = nil
	if !b.Step(costBetween) || pauses != 2 {
		t.Errorf("without: %d pauses, %v", pauses, b.Err())
	}
}

// The figures are those of the package documentation.
//
// mutation: another figure per byte, node or state makes its row fail.
func TestCharges(t *testing.T) {
	text := func(s string) ref.Val { return types.String(s) }
	list := types.NewStringList(types.DefaultTypeAdapter, []string{"ab", "c"})
	for name, c := range map[string]struct {
		function string
		args     []ref.Val
		want     int
	}{
		"bytes of text":                    {"size", []ref.Val{text("four")}, 5},
		"nodes and bytes of a list":        {"_==_", []ref.Val{list, list}, 2 * (3*unitsPerNode + 3)},
		"a look into a map is for the key": {"@in", []ref.Val{text("k"), types.NewStringStringMap(types.DefaultTypeAdapter, nil)}, unitsPerNode + 1},
		"a joined text":                    {"join", []ref.Val{list, text("--")}, 3*unitsPerNode + 3 + 2*2},
		"the longest replacement":          {"replace", []ref.Val{text("aaaa"), text("aa"), text("bbb")}, 4 + 3*3},
		"a time zone":                      {"getHours", []ref.Val{text(""), text("UTC")}, unitsPerZone + 4},
		"a pattern":                        {"matches", []ref.Val{text("0123456789"), text("a")}, unitsPerPatternByte + 2*unitsPerState + 2*10*unitsPerStep},
		"a pattern that is repeated":       {"matches", []ref.Val{text(""), text("a{100}")}, 6*unitsPerPatternByte + statesOfRepeat*unitsPerState},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(10_000)
			if !Charges()[c.function](b, c.args) {
				t.Fatal(b.Err())
			}
			if got := 10_000*UnitsPerCost - b.Units; got != c.want {
				t.Errorf("%d units, want %d", got, c.want)
			}
			if short := (&Budget{Units: c.want - 1}); Charges()[c.function](short, c.args) {
				t.Error("it goes on with a unit too few")
			}
		})
	}
	if b := New(1000); Charges()["_+_"](b, []ref.Val{text(strings.Repeat("x", 50_000)), text("")}) {
		t.Error("a sum is free")
	}
}

// statesOfRepeat are those of a{100}: the repetition and its letter, 101 times.
const statesOfRepeat = (1 + 1 + 2) * 101

// mutations: Compile without a charge, Match that charges for none or for all of the text first, or
// that tells no budget that is spent.
func TestPattern(t *testing.T) {
	const compiled = unitsPerPatternByte*2 + unitsPerState*statesOfBegin
	b := New(1000)
	p, err := b.Compile("^a")
	if err != nil || b.Units != 1000*UnitsPerCost-compiled {
		t.Fatalf("%v; %d units are left", err, b.Units)
	}
	if _, err := (&Budget{Units: compiled - 1}).Compile("^a"); !errors.Is(err, ErrTooCostly) {
		t.Errorf("it is compiled with a unit too few: %v", err)
	}
	if _, err := b.Compile("("); err == nil || errors.Is(err, ErrTooCostly) {
		t.Errorf("a pattern that is none: %v", err)
	}
	const letter = statesOfBegin * unitsPerStep
	for text, c := range map[string]struct {
		letters int // that have to be paid
		matches bool
	}{
		"":                              {0, false},
		"a":                             {1, true},
		"b" + strings.Repeat("a", 1000): {2, false},
		"a" + strings.Repeat("é", 1000): {5, true}, // two letters are looked at ahead
	} {
		enough := &Budget{Units: c.letters * letter}
		if matches, err := p.Match(enough, text); err != nil || matches != c.matches || enough.Units != 0 {
			t.Errorf("%.9q: %v, %v, with %d units left", text, matches, err, enough.Units)
		}
		if _, err := p.Match(&Budget{Units: c.letters*letter - 1}, text); c.letters > 0 && !errors.Is(err, ErrTooCostly) {
			t.Errorf("%.9q: with a unit too few: %v", text, err)
		}
	}
}

// A text of 333 bytes was too long for ^.{1,1000}$.
//
// mutations: liveOf that takes a second repetition, that of a word, or one without ^ for one copy;
// that forgets what follows.
func TestLiveOf(t *testing.T) {
	for pattern, want := range map[string]int{
		`^.{1,1000}$`:      1 + 2 + 4 + 2,
		`^ab[a-z]{3,9}cd`:  1 + 2 + 4 + 4 + 4,
		`^x*$`:             1 + 2 + 5 + 2,
		`(?s)^.?a+`:        0,
		`^.{0,50}x.{0,50}`: 0,
		`^(?:ab){1,50}$`:   0,
		`^(a{1,50}){2}$`:   0,
		`^(?:a|bc){9}$`:    0,
		`(?m)^.{1,50}$`:    0,
		`^\b.{1,50}$`:      0,
		`.{1,50}$`:         0,
		`a.{1,50}$`:        0,
		`.{1,50}`:          0,
	} {
		re, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		if want == 0 {
			want = statesOf(re)
		}
		if got := liveOf(re); got != want {
			t.Errorf("%s: %d, want %d", pattern, got, want)
		}
	}
}

// statesOfBegin are those of ^a: both in a row.
const statesOfBegin = 1 + (1 + 1) + (1 + 2)
