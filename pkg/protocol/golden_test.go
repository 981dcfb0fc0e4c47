// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/json"
	"testing"
)

func TestMessagesAreAsPublished(t *testing.T) {
	for want, v := range map[string]any{
		`{"action":"Cancel"}`:                Control{Action: ActionCancel},
		`{"action":"Cancel","jobs":["a/b"]}`: Control{Action: ActionCancel, Jobs: []string{"a/b"}},
		`{"status":"Started"}`:               Result{Status: StatusStarted},
		`{"status":"Succeeded","output":{}}`: Result{Status: StatusSucceeded, Output: json.RawMessage(`{}`)},
		`{"status":"Failed","error":{"code":"E","message":"m"},"final":true}`: Result{
			Status: StatusFailed, Error: &ResultError{Code: "E", Message: "m"}, Final: true,
		},
		`{"status":"Succeeded","outputRef":{"name":"n","digest":"sha256:d","size":1}}`: Result{
			Status: StatusSucceeded, OutputRef: &OutputRef{Name: "n", Digest: "sha256:d", Size: 1},
		},
		`{"status":"Retry","retryAfterMillis":1500}`: Result{Status: StatusRetry, RetryAfterMillis: 1500},
	} {
		got, err := json.Marshal(v)
		if err != nil || string(got) != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
}
