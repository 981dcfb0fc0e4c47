// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"errors"
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
