// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

func numbers(of ...int) traits.Lister { return types.NewDynamicList(types.DefaultTypeAdapter, of) }

// added is the sum of some lists, from left to right.
func added(t *testing.T, lists ...traits.Lister) traits.Lister {
	t.Helper()
	all := lists[0]
	for _, l := range lists[1:] {
		both, ok := Sum([]ref.Val{all, l})
		if !ok {
			t.Fatalf("no sum of %v and %v", all, l)
		}
		all, _ = both.(traits.Lister)
	}
	return all
}

// A sum is what CEL makes of the same lists, however it is asked.
//
// mutations: a Get that looks for i instead of i+1, or leaves i as it is, a Next that skips a part,
// and an Equal that takes the last answer make this fail.
func TestASumIsTheListThatCELMakes(t *testing.T) {
	parts := []traits.Lister{numbers(1, 2), numbers(), numbers(3), numbers(4, 5, 6)}
	two, _ := numbers(1, 2).Add(numbers(3)).(traits.Lister)
	cel, _ := two.Add(numbers(4, 5, 6)).(traits.Lister)
	got := added(t, parts...)
	if got.Size() != types.Int(6) || got.Type() != types.ListType {
		t.Fatalf("%v elements, %v", got.Size(), got.Type())
	}
	for i := range types.Int(6) {
		if got.Get(i) != cel.Get(i) || got.Contains(cel.Get(i)) != types.True || got.Get(types.Double(i)) != cel.Get(i) {
			t.Errorf("element %d is %v", i, got.Get(i))
		}
	}
	for _, index := range []ref.Val{types.Int(-1), types.Int(6), types.String("a"), types.Double(0.5)} {
		if !types.IsError(got.Get(index)) {
			t.Errorf("element %v is %v", index, got.Get(index))
		}
	}
	for _, other := range []traits.Lister{cel, got, numbers(1, 2, 3, 4, 5, 6)} {
		if got.Equal(other) != types.True || other.Equal(got) != types.True {
			t.Errorf("it is not %v", other.Value())
		}
	}
	for _, other := range []ref.Val{numbers(1, 2, 3, 4, 5, 7), numbers(1, 2), types.IntZero} {
		if got.Equal(other) != types.False {
			t.Errorf("it is %v", other)
		}
	}
	if zero, can := got.(traits.Zeroer); got.Contains(types.Int(7)) != types.False || !can || zero.IsZeroValue() {
		t.Error("it has 7, or nothing")
	}
	if got.ConvertToType(types.ListType) != got || got.ConvertToType(types.TypeType) != types.ListType || !types.IsError(got.ConvertToType(types.IntType)) {
		t.Error("it is of another type")
	}
	if _, err := got.ConvertToNative(reflect.TypeFor[[]int]()); err == nil {
		t.Error("it was made one of Go's")
	}
	if more, is := got.Add(numbers(7)).(traits.Lister); !is || more.Size() != types.Int(7) || !types.IsError(got.Add(types.IntZero)) {
		t.Errorf("one more is %v", more)
	}
}

// An element that is an error is one only where somebody looks at it.
func TestASumWithAnErrorInIt(t *testing.T) {
	odd := types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{types.NewErr("no JSON"), types.IntOne})
	list := added(t, numbers(1), odd)
	if !types.IsError(list.Get(types.IntOne)) || list.Get(types.Int(2)) != types.IntOne {
		t.Errorf("%v, %v", list.Get(types.IntOne), list.Get(types.Int(2)))
	}
	if got := list.Equal(numbers(1, 2, 1)); !types.IsError(got) {
		t.Errorf("equality is %v", got)
	}
	if got := list.Equal(numbers(1, 2, 3)); got != types.False {
		t.Errorf("inequality is %v", got)
	}
}

// mutation: addends that takes a list of a loop makes this fail: each turn would copy what the
// turns before have added.
func TestWhatALoopAddsToIsNoSum(t *testing.T) {
	for _, args := range [][]ref.Val{
		{types.NewMutableList(types.DefaultTypeAdapter), numbers(1)}, {numbers(1), types.IntOne}, {types.IntOne, numbers(1)}, {numbers(1)},
	} {
		if list, ok := Sum(args); ok {
			t.Errorf("%v: %v", args, list)
		}
	}
	one := numbers(1)
	if list, _ := Sum([]ref.Val{one, numbers()}); list != one {
		t.Errorf("with nothing added it is %v", list)
	}
}

// mutations: a partsOf that gives a sum as one part, and a chargeAdd that charges for no list, make
// this fail.
func TestASumIsFlatAndPaidByItsParts(t *testing.T) {
	lists := slices.Repeat([]traits.Lister{numbers(1, 2)}, 240)
	left, doubled := added(t, lists...), added(t, lists[:15]...)
	for range 4 {
		doubled = added(t, doubled, doubled)
	}
	for _, all := range []traits.Lister{left, doubled} {
		if parts, _ := all.Value().([]traits.Lister); len(parts) != 240 {
			t.Errorf("%d parts", len(parts))
		}
		b := New(10_000)
		if Charges()["_+_"](b, []ref.Val{all, numbers(1)}); 10_000*UnitsPerCost-b.Units != 241*unitsPerNode {
			t.Errorf("one more list takes %d units", 10_000*UnitsPerCost-b.Units)
		}
		if short := New(1); Charges()["_+_"](short, []ref.Val{all, all}) || !errors.Is(short.Err(), ErrOperands) {
			t.Errorf("with a budget of 1: %v", short.Err())
		}
	}
}
