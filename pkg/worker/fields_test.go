// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Ring and Link lead back to each other, by fields that encoding/json leaves out.
type Ring struct {
	*Link

	Name string
}

// Link is the other one.
type Link struct {
	*Ring

	Other string
}

// Shadowed has a field that another one of this name hides.
type Shadowed struct {
	Name string
	Next *Shadowing `json:"next"`
}

// Shadowing is what hides it.
type Shadowing struct {
	Shadowed

	Name string
	Mine string `json:"next"`
}

type twins struct {
	Shadowed
	Second
}

// Second has the same name at the same depth, of which encoding/json writes none.
type Second struct{ Name string }

// Left and Right have a struct each, whose fields hide each other.
type Left struct{ Second }

// Right is as Left.
type Right struct{ Second }

type twice struct {
	Left
	Right
}

// blank is a text of its own that is zero.
type blank string

func (blank) IsZero() bool                   { return true }
func (b blank) MarshalText() ([]byte, error) { return []byte(notUTF8 + b), nil }

// letter is a byte with a text of its own.
type letter byte

func (l letter) MarshalText() ([]byte, error) { return []byte{byte(l)}, nil }

// Of a good output the escape alone is in the JSON, and what encoding/json leaves out is not looked
// at. It leads back in some types, for which there is no end.
//
// mutations: a look at embedded types that were there before, at fields that are hidden, at those
// that are omitted.
func TestWhatIsNotWrittenIsNotLookedAt(t *testing.T) {
	escaped := json.RawMessage(`"\ufffd"`)
	ring := &Ring{Name: "a", Link: &Link{Other: "b"}}
	ring.Link.Ring = ring
	hiding := &Shadowing{Mine: "m", Shadowed: Shadowed{Name: notUTF8}}
	hiding.Next = hiding
	for name, output := range map[string]any{
		"types that lead back": ring, "a hidden field": hiding, "fields that hide each other": twins{Shadowed{Name: notUTF8}, Second{notUTF8}},
		"fields of a type that is there twice": twice{Left{Second{notUTF8}}, Right{}},
		"what is empty": struct {
			A blank `json:",omitempty"`
		}{},
		"what is zero": struct {
			A blank     `json:",omitzero"`
			B *blank    `json:",omitzero"`
			C time.Time `json:",omitzero"`
		}{A: "a"},
	} {
		if got := resultOf([]any{output, escaped}, nil); got.Status != protocol.StatusSucceeded {
			t.Errorf("%s: %+v, %v", name, got, got.Error)
		}
	}
	ring.Other = notUTF8
	for name, output := range map[string]any{
		"a field of types that lead back": ring, "letters": []letter{0xff}, "a field beside a hidden one": Shadowing{Mine: notUTF8},
	} {
		if got := resultOf(output, nil); got.Status != protocol.StatusFailed {
			t.Errorf("%s: %s", name, got.Output)
		}
	}
}

// tags are those of random fields: few names, so that they meet, and some that are none.
var tags = []string{"", "", "", `json:"A"`, `json:"B"`, `json:"C,omitempty"`, `json:",omitempty"`, `json:",omitzero"`, `json:"-"`, `json:"-,"`, `json:"a'b"`, `json:"B,string"`}

// randomType is a type with strings, often a struct, in which names meet at all depths.
func randomType(r *rand.Rand, depth int) reflect.Type {
	text := reflect.TypeFor[string]()
	if depth == 0 {
		return text
	}
	switch r.IntN(8) {
	case 0:
		return reflect.PointerTo(randomType(r, depth-1))
	case 1:
		return reflect.SliceOf(randomType(r, depth-1))
	case 2:
		return reflect.MapOf(text, randomType(r, depth-1))
	case 3:
		return text
	default:
		return randomStruct(r, depth)
	}
}

func randomStruct(r *rand.Rand, depth int) reflect.Type {
	var fields []reflect.StructField
	for _, name := range []string{"A", "B", "C", "D"}[:1+r.IntN(4)] {
		f := reflect.StructField{Name: name, Type: randomType(r, depth-1), Tag: reflect.StructTag(tags[r.IntN(len(tags))])}
		if depth > 1 && r.IntN(2) == 0 {
			f.Type, f.Anonymous = randomStruct(r, depth-1), true
			if r.IntN(3) == 0 {
				f.Type = reflect.PointerTo(f.Type)
			}
		}
		fields = append(fields, f)
	}
	return reflect.StructOf(fields)
}

// fill puts texts in, of which one in so many is not UTF-8; 0: none.
func fill(r *rand.Rand, v reflect.Value, oneIn int) {
	switch v.Kind() {
	case reflect.String:
		v.SetString([]string{"", "a", "\ufffd"}[r.IntN(3)])
		if oneIn > 0 && r.IntN(oneIn) == 0 {
			v.SetString(notUTF8)
		}
	case reflect.Pointer:
		if r.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), oneIn)
		}
	case reflect.Struct:
		for _, f := range v.Fields() {
			fill(r, f, oneIn)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(3), 3))
		for i := range v.Len() {
			fill(r, v.Index(i), oneIn)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key, oneIn)
			fill(r, value, oneIn)
			v.SetMapIndex(key, value)
		}
	default:
		panic(fmt.Sprint("no texts in ", v.Type()))
	}
}

// The look is what encoding/json did: an output is refused where it put other letters,
// and nowhere else.
//
// mutations: any of the rules of the fields, as that of tags, of depth or of what is there twice.
func TestTheLookAtStringsIsWhereTheEncoderWas(t *testing.T) {
	const seed, types = 1, 1_000
	r := rand.New(rand.NewPCG(seed, seed))
	bad := 0
	for range types {
		v := reflect.New(randomType(r, 4)).Elem()
		fill(r, v, r.IntN(12))
		body, err := json.Marshal(v.Interface())
		if err != nil {
			t.Fatal(err)
		}
		want := !bytes.Contains(body, []byte(replaced))
		if got := allUTF8(reflect.ValueOf(v.Interface())); got != want {
			t.Fatalf("%v of type %v is %s: it is UTF-8: %v, and should be %v", v, v.Type(), body, got, want)
		}
		if !want {
			bad++
		}
	}
	if bad < types/10 || bad > types*9/10 {
		t.Errorf("%d of %d were bad: there is nothing to tell apart", bad, types)
	}
}
