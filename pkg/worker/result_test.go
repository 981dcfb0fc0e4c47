// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mutation: succeeded without its look at the bytes gives out what the operator refuses.
func TestResultOf(t *testing.T) {
	failed := func(code, message string) protocol.Result {
		return protocol.Result{Status: protocol.StatusFailed, Error: &protocol.ResultError{Code: code, Message: message}}
	}
	final := func(r protocol.Result) protocol.Result { r.Final = true; return r }
	for name, tc := range map[string]struct {
		output any
		err    error
		want   protocol.Result
	}{
		"no value is no output":                  {want: protocol.Result{Status: protocol.StatusSucceeded}},
		"raw JSON is the output":                 {output: json.RawMessage(`[1]`), want: protocol.Result{Status: protocol.StatusSucceeded, Output: []byte(`[1]`)}},
		"HTML goes out as it is":                 {output: map[string]string{"page": "<b>&</b>"}, want: protocol.Result{Status: protocol.StatusSucceeded, Output: []byte(`{"page":"<b>&</b>"}`)}},
		"so it does in raw JSON":                 {output: json.RawMessage(`"<&>"`), want: protocol.Result{Status: protocol.StatusSucceeded, Output: []byte(`"<&>"`)}},
		"a value without JSON form is final":     {output: math.NaN(), want: final(failed("InvalidOutput", "json: unsupported value: NaN"))},
		"an error wins over a value":             {output: 1, err: errors.New("e"), want: failed("Error", "e")},
		"a negative delay is none":               {err: RetryAfter(-time.Second, nil), want: protocol.Result{Status: protocol.StatusRetry, Error: &protocol.ResultError{Code: "Error", Message: "asked to be called again"}}},
		"final wins over a delay":                {err: Final(RetryAfter(time.Second, errors.New("e"))), want: final(failed("Error", "e"))},
		"an error formatted with %v is plain":    {err: fmt.Errorf("x: %v", RetryAfter(time.Second, errors.New("e"))), want: failed("Error", "x: e")}, //nolint:errorlint // what it loses
		"codes and messages are cut":             {err: Fail(strings.Repeat("c", 70), strings.Repeat("ü", 2000)), want: failed(strings.Repeat("c", 64), strings.Repeat("ü", 1024))},
		"a cut never leaves half of a character": {err: Fail("C", "x"+strings.Repeat("ü", 2000)), want: failed("C", "x"+strings.Repeat("ü", 1023))},
		"an output that is not UTF-8 is final":   {output: json.RawMessage("{\"name\":\"M\xfcller\"}"), want: final(failed("InvalidOutput", "the output is not UTF-8"))},
		"final of nil is nil":                    {err: Final(nil), want: protocol.Result{Status: protocol.StatusSucceeded}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, resultOf(tc.output, tc.err)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// mutation: message that escapes makes six bytes of each of these.
func TestAMessageHasHTMLAsItIs(t *testing.T) {
	m, err := message(task{}, "id", protocol.Result{Status: protocol.StatusSucceeded, Output: []byte(`"<&>"`)})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"status":"Succeeded","output":"<&>"}`; string(m.Data) != want {
		t.Errorf("got %s, want %s", m.Data, want)
	}
}

// mutation: millis that adds before it divides makes the longest durations 0, and so "at once".
func TestMillisRoundsUpAndNeverOverflows(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		math.MinInt64: 0, -1: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 1500 * time.Microsecond: 2,
		math.MaxInt64 - 999_999: 9_223_372_036_854, math.MaxInt64: 9_223_372_036_855,
	} {
		if got := millis(d); got != want {
			t.Errorf("%d ns: %d ms, want %d", d, got, want)
		}
	}
}

func FuzzParseTask(f *testing.F) {
	names := protocol.Names{Prefix: protocol.DefaultPrefix}
	good := protocol.JobID{RunUID: "u", Step: "s", Item: protocol.NoItem, Attempt: 1}
	f.Add("u/s/-/1", names.Job("a", good), names.Result(good), "17", "2026-11-20T10:15:00Z")
	f.Add("", "", "", "", "")
	f.Fuzz(func(t *testing.T, id, subject, reply, fence, deadline string) {
		h := nats.Header{}
		h.Set(protocol.HeaderMsgID, id)
		h.Set(protocol.HeaderReply, reply)
		h.Set(protocol.HeaderFence, fence)
		h.Set(protocol.HeaderDeadline, deadline)
		j, err := parseTask(names, "a", subject, h, nil, 1)
		if err != nil && !errors.Is(err, errJob) || err == nil && (j.ID.String() != id || names.Result(j.ID) != reply) {
			t.Errorf("%+v, %v", j, err)
		}
	})
}

func FuzzErrorText(f *testing.F) {
	f.Add("code", "message")
	f.Fuzz(func(t *testing.T, code, message string) {
		r := resultOf(nil, Fail(code, message))
		if len(r.Error.Code) > maxCode || len(r.Error.Message) > maxMessage || !utf8.ValidString(r.Error.Code+r.Error.Message) {
			t.Errorf("%+v", r.Error)
		}
	})
}
