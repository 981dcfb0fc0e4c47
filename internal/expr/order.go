// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"cmp"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// smallMap is how many keys a map may have to be put in order each time that a loop goes over it;
// larger ones are made so that they keep the order.
const smallMap = 32

// orderedMap is a map whose keys always come in the same order: Go's come in another each time,
// and a list made of them would be another list, with other items, each time that its
// expression is evaluated.
type orderedMap struct {
	traits.Mapper
	keys []ref.Val // in order, once somebody went over them
}

func inOrder(m traits.Mapper) traits.Mapper {
	switch m.(type) {
	case *orderedMap, documentMap:
		return m
	}
	return &orderedMap{Mapper: m}
}

// Iterator goes over the keys: by type, and those of one type as they compare.
func (m *orderedMap) Iterator() traits.Iterator {
	if m.keys == nil {
		for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
			m.keys = append(m.keys, it.Next())
		}
		slices.SortFunc(m.keys, compareKeys)
	}
	return types.NewRefValList(jsonAdapter{}, m.keys).Iterator()
}

// IsZeroValue says whether the map is empty, for the functions of optional values.
func (m *orderedMap) IsZeroValue() bool { return m.Size() == types.IntZero }

// compareKeys compares keys that checkKeys lets pass.
func compareKeys(x, y ref.Val) int {
	if byType := cmp.Compare(x.Type().TypeName(), y.Type().TypeName()); byType != 0 {
		return byType
	}
	n := types.IntZero
	if c, ok := x.(traits.Comparer); ok {
		n, _ = c.Compare(y).(types.Int)
	}
	return int(n)
}

// checkKeys is a map that an expression made, in order, or an error: CEL allows no other types of
// keys, but does not look. Lists have no order, and NaN is not even equal to itself.
func checkKeys(m traits.Mapper) ref.Val {
	switch m.(type) {
	case *orderedMap, documentMap:
		return m
	}
	for it := m.Iterator(); it.HasNext() == types.True; {
		switch key := it.Next().(type) {
		case types.String, types.Int, types.Uint, types.Bool:
		default:
			return types.NewErr("%s cannot be a key of a map", article(kind(key)))
		}
	}
	return inOrder(m)
}
