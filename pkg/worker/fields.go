// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// field is one that encoding/json writes of a struct: the rules are those of its documentation.
type field struct {
	name                string // of the member
	tagged              bool   // the tag has the name
	index               []int  // where it is, from the outermost struct on
	omitEmpty, omitZero bool
}

// embedded is a struct type whose fields count as those of the one that it is embedded in.
type embedded struct {
	typ   reflect.Type
	index []int
	often bool // it is there more than once at its depth, so that its fields hide each other
}

// fieldsOf are the fields of a struct type. A type that was looked at at a lesser depth is left
// out, so it ends for types that lead back to themselves.
func fieldsOf(t reflect.Type) []field {
	var found []field
	seen := map[reflect.Type]bool{}
	for level := []embedded{{typ: t}}; len(level) > 0; {
		var below []embedded
		for _, e := range level {
			if seen[e.typ] {
				continue
			}
			seen[e.typ] = true
			for i := range e.typ.NumField() {
				f, inner := e.field(i)
				switch {
				case inner != nil:
					below = with(below, embedded{typ: inner, index: f.index})
				case f.name != "" && e.often:
					found = append(found, f, f)
				case f.name != "":
					found = append(found, f)
				}
			}
		}
		level = below
	}
	return dominant(found)
}

// with adds a type to those of a depth, or marks it as being there more than once.
func with(level []embedded, e embedded) []embedded {
	if i := slices.IndexFunc(level, func(other embedded) bool { return other.typ == e.typ }); i >= 0 {
		level[i].often = true
		return level
	}
	return append(level, e)
}

// field is the i-th field, without a name if it is not written; inner is the struct whose fields
// take its place.
func (e embedded) field(i int) (f field, inner reflect.Type) {
	sf := e.typ.Field(i)
	t := sf.Type
	if t.Kind() == reflect.Pointer && t.Name() == "" {
		t = t.Elem()
	}
	promotes := sf.Anonymous && t.Kind() == reflect.Struct
	tag := sf.Tag.Get("json")
	if !sf.IsExported() && !promotes || tag == "-" {
		return field{}, nil
	}
	name, rest, _ := strings.Cut(tag, ",")
	options := strings.Split(rest, ",")
	f = field{
		name: name, tagged: isName(name), index: append(slices.Clone(e.index), i),
		omitEmpty: slices.Contains(options, "omitempty"), omitZero: slices.Contains(options, "omitzero"),
	}
	switch {
	case f.tagged:
	case promotes:
		return f, t
	default:
		f.name = sf.Name
	}
	return f, nil
}

// isName says whether encoding/json takes a name from a tag.
func isName(s string) bool {
	const others = " !#$%&()*+-./:;<=>?@[]^_{|}~"
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(others, r)
	})
}

// dominant are the fields that no other one of their name hides: the one that is least deep, and of
// several the one with the name in its tag. Two of that kind hide each other.
func dominant(found []field) []field {
	slices.SortStableFunc(found, func(a, b field) int { return cmp.Or(strings.Compare(a.name, b.name), a.rank(b)) })
	var kept []field
	for i, f := range found {
		first := i == 0 || found[i-1].name != f.name
		alone := i+1 == len(found) || found[i+1].name != f.name || f.rank(found[i+1]) != 0
		if first && alone {
			kept = append(kept, f)
		}
	}
	return kept
}

// rank compares two fields of a name: the lesser one hides the other.
func (f field) rank(other field) int {
	if c := cmp.Compare(len(f.index), len(other.index)); c != 0 || f.tagged == other.tagged {
		return c
	}
	if f.tagged {
		return -1
	}
	return 1
}

// of is the field of a struct, if encoding/json writes it.
func (f field) of(v reflect.Value) (at reflect.Value, written bool) {
	for _, i := range f.index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return reflect.Value{}, false
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	left := f.omitEmpty && isEmpty(v) || f.omitZero && isZero(v)
	return v, !left
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	default:
		return v.IsZero()
	}
}

// zeroer is asked by encoding/json whether a field with omitzero is left out.
type zeroer interface{ IsZero() bool }

// isZero asks the method of the field's type, not of what an interface has, and never a nil.
func isZero(v reflect.Value) bool {
	t, asked := v.Type(), reflect.TypeFor[zeroer]()
	switch {
	case t.Implements(asked):
		return isNil(v) || t.Kind() == reflect.Interface && isNil(v.Elem()) || saysZero(v)
	case !reflect.PointerTo(t).Implements(asked):
		return v.IsZero()
	case v.CanAddr():
		return saysZero(v.Addr())
	default:
		boxed := reflect.New(t)
		boxed.Elem().Set(v)
		return saysZero(boxed)
	}
}

func saysZero(v reflect.Value) bool {
	z, ok := reflect.TypeAssert[zeroer](v)
	return ok && z.IsZero()
}

func isNil(v reflect.Value) bool {
	return (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil()
}
