// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// mutations: members that compares names as encoding/json does takes each like for what it is not.
// A wholeNumber without its UnmarshalJSON refuses the delays with a fraction and an exponent, and
// one without the bound makes another number of the longest delay. A reference that is read as an
// OutputRef refuses the size with a fraction.
func TestResultsAreDecoded(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want Result
	}{
		"the worker began":                 {`{"status":"Started"}`, Result{Status: StatusStarted}},
		"success with any output":          {`{"status":"Succeeded","output":[1,"a"]}`, Result{Status: StatusSucceeded, Output: json.RawMessage(`[1,"a"]`)}},
		"success without output":           {`{"status":"Succeeded"}`, Result{Status: StatusSucceeded}},
		"success with a reference":         {`{"status":"Succeeded","outputRef":{"name":"n","digest":"d","size":70000,"later":1}}`, Result{Status: StatusSucceeded, OutputRef: &OutputRef{"n", "d", 70000}}},
		"a size with a zero fraction":      {`{"status":"Succeeded","outputRef":{"name":"n","digest":"d","size":70000.0}}`, Result{Status: StatusSucceeded, OutputRef: &OutputRef{"n", "d", 70000}}},
		"a reference beside nulls":         {`{"output":null,"status":"Succeeded","error":null,"outputRef":{"name":"n","digest":"d","size":70000}}`, Result{Status: StatusSucceeded, OutputRef: &OutputRef{"n", "d", 70000}}},
		"an output beside nulls":           {`{"status":"Succeeded","output":7,"outputRef":null,"error":null,"final":null}`, Result{Status: StatusSucceeded, Output: json.RawMessage(`7`)}},
		"null for an output":               {`{"status":"Succeeded","output":null,"outputRef":null}`, Result{Status: StatusSucceeded, Output: json.RawMessage(`null`)}},
		"a failure":                        {`{"status":"Failed","error":{"code":"E","message":"m"}}`, Result{Status: StatusFailed, Error: &ResultError{"E", "m"}}},
		"a final failure":                  {`{"status":"Failed","error":{},"final":true}`, Result{Status: StatusFailed, Error: &ResultError{}, Final: true}},
		"not now":                          {`{"status":"Retry","retryAfterMillis":1500}`, Result{Status: StatusRetry, RetryAfterMillis: 1500}},
		"a delay with a zero fraction":     {`{"status":"Retry","retryAfterMillis":1500.0}`, Result{Status: StatusRetry, RetryAfterMillis: 1500}},
		"a delay with an exponent":         {`{"status":"Retry","retryAfterMillis":1.5e3}`, Result{Status: StatusRetry, RetryAfterMillis: 1500}},
		"a delay of less than nothing":     {`{"status":"Retry","retryAfterMillis":-0.0}`, Result{Status: StatusRetry}},
		"the longest delay":                {`{"status":"Retry","retryAfterMillis":9223372036854775807}`, Result{Status: StatusRetry, RetryAfterMillis: math.MaxInt64}},
		"no delay":                         {`{"status":"Retry","retryAfterMillis":null}`, Result{Status: StatusRetry}},
		"fields of a later version":        {`{"status":"Started","host":"a"}`, Result{Status: StatusStarted}},
		"an error beside its like":         {`{"status":"Succeeded","output":{"rows":3},"Error":""}`, Result{Status: StatusSucceeded, Output: json.RawMessage(`{"rows":3}`)}},
		"a log that is no output":          {`{"status":"Succeeded","output":1,"Output":"log","OUTPUTREF":{}}`, Result{Status: StatusSucceeded, Output: json.RawMessage(`1`)}},
		"only the like of an output":       {`{"status":"Succeeded","Output":"log"}`, Result{Status: StatusSucceeded}},
		"a long s":                         {`{"ſtatus":"Failed","status":"Started"}`, Result{Status: StatusStarted}},
		"likes in an error":                {`{"status":"Failed","error":{"code":"E","Code":7,"MESSAGE":[]}}`, Result{Status: StatusFailed, Error: &ResultError{Code: "E"}}},
		"likes in a reference":             {`{"status":"Succeeded","outputRef":{"name":"n","digest":"d","size":7,"Size":"7 B","NAME":"m"}}`, Result{Status: StatusSucceeded, OutputRef: &OutputRef{"n", "d", 7}}},
		"an escaped name":                  {`{"\u0073tatus":"Started"}`, Result{Status: StatusStarted}},
		"the last one of two":              {`{"status":"Started","status":"Succeeded"}`, Result{Status: StatusSucceeded}},
		"white space around":               {" {\"status\":\"Started\"}\r\n", Result{Status: StatusStarted}},
		"a delay that is not wanted today": {`{"status":"Retry"}`, Result{Status: StatusRetry}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeResult([]byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

// mutation: taking out any one check of DecodeResult or check makes a case fail.
func TestWhatIsNoResultIsRefused(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":                     "",
		"no JSON":                     "ok",
		"half an object":              `{"status":"Started"`,
		"two objects":                 `{"status":"Started"}{"status":"Started"}`,
		"a tail":                      `{"status":"Started"} x`,
		"an array":                    `[]`,
		"null":                        `null`,
		"no status":                   `{}`,
		"an unknown status":           `{"status":"Done"}`,
		"a name in capitals":          `{"Status":"Started"}`,
		"an error that is text":       `{"status":"Failed","error":"no"}`,
		"a status in small letters":   `{"status":"started"}`,
		"the reserved status":         `{"status":"Progress"}`,
		"a failure without an error":  `{"status":"Failed"}`,
		"a negative delay":            `{"status":"Retry","retryAfterMillis":-1}`,
		"an output and a reference":   `{"status":"Succeeded","output":"","outputRef":{"name":"n","digest":"d","size":1}}`,
		"a reference that is text":    `{"status":"Succeeded","outputRef":"n"}`,
		"a size with a fraction":      `{"status":"Succeeded","outputRef":{"size":1.5}}`,
		"a delay with a fraction":     `{"status":"Retry","retryAfterMillis":1.5}`,
		"a negative delay, .0":        `{"status":"Retry","retryAfterMillis":-1.0}`,
		"a delay that is text":        `{"status":"Retry","retryAfterMillis":"1500"}`,
		"a delay that is too long":    `{"status":"Retry","retryAfterMillis":9223372036854775808}`,
		"a delay that is far too big": `{"status":"Retry","retryAfterMillis":1e300}`,
		"an output that is not UTF-8": "{\"status\":\"Succeeded\",\"output\":\"\xff\"}",
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := DecodeResult([]byte(body)); !errors.Is(err, ErrResult) {
				t.Errorf("DecodeResult = %+v, %v; want ErrResult", r, err)
			}
		})
	}
}

