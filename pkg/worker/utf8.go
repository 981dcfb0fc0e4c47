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

var marshaler = reflect.TypeFor[json.Marshaler]()

// allUTF8 says whether all strings of a value that encoding/json has encoded are UTF-8. Raw JSON,
// and what a method MarshalJSON makes, is taken as it is. It goes where encoding/json went, which
// ends.
func allUTF8(v reflect.Value) bool {
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
		return allUTF8(v.Elem())
	case reflect.Struct:
		return fieldsUTF8(v)
	case reflect.Map:
		return entriesUTF8(v)
	case reflect.Slice, reflect.Array:
		return v.Type().Elem().Kind() == reflect.Uint8 || elementsUTF8(v) // the most that bytes can be is large
	default:
		return true
	}
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

func fieldsUTF8(v reflect.Value) bool {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if hidden := !field.IsExported() && !field.Anonymous; hidden || field.Tag.Get("json") == "-" {
			continue
		}
		if !allUTF8(v.Field(i)) {
			return false
		}
	}
	return true
}

// entriesUTF8 looks at keys, too. encoding/json asks a key that is a string for no text.
func entriesUTF8(v reflect.Value) bool {
	for each := v.MapRange(); each.Next(); {
		key, ok := each.Key().String(), each.Key().Kind() == reflect.String
		if !ok {
			key, _ = textOf(each.Key())
		}
		if !utf8.ValidString(key) || !allUTF8(each.Value()) {
			return false
		}
	}
	return true
}

func elementsUTF8(v reflect.Value) bool {
	for i := range v.Len() {
		if !allUTF8(v.Index(i)) {
			return false
		}
	}
	return true
}
