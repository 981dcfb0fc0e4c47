// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

var (
	unmarshaler   = reflect.TypeFor[json.Unmarshaler]()
	unmarshalText = reflect.TypeFor[interface{ UnmarshalText(text []byte) error }]()
)

// doubles makes a float64 of each json.Number that decodeNumbers wrote into an interface, unless it
// is a large whole number. It goes where the input went, as that is what the decoder wrote: what a
// value held before may lead back to itself, or be in use elsewhere. It keeps the fields of the
// structs that it came across.
type doubles map[reflect.Type][]field

// in changes the numbers in v, which has the input.
func (d doubles) in(v reflect.Value, input any) error {
	if !v.IsValid() || unmarshals(v) {
		return nil
	}
	members, _ := input.(map[string]any)
	elements, _ := input.([]any)
	switch v.Kind() {
	case reflect.Pointer:
		return d.in(v.Elem(), input)
	case reflect.Interface:
		return d.inInterface(v, input)
	case reflect.Struct:
		return d.inFields(v, members)
	case reflect.Map:
		return d.inEntries(v, members)
	case reflect.Slice, reflect.Array:
		return d.inElements(v, elements)
	default:
		return nil
	}
}

// unmarshals says whether encoding/json calls a method UnmarshalJSON of a value. It looks for one
// of the pointer only where the type has a name.
func unmarshals(v reflect.Value) bool {
	t := v.Type()
	if v.Kind() != reflect.Pointer && t.Name() != "" {
		t = reflect.PointerTo(t)
	}
	return t.Implements(unmarshaler)
}

// inInterface knows that encoding/json writes to what a pointer in an interface points at, and
// puts a new value in the place of all others.
func (d doubles) inInterface(v reflect.Value, input any) error {
	if v.IsNil() || v.Elem().Kind() == reflect.Pointer {
		return d.in(v.Elem(), input)
	}
	plain, err := untyped(v.Interface())
	if err == nil && v.Elem().Type() == reflect.TypeFor[json.Number]() {
		v.Set(reflect.ValueOf(plain))
	}
	return err
}

// untyped is a value that the decoder made, with the numbers of its lists and maps changed there.
func untyped(value any) (plain any, err error) {
	switch value := value.(type) {
	case json.Number:
		return double(value)
	case []any:
		for i := range value {
			if value[i], err = untyped(value[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for name, one := range value {
			if value[name], err = untyped(one); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

// double is what encoding/json makes of a number, and a large whole number itself.
func double(n json.Number) (any, error) {
	if isLargeWhole([]byte(n)) {
		return n, nil
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil {
		return nil, &json.UnmarshalTypeError{Value: "number " + string(n), Type: reflect.TypeFor[float64]()}
	}
	return f, nil
}

func (d doubles) inFields(v reflect.Value, members map[string]any) error {
	fields, known := d[v.Type()]
	if !known {
		fields = fieldsOf(v.Type())
		d[v.Type()] = fields
	}
	for name, member := range members {
		f, known := fieldNamed(fields, name)
		if !known {
			continue
		}
		f.omitZero = false // that is for writing
		if at, ok := f.of(v); ok {
			if err := d.in(at, member); err != nil {
				return err
			}
		}
	}
	return nil
}

// fieldNamed is the field that encoding/json takes for a name: the one that has it, else the first
// whose name differs in case alone.
func fieldNamed(all []field, name string) (found field, ok bool) {
	for _, f := range all {
		if f.name == name {
			return f, true
		}
		if strings.EqualFold(f.name, name) && (!ok || slices.Compare(f.index, found.index) < 0) {
			found, ok = f, true
		}
	}
	return found, ok
}

func (d doubles) inEntries(v reflect.Value, members map[string]any) error {
	for name, member := range members {
		key, err := keyOf(v.Type().Key(), name)
		if err != nil {
			return err
		}
		held := v.MapIndex(key)
		if !held.IsValid() {
			continue
		}
		entry := reflect.New(v.Type().Elem()).Elem()
		entry.Set(held)
		if err := d.in(entry, member); err != nil {
			return err
		}
		v.SetMapIndex(key, entry)
	}
	return nil
}

// keyOf is the key that encoding/json makes of a name.
func keyOf(t reflect.Type, name string) (reflect.Value, error) {
	if t.Kind() == reflect.String && !reflect.PointerTo(t).Implements(unmarshalText) {
		return reflect.ValueOf(name).Convert(t), nil
	}
	text, err := json.Marshal(map[string]bool{name: true})
	if err != nil {
		return reflect.Value{}, err
	}
	one := reflect.New(reflect.MapOf(t, reflect.TypeFor[bool]()))
	if err := json.Unmarshal(text, one.Interface()); err != nil {
		return reflect.Value{}, err
	}
	return one.Elem().MapKeys()[0], nil
}

func (d doubles) inElements(v reflect.Value, elements []any) error {
	for i := range min(v.Len(), len(elements)) {
		if err := d.in(v.Index(i), elements[i]); err != nil {
			return err
		}
	}
	return nil
}
