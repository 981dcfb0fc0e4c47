// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	large    = json.Number("9007199254740993")
	largeOne = `,"large":` + string(large)
)

type (
	word string
	base struct{ Inner any }
	own  struct{ Is any }
	kept struct { // has one field of the name
		AMOUNT any
		Amount any
		Zero   zero `json:",omitzero"`
	}
	zero struct{ Is any }
	// node leads back to itself, as do values that are there before.
	node struct {
		Next  *node
		Value any
	}
	decodes struct {
		base
		ID      int64
		Amount  any `json:"amount"`
		Number  json.Number
		Raw     json.RawMessage
		Own     own
		Params  map[string]any
		Words   map[word]any
		Days    map[int8]any
		Nested  map[string][]any
		Pointer *any
		Array   [2]any
		Structs []struct{ A any }
		hidden  any
	}
)

func (zero) IsZero() bool { return true }

// UnmarshalJSON keeps numbers as text, which is what this type is for.
func (o *own) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	return d.Decode(&o.Is)
}

func decodeInto(t *testing.T, input string, v any) {
	t.Helper()
	if err := (Job{Input: json.RawMessage(input)}).Decode(v); err != nil {
		t.Fatal(err)
	}
}

// One large number made json.Number of all that have no type, so that a handler that took another
// one for a float64 went on with 0.
//
// mutation: numbers that stay as decode's Decoder has them make this fail.
func TestALargeNumberChangesNoOtherOne(t *testing.T) {
	var in struct {
		ID     int64
		Params map[string]any
	}
	decodeInto(t, `{"ID":1187654321098765432,"Params":{"amount":12.5}}`, &in)
	if amount, ok := in.Params["amount"].(float64); !ok || amount != 12.5 || in.ID != 1_187_654_321_098_765_432 {
		t.Errorf("got %#v", in)
	}
	var got map[string]any
	decodeInto(t, `{"orderID":9007199254740993,"amount":12.5,"list":[1,{"a":2}]}`, &got)
	want := map[string]any{"orderID": large, "amount": 12.5, "list": []any{1.0, map[string]any{"a": 2.0}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// mutations: a walk that leaves out one of the kinds below, that goes into a type with a method
// UnmarshalJSON, or that knows names of fields only as they are, makes this fail.
func TestNumbersWithoutATypeAreDoublesWhereverTheyAre(t *testing.T) {
	const input = `{"Inner":1,"id":2,"AMOUNT":3,"Number":4,"Raw":5,"Own":{"is":6},"Params":{"a":7},"Words":{"b":8},"Days":{"-9":9},` +
		`"Nested":{"c":[10]},"Pointer":11,"Array":[12,13,14],"Structs":[{"a":15},{"A":[16]}]}`
	var want, got decodes
	if err := json.Unmarshal([]byte(input), &want); err != nil {
		t.Fatal(err)
	}
	decodeInto(t, strings.TrimSuffix(input, "}")+largeOne+"}", &got)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(decodes{})); diff != "" {
		t.Error(diff)
	}
	if got.Amount != 3.0 {
		t.Errorf("got %#v", got)
	}
}

// What a handler has put into its value is its own, also where it leads back to itself, and where
// the maps in it are those of other jobs, too.
//
// mutations: a walk that goes by the value alone never ends, or changes what no input had; one that
// does not go where an interface has a pointer fails, too.
func TestWhatAValueHeldBeforeIsLeft(t *testing.T) {
	seven, held := json.Number("7"), any(0)
	common := map[string]any{"limit": seven}
	got := decodes{
		base: base{seven}, Amount: &held, Params: map[string]any{"old": seven, "common": common}, Array: [2]any{seven, seven},
		Pointer: new(any), hidden: seven,
	}
	*got.Pointer = &got
	decodeInto(t, `{"amount":1.5,"Params":{"new":2},"Nested":null`+largeOne+`}`, &got)
	if diff := cmp.Diff(map[string]any{"old": seven, "common": map[string]any{"limit": seven}, "new": 2.0}, got.Params); diff != "" {
		t.Error(diff)
	}
	alike := kept{AMOUNT: common, Amount: common}
	decodeInto(t, `{"amount":{"a":1},"unknown":[1],"zero":{"is":0}`+largeOne+`}`, &alike)
	if diff := cmp.Diff(kept{AMOUNT: map[string]any{"a": 1.0}, Amount: map[string]any{"limit": seven}, Zero: zero{0.0}}, alike); diff != "" {
		t.Error(diff)
	}
	if held != 1.5 || got.Inner != seven || got.hidden != seven || got.Array != [2]any{seven, seven} {
		t.Errorf("got %v, %#v", held, got)
	}
	ring := &node{Value: seven}
	ring.Next = &node{Next: ring, Value: seven}
	decodeInto(t, `{"next":{"next":{"value":1}}`+largeOne+`}`, ring)
	if ring.Value != 1.0 || ring.Next.Value != seven {
		t.Errorf("got %v, %v", ring.Value, ring.Next.Value)
	}
}

// mutation: the error of a number that no float64 has, left out, makes this fail.
func TestANumberThatNoDoubleHasIsAnInvalidInput(t *testing.T) {
	var typed struct{ A []any }
	for _, v := range []any{&map[string]any{}, &typed, new(any)} {
		err := Job{Input: json.RawMessage(`{"a":[1e400]` + largeOne + `}`)}.Decode(v)
		fail, coded := errors.AsType[*failureError](err)
		if _, final := errors.AsType[*finalError](err); !final || !coded || fail.code != "InvalidInput" ||
			!strings.Contains(err.Error(), "cannot unmarshal number 1e400 into Go value of type float64") {
			t.Errorf("%T: %v", v, err)
		}
	}
}
