package lifecycle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// decodeJSON reads JSON as the API server does: whole numbers as int64, others as float64.
func decodeJSON(raw []byte) (any, error) {
	var v any
	if err := utiljson.Unmarshal(raw, &v); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	return v, nil
}

// canonicalJSON is the form in which the API server hands a value back: sorted keys, 1.0 as 1. Without it an expression
// over an output could have one value before the write and another one after it.
func canonicalJSON(raw []byte) ([]byte, error) {
	const rounds = 3 // -0.0 needs two: "-0", "0"
	for range rounds {
		next, err := encodedAgain(raw)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(next, raw) {
			break
		}
		raw = next
	}
	return raw, nil
}

func encodedAgain(raw []byte) ([]byte, error) {
	v, err := decodeJSON(raw)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
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
