// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

const (
	unitsPerNode = 16    // to look at one element of a list or map, or at one list of a sum
	unitsPerZone = 4_000 // to look up a time zone by its name
)

// Charge takes from b what a call with these operands may do, and says whether there was enough.
type Charge func(b *Budget, args []ref.Val) bool

// Charges are those of the calls whose work depends on the size of their operands.
func Charges() map[string]Charge {
	charges := map[string]Charge{
		operators.Equals:    weighAll,
		operators.NotEquals: weighAll,
		operators.In:        chargeIn,
		operators.Add:       chargeAdd,
		"join":              chargeJoin,
		"replace":           chargeReplace,
		"matches":           chargeMatches,
		"indexOf":           chargeSearch,
		"lastIndexOf":       chargeSearch,
		"optional.unwrap":   chargeElements,
		"unwrapOpt":         chargeElements,
	}
	for _, linear := range []string{
		operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
		"size", "string", "bytes", "int", "uint", "double", "bool", "duration", "timestamp", "contains", "startsWith", "endsWith",
		"charAt", "lowerAscii", "upperAscii", "substring", "trim", "reverse", "split", "strings.quote",
		// These cost little; they are here for the sake of their mistakes, which a guarded
		// call tells better.
		operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate, operators.LogicalNot,
	} {
		charges[linear] = chargeText
	}
	for _, part := range []string{
		"getFullYear", "getMonth", "getDayOfYear", "getDate", "getDayOfMonth", "getDayOfWeek", "getHours", "getMinutes", "getSeconds",
		"getMilliseconds",
	} {
		charges[part] = chargeZone
	}
	return charges
}

// weighAll charges for every node and byte of the operands.
func weighAll(b *Budget, args []ref.Val) bool {
	for _, a := range args {
		if !weigh(b, a) {
			return false
		}
	}
	return true
}

func weigh(b *Budget, val ref.Val) bool {
	if !b.take(unitsPerNode + textLen(val)) {
		return false
	}
	switch v := val.(type) {
	case *types.Optional:
		return !v.HasValue() || weigh(b, v.GetValue())
	case traits.Mapper:
		return weighMap(b, v)
	case traits.Lister:
		return weighList(b, v)
	}
	return true
}

func weighMap(b *Budget, m traits.Mapper) bool {
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		if !weigh(b, key) || !weigh(b, m.Get(key)) {
			return false
		}
	}
	return true
}

func weighList(b *Budget, l traits.Lister) bool {
	for it := l.Iterator(); it.HasNext() == types.True; {
		if !weigh(b, it.Next()) {
			return false
		}
	}
	return true
}

// chargeText charges for the bytes of the operands that are text; the work on others does not
// depend on their size.
func chargeText(b *Budget, args []ref.Val) bool {
	for _, a := range args {
		if !b.take(1 + textLen(a)) {
			return false
		}
	}
	return true
}

// chargeAdd charges for text, or for the lists that a sum has as its parts: one more addition
// doubles them. Their elements are not copied, but for those that CEL adds in place: a loop adds
// one in each turn, and optMap has such a list in the hands of a user.
func chargeAdd(b *Budget, args []ref.Val) bool {
	before, after, ok := addends(args)
	switch {
	case ok:
		return b.take((len(partsOf(before)) + len(partsOf(after))) * unitsPerNode)
	case before != nil && after != nil && !b.take(max(0, sizeOf(after)-1)*unitsPerNode):
		return false
	}
	return chargeText(b, args)
}

// chargeIn charges for a comparison with every element of a list; a map is looked up in.
func chargeIn(b *Budget, args []ref.Val) bool {
	if _, ok := args[1].(traits.Mapper); ok {
		return weigh(b, args[0])
	}
	return weighAll(b, args)
}

// chargeElements charges for the elements of a list, but not for what is in them.
func chargeElements(b *Budget, args []ref.Val) bool {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return true
	}
	size, _ := list.Size().(types.Int)
	return b.take(int(size) * unitsPerNode)
}

// chargeJoin charges for the joined text: the elements, and a separator for each.
func chargeJoin(b *Budget, args []ref.Val) bool {
	list, ok := args[0].(traits.Lister)
	if !ok || !weigh(b, list) {
		return !ok
	}
	size, _ := list.Size().(types.Int)
	return len(args) < 2 || b.take(int(size)*textLen(args[1]))
}

// chargeReplace charges for the longest text that can come out.
func chargeReplace(b *Budget, args []ref.Val) bool {
	if len(args) < 3 {
		return true
	}
	text, was, now := textLen(args[0]), textLen(args[1]), textLen(args[2])
	return b.take(text + (text/max(1, was)+1)*now)
}

// chargeZone charges for a time zone, if the call names one.
func chargeZone(b *Budget, args []ref.Val) bool {
	return len(args) < 2 || b.take(unitsPerZone) && chargeText(b, args[1:])
}

// chargeSearch charges for a comparison at every position.
func chargeSearch(b *Budget, args []ref.Val) bool {
	if len(args) < 2 {
		return true
	}
	text, sought := textLen(args[0]), textLen(args[1])
	return b.take(text + text*sought/8)
}

func textLen(val ref.Val) int {
	switch v := val.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 0
}