// Whoever wrote a body must not choose how much is held, and said, of it.
//
// mutations: the status without a bound, or what encoding/json says of a number.
func TestLittleIsSaidOfALongBody(t *testing.T) {
	const n = 95 << 10
	for name, body := range map[string]string{
		"a status": `{"status":"` + strings.Repeat("\x7f", n) + `"}`,
		"a delay":  `{"status":"Retry","retryAfterMillis":` + strings.Repeat("1", n) + `}`,
		"a size":   `{"status":"Succeeded","outputRef":{"size":` + strings.Repeat("1", n) + `}}`,
		"a member": `{"status":"Succeeded","` + strings.Repeat("x", n) + `":1,}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := DecodeResult([]byte(body)); !errors.Is(err, ErrResult) || len(err.Error()) > 1<<10 {
				t.Errorf("an error of %d bytes: %.200s", len(err.Error()), err)
			}
		})
	}
}

func FuzzDecodeResult(f *testing.F) {
	f.Add([]byte(`{"status":"Succeeded","output":{"a":1}}`))
	f.Add([]byte(`{"status":"Retry","retryAfterMillis":1}`))
	f.Add([]byte(`{"status":"Retry","retryAfterMillis":1.5e3}`))
	f.Add([]byte("{\"status\":\"Succeeded\",\"output\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeResult(body)
		if err != nil {
			if !errors.Is(err, ErrResult) {
				t.Errorf("error %v does not wrap ErrResult", err)
			}
			return
		}
		if len(r.Output) > 0 && (!json.Valid(r.Output) || !utf8.Valid(r.Output)) {
			t.Errorf("output %q cannot be stored", r.Output)
		}
		encoded, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("encode %+v: %v", r, err)
		}
		again, err := DecodeResult(encoded)
		if err != nil {
			t.Fatalf("decode %s again: %v", encoded, err)
		}
		// Outputs are compared as the encoder writes them: it compacts, and escapes some letters.
		if second, err := json.Marshal(again); err != nil || string(second) != string(encoded) {
			t.Errorf("%s became %s, %v", encoded, second, err)
		}
	})
}
