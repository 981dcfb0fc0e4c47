// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding"
	"encoding/json"
	"reflect"
	"unicode/utf8"
)

// replaced is what encoding/json writes for a byte of a string that is none of a letter. A string
// that has this letter itself has it as it is; in raw JSON the escape is as good as any other. So
// where it is, the strings are looked through.
const replaced = `\ufffd`

var (
	marshaler = reflect.TypeFor[json.Marshaler]()
	texter    = reflect.TypeFor[encoding.TextMarshaler]()
)

// allUTF8 says whether all strings of a value that encoding/json has encoded are UTF-8. Raw JSON,
// and what a method MarshalJSON makes, is taken as it is. It goes where encoding/json went, which
// ends, and nowhere else: what was not written may lead back, and is not what anybody gets.
func allUTF8(v reflect.Value) bool { return look{}.all(v) }

// look keeps the fields of the structs that it came across.
type look map[reflect.Type][]field

func (l look) all(v reflect.Value) bool {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if !v.IsValid() || marshals(v) {
		return true
	}
	if text, ok := textOf(v); ok {
		return utf8.ValidString(text)
	}
	switch v.Kind() {
	case reflect.Pointer:
		return l.all(v.Elem())
	case reflect.Struct:
		return l.fields(v)
	case reflect.Map:
		return l.entries(v)
	case reflect.Slice, reflect.Array:
		return bytesOnly(v.Type().Elem()) || l.elements(v) // the most that bytes can be is large
	default:
		return true
	}
}

// bytesOnly says that elements of a type are bytes without a text of their own.
func bytesOnly(t reflect.Type) bool {
	return t.Kind() == reflect.Uint8 && !reflect.PointerTo(t).Implements(texter)
}

// marshals says whether a value has a method MarshalJSON that encoding/json calls.
func marshals(v reflect.Value) bool {
	return v.Type().Implements(marshaler) || v.CanAddr() && reflect.PointerTo(v.Type()).Implements(marshaler)
}

// textOf is what a value writes as a string: itself, or what its method MarshalText says.
func textOf(v reflect.Value) (text string, ok bool) {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return "", false
	}
	if v.CanAddr() && v.Kind() != reflect.Pointer {
		v = v.Addr() // MarshalText may be one of the pointer
	}
	if v.CanInterface() {
		if m, marshals := reflect.TypeAssert[encoding.TextMarshaler](v); marshals {
			b, err := m.MarshalText()
			return string(b), err == nil
		}
	}
	v = reflect.Indirect(v)
	return v.String(), v.Kind() == reflect.String
}

func (l look) fields(v reflect.Value) bool {
	written, known := l[v.Type()]
	if !known {
		written = fieldsOf(v.Type())
		l[v.Type()] = written
	}
	for _, f := range written {
		if at, ok := f.of(v); ok && !l.all(at) {
			return false
		}
	}
	return true
}

// entries looks at keys, too. encoding/json asks a key that is a string for no text.
func (l look) entries(v reflect.Value) bool {
	for each := v.MapRange(); each.Next(); {
		key, ok := each.Key().String(), each.Key().Kind() == reflect.String
		if !ok {
			key, _ = textOf(each.Key())
		}
		if !utf8.ValidString(key) || !l.all(each.Value()) {
			return false
		}
	}
	return true
}

func (l look) elements(v reflect.Value) bool {
	for i := range v.Len() {
		if !l.all(v.Index(i)) {
			return false
		}
	}
	return true
}
