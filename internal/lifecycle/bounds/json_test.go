// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"encoding/json"
	"testing"
)

func TestCanonicalJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":1.0,"a":[1e2,-0.0]}`: `{"a":[100,0],"b":1}`, `"<"`: `"\u003c"`, `9007199254740993`: `9007199254740993`, `null`: `null`,
		`12345678901234567890`: `12345678901234567000`,
	} {
		got, err := Canonical([]byte(in), nil)
		if err != nil || string(got) != want {
			t.Errorf("Canonical(%s) = %s, %v; want %s", in, got, err, want)
		}
		stored, err := json.Marshal(want)
		if n := StoredBytes(want); err != nil || n < len(stored) {
			t.Errorf("StoredBytes(%q) = %d, but it takes %d (%v)", want, n, len(stored), err)
		}
	}
	if _, err := Canonical([]byte(`{"a":`), nil); err == nil {
		t.Error("no error for what is no JSON")
	}
}
