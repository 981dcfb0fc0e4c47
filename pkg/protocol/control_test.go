// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mutation: a member of another case that counts cancels nothing, or too little.
func TestControlMessagesAreDecoded(t *testing.T) {
	for body, want := range map[string]Control{
		`{"action":"Cancel"}`:                                         {Action: ActionCancel},
		`{"action":"Cancel","jobs":["a/b/-/1"],"since":1}`:            {Action: ActionCancel, Jobs: []string{"a/b/-/1"}},
		`{"Action":"Pause","action":"Cancel","Jobs":"all","jobs":[]}`: {Action: ActionCancel, Jobs: []string{}},
		`{"Action":"Cancel"}`:                                         {},
	} {
		got, err := DecodeControl([]byte(body))
		if err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
	for _, body := range []string{"", "[]", `{"action":1}`, `{"action":"Cancel","jobs":"all"}`, `{"action":"Cancel"}x`} {
		if c, err := DecodeControl([]byte(body)); !errors.Is(err, ErrControl) {
			t.Errorf("%s: %+v, %v", body, c, err)
		}
	}
}
