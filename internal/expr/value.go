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

// budget bounds what is made of CEL values. A CEL list can hold the same list many times over, so a small value can have an
// endless text; it must be refused while it is walked.
type budget struct {
	left  int // bytes
	depth int // of lists and maps around what is looked at
}

// take spends n bytes.
func (b *budget) take(n int) error {
	if b.left -= n; b.left < 0 {
		return errOutput
	}
	return nil
}

// enter goes into a list or map.
func (b *budget) enter() error {
	if b.depth++; b.depth > MaxDepth {
		return fmt.Errorf("%w: lists and maps are nested deeper than %d", ErrTooLarge, MaxDepth)
	}
	return nil
}

func (b *budget) leave() { b.depth-- }

// plain makes of a CEL value what encoding/json writes as intended.
func (b *budget) plain(val ref.Val) (any, error) {
	val = unwrapOptional(val)
	if err := b.take(1); err != nil {
		return nil, err
	}
	switch v := val.(type) {
	case types.Null:
		return nil, nil
	case types.Bool, types.Int, types.Uint, types.Double:
		return scalar(v)
	case types.String:
		return string(v), b.take(len(v))
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(v), b.take(base64.StdEncoding.EncodedLen(len(v)))
	case types.Timestamp, types.Duration:
		return textOf(v)
	case traits.Mapper:
		return b.object(v)
	case traits.Lister:
		return b.array(v)
	case *types.Err: // raw JSON that is none, in a list or map
		return nil, errors.New(oneLine(v.Error()))
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

func (b *budget) array(l traits.Lister) (any, error) {
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.leave()
	if size, _ := l.Size().(types.Int); int(size) > b.left { // each element takes a byte at least
		return nil, errOutput
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

func (b *budget) object(m traits.Mapper) (any, error) {
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.leave()
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
		if err := b.take(len(name)); err != nil {
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
