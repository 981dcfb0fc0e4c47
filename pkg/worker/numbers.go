// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// largestDouble is 2^53. A float64 has each whole number up to it, and not each beyond.
const largestDouble = "9007199254740992"

// decode is json.Unmarshal, which makes a float64 of a number where v has no type for it. Of a
// whole number that it may change so, this makes a json.Number, which is written back as it came.
// Fields of the type float64, and types with a method UnmarshalJSON, do with it what they do.
func decode(text []byte, v any) error {
	// A Decoder does not look at what comes after the first value.
	if !hasLargeWhole(text) || !json.Valid(text) {
		return json.Unmarshal(text, v)
	}
	var input any
	if err := decodeNumbers(text, &input); err != nil {
		return err
	}
	if err := decodeNumbers(text, v); err != nil {
		return err
	}
	return doubles{}.in(reflect.ValueOf(v), input)
}

// decodeNumbers is json.Unmarshal, with json.Number for each number that has no type.
func decodeNumbers(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(v)
}

// hasLargeWhole says whether JSON has a whole number beyond 2^53, or -2^53, that has neither
// fraction nor exponent. Of other text it may say anything.
func hasLargeWhole(text []byte) bool {
	for at := 0; at < len(text); {
		switch n := numberAt(text[at:]); {
		case isLargeWhole(text[at : at+n]):
			return true
		case n > 0:
			at += n
		case text[at] == '"':
			at += stringAt(text[at:])
		default:
			at++
		}
	}
	return false
}

// numberAt is the length of the number that text begins with; 0: it begins with none.
func numberAt(text []byte) int {
	if c := text[0]; c != '-' && (c < '0' || '9' < c) {
		return 0
	}
	rest := bytes.TrimLeft(text, "0123456789+-.eE")
	return len(text) - len(rest)
}

// stringAt is the length of the string that text begins with.
func stringAt(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

func isLargeWhole(number []byte) bool {
	digits := string(bytes.TrimPrefix(number, []byte("-")))
	if strings.ContainsAny(digits, "+-.eE") || len(digits) < len(largestDouble) {
		return false
	}
	return len(digits) > len(largestDouble) || digits > largestDouble
}
