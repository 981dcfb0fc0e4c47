// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"strings"
	"testing"
)

func TestAJobIDIsReadAsItWasWritten(t *testing.T) {
	for name, id := range map[string]JobID{
		"without an item": {RunUID: "0f8fad5b-d9cb-469f-a165-70867728950e", Step: "fetch-all", Item: NoItem, Attempt: 1},
		"with an item":    {RunUID: "a", Step: "s", Item: "42", Attempt: 2147483647},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseJobID(id.String())
			if err != nil || got != id {
				t.Errorf("ParseJobID(%s) = %+v, %v", id, got, err)
			}
		})
	}
}

// mutation: taking out any one check of parseTokens makes a case fail.
func TestOtherSpellingsAreNoJobIDs(t *testing.T) {
	for name, s := range map[string]string{
		"nothing":                     "",
		"three parts":                 "u/s/-",
		"five parts":                  "u/s/-/1/2",
		"an empty run UID":            "/s/-/1",
		"a run UID with a dot":        "a.b/s/-/1",
		"a wildcard":                  "*/s/-/1",
		"a long run UID":              strings.Repeat("a", 65) + "/s/-/1",
		"a step in capitals":          "u/S/-/1",
		"a long step":                 "u/" + strings.Repeat("a", 41) + "/-/1",
		"an item with leading zeros":  "u/s/01/1",
		"a negative item":             "u/s/-1/1",
		"a large item":                "u/s/1000000/1",
		"attempt 0":                   "u/s/-/0",
		"a negative attempt":          "u/s/-/-1",
		"attempt with a leading zero": "u/s/-/01",
		"attempt with a sign":         "u/s/-/+1",
		"an attempt beyond int32":     "u/s/-/2147483648",
		"a line break at the end":     "u/s/-/1\n",
		"a line break in the run UID": "u\n/s/-/1",
	} {
		t.Run(name, func(t *testing.T) {
			if id, err := ParseJobID(s); !errors.Is(err, ErrJobID) {
				t.Errorf("ParseJobID(%q) = %+v, %v; want ErrJobID", s, id, err)
			}
		})
	}
}

func FuzzParseJobID(f *testing.F) {
	f.Add("u/s/-/1")
	f.Add("u/s/01/+1")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseJobID(s)
		if err != nil {
			if !errors.Is(err, ErrJobID) {
				t.Errorf("error %v does not wrap ErrJobID", err)
			}
			return
		}
		if id.String() != s { // two spellings of one job would be two Msg-Ids
			t.Errorf("%q was read as %s", s, id)
		}
		if strings.ContainsAny(strings.Join(id.tokens(), ""), ".*> \r\n") {
			t.Errorf("%q does not fit in a subject", s)
		}
	})
}
