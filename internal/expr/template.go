// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// evaluation is what the expressions of one template share.
type evaluation struct {
	activation map[string]any
	output     room
}

func (e *evaluation) value(p *program) (any, error) {
	out, err := p.eval(e.activation)
	if err != nil {
		return nil, err
	}
	return e.output.plain(out)
}

// renderer walks a document and puts value's answers in the place of expressions.
type renderer struct {
	options
	value       func(*program) (any, error)
	check       bool // mistakes that do not keep it from being rendered count, too
	expressions int
	compiled    int // what it takes to compile them, in cost units
}

// bytes is the document with its expressions replaced, as JSON.
func (r *renderer) bytes(raw []byte) ([]byte, error) {
	doc, err := r.document(raw)
	if err != nil {
		return nil, err
	}
	out, err := encode(doc)
	if err != nil {
		return nil, err
	}
	if len(out) > MaxRenderedBytes {
		return nil, errOutput
	}
	return out, nil
}

func (r *renderer) document(raw []byte) (any, error) {
	if len(raw) == 0 {
		return map[string]any{}, nil
	}
	doc, err := decode(raw)
	if err != nil {
		return nil, err
	}
	return r.node(doc)
}

// node gives v with its expressions replaced. Keys go in order, so that of several mistakes always
// the same is reported.
func (r *renderer) node(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case string:
		return r.text(v)
	case []any:
		for i := range v {
			if v[i], err = r.node(v[i]); err != nil {
				return nil, err
			}
		}
		return v, nil
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if r.check && hasExpression(k) {
				return nil, wrong(k, errKey)
			}
			if v[k], err = r.node(v[k]); err != nil {
				return nil, err
			}
		}
		return v, nil
	default:
		return v, nil
	}
}

// hasExpression says whether a text would be evaluated, or be refused, as a value.
func hasExpression(s string) bool {
	parts, err := split(s)
	return err != nil || slices.ContainsFunc(parts, func(p part) bool { return p.expression })
}

func (r *renderer) text(s string) (any, error) {
	parts, err := split(s)
	if err != nil {
		return nil, err
	}
	if len(parts) == 1 && parts[0].expression {
		return r.expression(parts[0].text)
	}
	var out strings.Builder
	for _, p := range parts {
		if !p.expression {
			out.WriteString(p.text)
			continue
		}
		v, err := r.expression(p.text)
		if err != nil {
			return nil, err
		}
		text, err := interpolated(v)
		if err != nil {
			return nil, wrong(p.text, err)
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

func (r *renderer) expression(src string) (any, error) {
	if r.expressions++; r.expressions > MaxExpressions {
		return nil, fmt.Errorf("%w: more than %d expressions", ErrTooLarge, MaxExpressions)
	}
	p, err := r.compile(src)
	if err != nil {
		return nil, forTemplate(src, err)
	}
	r.compiled += p.cost
	v, err := r.value(p)
	if err != nil {
		return nil, wrong(src, err)
	}
	return v, nil
}

// interpolated is a value as a stretch of text.
func interpolated(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	b, err := encode(v)
	return string(b), err
}

// errKey refuses what somebody may take for an expression, and what would stay as it is.
var errKey = errors.New("an expression may stand in a value only, not in a key")

// encode writes JSON with sorted keys; < > & stay as they are, for the reader is a program,
// not a browser.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
