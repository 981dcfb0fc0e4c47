// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/internal/document"
)

// ParseJSON reads JSON as the API server does, into a form that takes five times its text at most:
// for what others may send.
func ParseJSON(raw []byte) (document.Value, error) {
	d, err := document.Parse(raw)
	if err != nil {
		return document.Value{}, fmt.Errorf("not JSON: %w", err)
	}
	return d.Root(), nil
}

// Canonical is the form in which the API server hands a value back: sorted keys, 1.0 as 1. Without
// it an expression over an output could have one value before the write and another one after it.
func Canonical(raw []byte) ([]byte, error) {
	v, err := ParseJSON(raw)
	if err != nil {
		return nil, err
	}
	canonical, err := v.AppendCanonical(make([]byte, 0, len(raw)))
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	return canonical, nil
}

// Raw is the JSON text of a field that may be absent.
func Raw(e *runtime.RawExtension) []byte {
	if e == nil || len(e.Raw) == 0 {
		return []byte("{}")
	}
	return e.Raw
}
