// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/syncopate-dev/syncopate/internal/document"
	"github.com/syncopate-dev/syncopate/internal/expr/budget"
)

// Values of documents are made CEL values one at a time, when an expression comes to them, and are
// not kept: so what an expression reads takes no more memory than the document.

// documentValue is a value of a document for CEL.
func documentValue(v document.Value) ref.Val {
	switch v.Kind() {
	case document.Null:
		return types.NullValue
	case document.True, document.False:
		return types.Bool(v.Kind() == document.True)
	case document.String:
		return types.String(v.Text())
	case document.List:
		return documentList{v}
	case document.Object:
		return documentMap{v}
	default:
		n, err := v.Number()
		if err != nil {
			return types.WrapErr(err)
		}
		return jsonAdapter{}.NativeToValue(n)
	}
}

// documentList is a list of a document.
type documentList struct{ value document.Value }

var _ traits.Lister = documentList{}

// Add gives a list of both.
func (l documentList) Add(other ref.Val) ref.Val {
	if both, ok := budget.Sum([]ref.Val{l, other}); ok {
		return both
	}
	return types.MaybeNoSuchOverloadErr(other)
}

// Contains says whether an element is equal to a value.
func (l documentList) Contains(value ref.Val) ref.Val {
	for i := range l.value.Len() {
		if types.Equal(value, documentValue(l.value.Index(i))) == types.True {
			return types.True
		}
	}
	return types.False
}

// Get gives the element of an index.
func (l documentList) Get(index ref.Val) ref.Val {
	i, err := types.IndexOrError(index)
	if err != nil {
		return types.ValOrErr(index, "%v", err)
	}
	if i < 0 || i >= l.value.Len() {
		return types.NewErr("index '%d' out of range in list size '%d'", i, l.value.Len())
	}
	return documentValue(l.value.Index(i))
}

// Iterator goes over the elements.
func (l documentList) Iterator() traits.Iterator {
	return &documentIterator{size: l.value.Len(), at: func(i int) ref.Val { return documentValue(l.value.Index(i)) }}
}

// Size is the number of elements.
func (l documentList) Size() ref.Val { return types.Int(l.value.Len()) }

// IsZeroValue says whether the list is empty, for the functions of optional values.
func (l documentList) IsZeroValue() bool { return l.value.Len() == 0 }

// Equal compares with another list.
func (l documentList) Equal(other ref.Val) ref.Val {
	list, isList := other.(traits.Lister)
	if !isList || list.Size() != l.Size() {
		return types.False
	}
	for i := range l.value.Len() {
		if types.Equal(documentValue(l.value.Index(i)), list.Get(types.Int(i))) == types.False {
			return types.False
		}
	}
	return types.True
}

// ConvertToType gives the type, or the list itself.
func (l documentList) ConvertToType(t ref.Type) ref.Val { return converted(l, types.ListType, t) }

// ConvertToNative is not needed by any function that expressions have.
func (l documentList) ConvertToNative(t reflect.Type) (any, error) { return noNative(l, t) }

// Type is that of lists.
func (l documentList) Type() ref.Type { return types.ListType }

// Value is the value in its document.
func (l documentList) Value() any { return l.value }

// documentMap is an object of a document; its keys are in order.
type documentMap struct{ value document.Value }

var _ traits.Mapper = documentMap{}

// Find gives the value of a key.
func (m documentMap) Find(key ref.Val) (ref.Val, bool) {
	name, isText := key.(types.String)
	if !isText {
		return nil, false
	}
	v, found := m.value.Lookup(string(name))
	if !found {
		return nil, false
	}
	return documentValue(v), true
}

// Get gives the value of a key, or an error.
func (m documentMap) Get(key ref.Val) ref.Val {
	if v, found := m.Find(key); found {
		return v
	}
	return types.NewErr("no such key: %v", key)
}

// Contains says whether there is a key.
func (m documentMap) Contains(key ref.Val) ref.Val {
	_, found := m.Find(key)
	return types.Bool(found)
}

// Iterator goes over the keys.
func (m documentMap) Iterator() traits.Iterator {
	return &documentIterator{size: m.value.Len(), at: func(i int) ref.Val { return types.String(m.value.Key(i)) }}
}

// Size is the number of keys.
func (m documentMap) Size() ref.Val { return types.Int(m.value.Len()) }

// IsZeroValue says whether the map is empty, for the functions of optional values.
func (m documentMap) IsZeroValue() bool { return m.value.Len() == 0 }

// Equal compares with another map.
func (m documentMap) Equal(other ref.Val) ref.Val {
	object, isMap := other.(traits.Mapper)
	if !isMap || object.Size() != m.Size() {
		return types.False
	}
	for i := range m.value.Len() {
		v, found := object.Find(types.String(m.value.Key(i)))
		if !found || types.Equal(documentValue(m.value.At(i)), v) == types.False {
			return types.False
		}
	}
	return types.True
}

// ConvertToType gives the type, or the map itself.
func (m documentMap) ConvertToType(t ref.Type) ref.Val { return converted(m, types.MapType, t) }

// ConvertToNative is not needed by any function that expressions have.
func (m documentMap) ConvertToNative(t reflect.Type) (any, error) { return noNative(m, t) }

// Type is that of maps.
func (m documentMap) Type() ref.Type { return types.MapType }

// Value is the value in its document.
func (m documentMap) Value() any { return m.value }

func converted(val ref.Val, own *types.Type, t ref.Type) ref.Val {
	switch t.TypeName() {
	case own.TypeName():
		return val
	case types.TypeType.TypeName():
		return own
	}
	return types.NewErr("type conversion error from '%s' to '%s'", own.TypeName(), t.TypeName())
}

func noNative(val ref.Val, t reflect.Type) (any, error) {
	if reflect.TypeOf(val).AssignableTo(t) {
		return val, nil
	}
	return nil, fmt.Errorf("type conversion error from '%s' to '%v'", val.Type().TypeName(), t)
}

// documentIterator goes over what a list or map has.
type documentIterator struct {
	iteratorValue
	size, next int
	at         func(int) ref.Val
}

// iteratorValue makes an iterator a CEL value, which no expression ever sees.
type iteratorValue struct{ types.Null }

// HasNext says whether there is another.
func (it *documentIterator) HasNext() ref.Val { return types.Bool(it.next < it.size) }

// Next gives it.
func (it *documentIterator) Next() ref.Val {
	it.next++
	return it.at(it.next - 1)
}
