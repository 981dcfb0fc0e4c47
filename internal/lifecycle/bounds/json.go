// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/internal/document"
)

// ParseJSON reads JSON as the API server does, into a form that takes five times its text at most:
// for what others may send. pause is called now and then if it is not nil: of large texts.
func ParseJSON(raw []byte, pause func()) (document.Value, error) {
	d, err := document.Parse(raw, pause)
	if err != nil {
		return document.Value{}, fmt.Errorf("not JSON: %w", err)
	}
	return d.Root(), nil
}

// Canonical is the form in which the API server hands a value back: sorted keys, 1.0 as 1. Without
// it an expression over an output could have one value before the write and another one after it.
func Canonical(raw []byte, pause func()) ([]byte, error) {
	v, err := ParseJSON(raw, pause)
	if err != nil {
		return nil, err
	}
	return CanonicalOf(v, pause)
}

// CanonicalOf is Canonical for JSON that was read.
func CanonicalOf(v document.Value, pause func()) ([]byte, error) {
	canonical, err := v.Canonical(pause)
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	return canonical, nil
}

// Plain is Canonical with < > & as they are: the form of outputs in the object store. A page of
// HTML does not count there as several times its size.
func Plain(raw []byte, pause func()) ([]byte, error) {
	v, err := ParseJSON(raw, pause)
	if err != nil {
		return nil, err
	}
	return PlainOf(v, document.MaxBytes, pause)
}

// PlainOf is Plain for JSON that was read, in so many bytes at most: else its error wraps
// document.ErrTooLarge.
func PlainOf(v document.Value, most int, pause func()) ([]byte, error) {
	plain, err := v.Plain(most, pause)
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	return plain, nil
}

// InStatus is a text of Plain as Canonical has it.
func InStatus(plain []byte) []byte {
	var b bytes.Buffer
	json.HTMLEscape(&b, plain)
	return b.Bytes()
}

// Raw is the JSON text of a field that may be absent.
func Raw(e *runtime.RawExtension) []byte {
	if e == nil || len(e.Raw) == 0 {
		return []byte("{}")
	}
	return e.Raw
}
