// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

var errOutput = fmt.Errorf("%w: the result has more than %d bytes", ErrTooLarge, MaxRenderedBytes)

// room bounds what is made of CEL values. A CEL list can hold the same list many times over, so a
// small value can have an endless text; it must be refused while it is walked.
type room struct {
	left   int // bytes
	memory int // bytes that the plain values may still take
	depth  int // of lists and maps around what is looked at
}

// What plain values take in memory, in bytes, at least as much as they do.
const (
	valueMemory  = 24  // in a list or alone, with the number that it refers to
	textMemory   = 32  // beside its bytes
	listMemory   = 48  // beside its elements
	objectMemory = 48  // empty
	groupMemory  = 320 // of a map, for each eight keys
	keysPerGroup = 7   // that it holds before the map grows
)

var errMemory = fmt.Errorf("%w: the values take more than %d bytes of memory", ErrTooLarge, MaxListMemory)

// hold spends n bytes of memory.
func (b *room) hold(n int) error {
	if b.memory -= n; b.memory < 0 {
		return errMemory
	}
	return nil
}

// objectBytes is what a map with some keys takes, without the keys' text and the values. Maps
// double, so half of one may be empty.
func objectBytes(keys int) int {
	if keys == 0 {
		return objectMemory
	}
	return objectMemory + groupMemory*(1+2*(keys-1)/keysPerGroup)
}

// MemoryOf is about what a plain value takes in memory, in bytes: an item of a list
// that Scope.List gave.
func MemoryOf(v any) int {
	switch v := v.(type) {
	case string:
		return valueMemory + textMemory + len(v)
	case []any:
		n := valueMemory + listMemory
		for _, e := range v {
			n += MemoryOf(e)
		}
		return n
	case map[string]any:
		n := valueMemory + objectBytes(len(v))
		for k, e := range v {
			n += textMemory + len(k) + MemoryOf(e)
		}
		return n
	default:
		return valueMemory
	}
}

// take spends n bytes.
func (b *room) take(n int) error {
	if b.left -= n; b.left < 0 {
		return errOutput
	}
	return nil
}

// enter goes into a list or map.
func (b *room) enter() error {
	if b.depth++; b.depth > MaxDepth {
		return fmt.Errorf("%w: lists and maps are nested deeper than %d", ErrTooLarge, MaxDepth)
	}
	return nil
}

func (b *room) leave() { b.depth-- }

// plain makes of a CEL value what encoding/json writes as intended.
func (b *room) plain(val ref.Val) (any, error) {
	val = unwrapOptional(val)
	if err := errors.Join(b.take(1), b.hold(valueMemory)); err != nil {
		return nil, err
	}
	switch v := val.(type) {
	case types.Null:
		return nil, nil
	case types.Bool, types.Int, types.Uint, types.Double:
		return scalar(v)
	case types.String:
		return string(v), errors.Join(b.take(len(v)), b.hold(textMemory+len(v)))
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(v), b.take(base64.StdEncoding.EncodedLen(len(v)))
	case types.Timestamp, types.Duration:
		return textOf(v)
	case traits.Mapper:
		return b.object(v)
	case traits.Lister:
		return b.array(v)
	case *types.Err: // raw JSON that is none, in a list or map
		return nil, errors.New(oneLine(v.Error())) // errtext: CEL says it in several lines
	default:
		return nil, fmt.Errorf("%s has no JSON form", article(kind(val)))
	}
}

func scalar(val ref.Val) (any, error) {
	if f, ok := val.(types.Double); ok && (math.IsNaN(float64(f)) || math.IsInf(float64(f), 0)) {
		return nil, fmt.Errorf("%v has no JSON form", float64(f))
	}
	return val.Value(), nil
}

func (b *room) array(l traits.Lister) (any, error) {
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.leave()
	if size, _ := l.Size().(types.Int); int(size) > b.left { // each element takes a byte at least
		return nil, errOutput
	}
	if err := b.hold(listMemory); err != nil {
		return nil, err
	}
	list := []any{}
	for it := l.Iterator(); it.HasNext() == types.True; {
		v, err := b.plain(it.Next())
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func (b *room) object(m traits.Mapper) (any, error) {
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.leave()
	size, _ := m.Size().(types.Int)
	if int(size) > b.left {
		return nil, errOutput
	}
	if err := b.hold(objectBytes(int(size))); err != nil {
		return nil, err
	}
	object := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, err := textOf(key)
		if err != nil {
			return nil, err
		}
		if _, twice := object[name]; twice {
			return nil, fmt.Errorf("two keys of a map are %q as text", name)
		}
		if err := errors.Join(b.take(len(name)+1), b.hold(textMemory+len(name))); err != nil {
			return nil, err
		}
		if object[name], err = b.plain(m.Get(key)); err != nil {
			return nil, err
		}
	}
	return object, nil
}

// textOf is what string() gives in CEL.
func textOf(val ref.Val) (string, error) {
	text, ok := val.ConvertToType(types.StringType).(types.String)
	if !ok {
		return "", fmt.Errorf("%s has no text form", article(kind(val)))
	}
	return string(text), nil
}

// unwrapOptional is the value in an optional, or null if there is none.
func unwrapOptional(val ref.Val) ref.Val {
	for {
		o, ok := val.(*types.Optional)
		switch {
		case !ok:
			return val
		case !o.HasValue():
			return types.NullValue
		}
		val = o.GetValue()
	}
}

// kind is the type of a value by the name that people write for it.
func kind(val ref.Val) string {
	switch name := val.Type().TypeName(); name {
	case "null_type":
		return "null"
	case "optional_type":
		return "optional"
	default:
		return strings.ToLower(name[strings.LastIndexByte(name, '.')+1:]) // google.protobuf.Timestamp
	}
}

// article puts a or an before a kind; there is only one null.
func article(kind string) string {
	switch {
	case kind == "null":
		return kind
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "opt"):
		return "an " + kind
	default:
		return "a " + kind
	}
}
