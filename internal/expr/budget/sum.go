// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// sum is a list of the elements of several lists. CEL's own is a view of two: to get an element of
// 240 lists it takes 240 steps, and nobody pays for them.
type sum struct {
	parts []traits.Lister // none is a sum, and none is empty
	ends  []int           // of each part in the whole
}

var _ traits.Lister = (*sum)(nil)

// Sum is the sum of two lists; not ok: they are none, or the first is one that CEL adds to in
// place, as loops do.
func Sum(args []ref.Val) (list ref.Val, ok bool) {
	a, b, ok := addends(args)
	switch {
	case !ok:
		return nil, false
	case a.Size() == types.IntZero:
		return b, true
	case b.Size() == types.IntZero:
		return a, true
	}
	s, size := &sum{parts: slices.Concat(partsOf(a), partsOf(b))}, 0
	s.ends = make([]int, len(s.parts))
	for i, p := range s.parts {
		size += sizeOf(p)
		s.ends[i] = size
	}
	return s, true
}

func addends(args []ref.Val) (a, b traits.Lister, ok bool) {
	if len(args) != 2 {
		return nil, nil, false
	}
	a, first := args[0].(traits.Lister)
	b, second := args[1].(traits.Lister)
	_, grows := args[0].(traits.MutableLister)
	return a, b, first && second && !grows
}

func partsOf(l traits.Lister) []traits.Lister {
	if s, isSum := l.(*sum); isSum {
		return s.parts
	}
	return []traits.Lister{l}
}

func sizeOf(l traits.Lister) int {
	size, _ := l.Size().(types.Int)
	return int(size)
}

// Fixed is a value that does not grow while it is read: CEL adds a list to itself in place, and
// takes it for longer than it is then.
func Fixed(v ref.Val) ref.Val {
	if l, grows := v.(traits.MutableLister); grows {
		return l.ToImmutableList()
	}
	return v
}

// Add gives a list of both.
func (s *sum) Add(other ref.Val) ref.Val {
	if both, ok := Sum([]ref.Val{s, other}); ok {
		return both
	}
	return types.MaybeNoSuchOverloadErr(other)
}

// Contains says whether an element is equal to a value.
func (s *sum) Contains(value ref.Val) ref.Val {
	for _, p := range s.parts {
		if found := p.Contains(value); found != types.False {
			return found
		}
	}
	return types.False
}

// Get gives the element of an index.
func (s *sum) Get(index ref.Val) ref.Val {
	i, err := types.IndexOrError(index)
	if err != nil {
		return types.ValOrErr(index, "%v", err)
	}
	size := s.ends[len(s.ends)-1]
	if i < 0 || i >= size {
		return types.NewErr("index '%d' out of range in list size '%d'", i, size)
	}
	k, _ := slices.BinarySearch(s.ends, i+1)
	if k > 0 {
		i -= s.ends[k-1]
	}
	return s.parts[k].Get(types.Int(i))
}

// Iterator goes over the elements.
func (s *sum) Iterator() traits.Iterator {
	return &sumIterator{Iterator: s.parts[0].Iterator(), rest: s.parts[1:]}
}

// Size is the number of elements.
func (s *sum) Size() ref.Val { return types.Int(s.ends[len(s.ends)-1]) }

// IsZeroValue says that the list is not empty, for the functions of optional values.
func (s *sum) IsZeroValue() bool { return false }

// Equal compares with another list. An element that is an error makes the answer one, unless others
// are unequal.
func (s *sum) Equal(other ref.Val) ref.Val {
	list, isList := other.(traits.Lister)
	if !isList || list.Size() != s.Size() {
		return types.False
	}
	var answer ref.Val = types.True
	for a, b := s.Iterator(), list.Iterator(); a.HasNext() == types.True; {
		switch same := types.Equal(a.Next(), b.Next()); {
		case same == types.False:
			return same
		case answer == types.True:
			answer = same
		}
	}
	return answer
}

// ConvertToType gives the type, or the list itself.
func (s *sum) ConvertToType(t ref.Type) ref.Val {
	switch t.TypeName() {
	case types.ListType.TypeName():
		return s
	case types.TypeType.TypeName():
		return types.ListType
	}
	return types.NewErr("type conversion error from '%s' to '%s'", types.ListType, t)
}

// ConvertToNative is not needed by any function that expressions have.
func (s *sum) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("type conversion error from list to '%v'", t)
}

// Type is that of lists.
func (s *sum) Type() ref.Type { return types.ListType }

// Value is the lists that it is the sum of.
func (s *sum) Value() any { return s.parts }

// sumIterator goes over one part, and then over the rest.
type sumIterator struct {
	traits.Iterator
	rest []traits.Lister
}

// HasNext says whether there is another.
func (it *sumIterator) HasNext() ref.Val {
	return types.Bool(len(it.rest) > 0 || it.Iterator.HasNext() == types.True)
}

// Next gives it.
func (it *sumIterator) Next() ref.Val {
	if it.Iterator.HasNext() != types.True {
		it.Iterator, it.rest = it.rest[0].Iterator(), it.rest[1:]
	}
	return it.Iterator.Next()
}
