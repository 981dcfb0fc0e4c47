// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// encoding/json takes null for nothing to do, and a list for a slice.
//
// mutation: Decode without its look at the first letter takes the first two.
func TestAnInputThatIsNoObjectIsRefused(t *testing.T) {
	for _, input := range []string{"null", "[]", " \n null ", "", "7", `"{"`, "{", "x"} {
		for _, v := range []any{&struct{ A int }{}, &[]any{}, &map[string]any{}} {
			err := Job{Input: json.RawMessage(input)}.Decode(v)
			fail, coded := errors.AsType[*failureError](err)
			if _, final := errors.AsType[*finalError](err); !final || !coded || fail.code != "InvalidInput" {
				t.Errorf("%q: %v", input, err)
			}
		}
	}
	var got struct{ A int }
	if err := (Job{Input: json.RawMessage("\r\n\t {\"a\":7}")}).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(struct{ A int }{7}, got); diff != "" {
		t.Error(diff)
	}
}

func decoded(input string) (got map[string]any, err error) {
	err = Job{Input: json.RawMessage(input)}.Decode(&got)
	return got, err
}

// A float64 has not all whole numbers beyond 2^53: the next one came out in the place of what came
// in, and the step succeeded.
//
// mutations: Decode without its look at the numbers, one that looks for those above 2^63 only, and
// one that leaves out the sign make this fail.
func TestAWholeNumberBeyondDoublesGoesOutAsItCameIn(t *testing.T) {
	for _, n := range []string{
		"9007199254740993", "-9007199254740993", "10000000000000001", "9223372036854775807", "-9223372036854775808", "18446744073709551615",
	} {
		for _, input := range []string{`{"a":` + n + `}`, `{"a":[0.5,{"b":` + n + `}],"c":"\\\""}`, `{"a":0.25,"b":[` + n + `,7]}`} {
			got, err := decoded(input)
			if err != nil {
				t.Errorf("%s: %v", input, err)
			}
			if out, err := encode(got); err != nil || string(out) != input {
				t.Errorf("%s came out as %s, %v", input, out, err)
			}
		}
	}
	got, err := decoded(`{"id":9007199254740993}`)
	if _, changed := got["id"].(float64); changed || err != nil {
		t.Errorf("%v, %v: a handler that takes it for a float64 does not notice", got, err)
	}
}

// mutations: a look that does not know where a string ends, or where a fraction or an exponent is,
// one that takes 2^53 for beyond itself, and a decoder that leaves what comes after the object,
// make this fail.
func TestOtherInputsAreDecodedAsEncodingJSONDoes(t *testing.T) {
	for _, input := range []string{
		`{"a":9007199254740992,"b":-9007199254740992,"c":-0,"d":0,"e":7}`, `{"a":1e300}`, `{"a":1e400}`, `{"a":9007199254740993.0}`,
		`{"a":9007199254740993e0}`, `{"a":9007199254740993E+1}`, `{"a":0.9007199254740993}`, `{"a":1E9007199254740993}`,
		`{"a":"9007199254740993","n":7}`, `{"a":"\" 9007199254740993 ","n":7}`, `{"a":"\\","b":" 9007199254740993 ","n":7}`, `{"9007199254740993":7}`,
		`{"a":9007199254740993}x`, `{"a":9007199254740993} {}`, `{"a":9007199254740993`, `{"a":09007199254740993}`, `{"a":"9007199254740993`, `{"a":"\`,
		`{"a":-}`, `{"a":--9007199254740993}`,
	} {
		var want map[string]any
		wrong := json.Unmarshal([]byte(input), &want)
		got, err := decoded(input)
		if (err == nil) != (wrong == nil) || err != nil && !strings.Contains(err.Error(), wrong.Error()) {
			t.Errorf("%s: %v, want %v", input, err, wrong)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", input, diff)
		}
	}
}

// mutation: numbers that are kept as text in the fields of a type, too, make this fail.
func TestFieldsWithATypeAreDecodedAsEver(t *testing.T) {
	type typed struct {
		Signed   int64
		Unsigned uint64
		Double   float64
		Number   json.Number
		Raw      json.RawMessage
	}
	const n = "9007199254740993"
	var got typed
	input := `{"signed":` + n + `,"unsigned":` + n + `,"double":` + n + `,"number":` + n + `,"raw":` + n + `}`
	if err := (Job{Input: json.RawMessage(input)}).Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := typed{9_007_199_254_740_993, 9_007_199_254_740_993, 9_007_199_254_740_992, n, json.RawMessage(n)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
