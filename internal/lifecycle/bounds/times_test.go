// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the API server took can be read. It has a problem, or can be written, as can what
// stands for it.
//
// mutations: a bound of YearProblem left out, the year of the zone in place of that of UTC in
// YearProblem or in Writable, a case of Writable left out, or one that gives a fine time make
// this fail.
func TestATimeThatCannotBeWrittenHasAProblem(t *testing.T) {
	for text, want := range map[string]struct{ fine, writable bool }{
		"2000-01-01T00:00:00Z":      {true, true},
		"2026-11-28T12:00:00+02:00": {true, true},
		"9999-12-31T23:59:59.5Z":    {true, true},
		"9999-12-31T23:59:59+12:00": {true, true},
		"9999-12-31T23:59:59-00:01": {false, false},
		"9999-12-31T23:59:59-12:00": {false, false},
		"1999-12-31T23:59:59Z":      {false, true},
		"2000-01-01T00:00:00+00:01": {false, true},
		"0000-01-01T00:00:00Z":      {false, true},
		"0000-01-01T00:00:00+12:00": {false, false},
	} {
		is, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		if problem := YearProblem(is); (problem == "") != want.fine {
			t.Errorf("%s: %q", text, problem)
		}
		written := Writable(is)
		if written.Equal(is) != want.writable {
			t.Errorf("%s is written as %s", text, written)
		}
		data, err := metav1.NewTime(written).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var back metav1.Time
		if err := back.UnmarshalJSON(data); err != nil || !back.Time.Equal(written.Truncate(time.Second)) {
			t.Errorf("%s: %s is read as %s, %v", text, data, back, err)
		}
	}
}
