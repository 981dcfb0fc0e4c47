// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/document"
)

// A worker that says 2.0 means a number that may be 1.5 the next time. JSON, and whatever stores
// it, makes 2 of it: so what an expression does with it must not depend on that.
//
// mutation: guardedCall.Exec without alike makes this fail, and so does decoded that leaves numbers
// as they are, by the indices.
func TestArithmeticTakesWholeNumbersAndFractionsTogether(t *testing.T) {
	for expression, want := range map[string]map[string]string{ // by score
		"output.score * 1.1":                              {"2.5": "2.75", "2.0": "2.2", "2": "2.2"},
		"1.1 * output.score":                              {"2.5": "2.75", "2": "2.2"},
		"output.score + 0.5":                              {"1.5": "2", "2": "2.5"},
		"output.score - 0.5":                              {"1.5": "1", "2": "1.5"},
		"output.score / 2.0":                              {"1.5": "0.75", "3": "1.5"},
		"output.score / 2":                                {"1.5": "0.75", "3": "1"}, // two whole numbers divide as in CEL
		"output.score + 1":                                {"1.5": "2.5", "2": "3"},
		"1 - output.score":                                {"1.5": "-0.5", "2": "-1"},
		"output.score + output.big":                       {"1.5": "18446744073709552000"},
		"output.score * 1.1 > 2":                          {"1.5": "false", "2.0": "true"},
		"output.list[output.i]":                           {"1": `"b"`},
		"output.list[output.i + 1]":                       {"1": `"c"`},
		"output.list[output.i * 2.0]":                     {"1": `"c"`},
		"size(output.list) > output.i * 1.5":              {"1": "true"},
		"output.id":                                       {"1": "9007199254740993"},
		"output.id + 1":                                   {"1": "9007199254740994"},
		"'page ' + string(output.score * 1.0)":            {"2": `"page 2"`, "1.5": `"page 1.5"`},
		"[1, 2, 3].filter(x, x < output.score * 1.0)":     {"2": "[1]", "2.5": "[1,2]"},
		"output.list.map(s, output.score * 1.5)[0]":       {"2": "3"},
		"output.score % 2":                                {"3": "1"},
		"output.score == 2.0 && output.score in [1, 2.0]": {"2": "true", "2.0": "true"},
	} {
		for score, value := range want {
			t.Run(expression+" of "+score, func(t *testing.T) {
				raw := []byte(`{"score": ` + score + `, "i": 1, "id": 9007199254740993, "big": 18446744073709551615, "list": ["a", "b", "c"]}`)
				parsed, err := document.Parse(raw, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, inputs := range []any{json.RawMessage(raw), parsed.Root()} {
					got, err := Prepare(Vars{Inputs: inputs}).Template([]byte(`["${` + strings.ReplaceAll(expression, "output.", "inputs.") + `}"]`))
					if err != nil || string(got) != "["+value+"]" {
						t.Errorf("%T: %s, %v; want %s", inputs, got, err, value)
					}
				}
			})
		}
	}
}
