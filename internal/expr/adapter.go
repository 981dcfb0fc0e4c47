// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/syncopate-dev/syncopate/internal/document"
)

// jsonAdapter makes CEL values of what JSON decodes to.
type jsonAdapter struct{}

// NativeToValue is CEL's interface; what it does not know becomes a CEL error value, which
// ends the evaluation.
func (a jsonAdapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case json.Number:
		return number(v)
	case document.Value:
		return documentValue(v)
	case undecodable:
		return types.WrapErr(v.err)
	case map[string]any:
		return inOrder(types.NewStringInterfaceMap(a, v))
	case []any:
		return types.NewDynamicList(a, v)
	default:
		return types.DefaultTypeAdapter.NativeToValue(value)
	}
}

// undecodable stands for raw JSON that is none: an error only where an expression looks at it.
type undecodable struct{ err error }

// decoded is v with all raw JSON in it decoded, numbers as CEL has them, and large maps in order;
// it copies what it changes.
func decoded(v any) any {
	switch v := v.(type) {
	case json.Number: // an index has to be a number of CEL's
		return number(v)
	case json.RawMessage:
		d, err := document.Parse(v, nil)
		if err != nil {
			return undecodable{fmt.Errorf("%w: %w", ErrTemplate, err)}
		}
		return d.Root()
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = decoded(e)
		}
		if len(m) > smallMap {
			return jsonAdapter{}.NativeToValue(m)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, e := range v {
			l[i] = decoded(e)
		}
		return l
	default:
		return v
	}
}

// number keeps all digits of whole numbers up to 64 bits.
func number(n json.Number) ref.Val {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return types.Int(i)
	}
	if u, err := strconv.ParseUint(n.String(), 10, 64); err == nil {
		return types.Uint(u)
	}
	f, err := n.Float64()
	if err != nil {
		return types.NewErr("number %s is out of range", shorten(n.String(), shownExpression))
	}
	return types.Double(f)
}

// decode reads one JSON document; numbers become json.Number. Its error wraps ErrTemplate.
func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: text after it", ErrTemplate)
	}
	return v, nil
}
