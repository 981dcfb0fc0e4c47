package expr

import (
	"encoding/base64"
	"fmt"
	"math"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

var errOutput = fmt.Errorf("%w: the result has more than %d bytes", ErrTooLarge, MaxRenderedBytes)

// budget bounds what is made of CEL values. A CEL list can hold the same list many times over, so a small value can have an
// endless text; it must be refused while it is walked.
type budget struct{ left int }

// take spends n bytes.
func (b *budget) take(n int) error {
	if b.left -= n; b.left < 0 {
		return errOutput
	}
	return nil
}

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
	default:
		return nil, fmt.Errorf("a %s has no JSON form", typeName(val))
	}
}

func scalar(val ref.Val) (any, error) {
	if f, ok := val.(types.Double); ok && (math.IsNaN(float64(f)) || math.IsInf(float64(f), 0)) {
		return nil, fmt.Errorf("%v has no JSON form", float64(f))
	}
	return val.Value(), nil
}

func (b *budget) array(l traits.Lister) (any, error) {
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
		return "", fmt.Errorf("a %s has no text form", typeName(val))
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

func typeName(val ref.Val) string { return val.Type().TypeName() }
