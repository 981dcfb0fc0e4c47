package lifecycle

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/syncopate-dev/syncopate/internal/document"
)

// decodeJSON reads JSON as the API server does: whole numbers as int64, others as float64.
func decodeJSON(raw []byte) (any, error) {
	var v any
	if err := utiljson.Unmarshal(raw, &v); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	return v, nil
}

// parseJSON reads JSON as decodeJSON does, into a form that takes five times its text at most: for what others may send.
func parseJSON(raw []byte) (document.Value, error) {
	d, err := document.Parse(raw)
	if err != nil {
		return document.Value{}, fmt.Errorf("not JSON: %w", err)
	}
	return d.Root(), nil
}

// canonicalJSON is the form in which the API server hands a value back: sorted keys, 1.0 as 1. Without it an expression
// over an output could have one value before the write and another one after it.
func canonicalJSON(raw []byte) ([]byte, error) {
	v, err := parseJSON(raw)
	if err != nil {
		return nil, err
	}
	canonical, err := v.AppendCanonical(make([]byte, 0, len(raw)))
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	return canonical, nil
}

// rawOf is the JSON text of a field that may be absent.
func rawOf(e *runtime.RawExtension) []byte {
	if e == nil || len(e.Raw) == 0 {
		return []byte("{}")
	}
	return e.Raw
}

// storedBytes is the length of a string in JSON, at most.
func storedBytes(s string) int {
	n := 2
	for _, r := range s {
		switch {
		case r < ' ' || strings.ContainsRune("<>&\u2028\u2029\"\\", r):
			n += len(`\u0000`)
		default:
			n += utf8.RuneLen(r)
		}
	}
	return n
}
