// SPDX-License-Identifier: Apache-2.0

package results

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mutation: an output in another case, which is an unknown member, the first output instead of the
// last, a search for the output's text instead of its place, or no look at UTF-8 makes a case fail.
func TestALargeResultIsReadAsASmallOne(t *testing.T) {
	large := `[` + strings.Repeat("1,", largeResult) + `1]`
	text := `"` + strings.Repeat("é\\n\"", largeResult) + `"`
	for name, body := range map[string]string{
		"list":               `{"status":"Succeeded","output":` + large + `}`,
		"text, blanks":       ` { "output" : ` + text + ` , "status" : "Succeeded" } `,
		"null":               `{"status":"Succeeded","pad":` + large + `,"output":null}`,
		"key in capitals":    `{"status":"Succeeded","OutPut":` + large + `}`,
		"and a key as well":  `{"status":"Succeeded","output":7,"OutPut":` + large + `}`,
		"a key before it":    `{"status":"Succeeded","output":` + text + `,"OutPut":` + large + `}`,
		"escaped key":        `{"status":"Succeeded","\u006futput":` + large + `}`,
		"twice":              `{"output":` + large + `,"status":"Succeeded","output":` + text + `}`,
		"small one last":     `{"output":` + large + `,"status":"Succeeded","output":7}`,
		"also in a message":  `{"error":{"message":"` + large + `"},"output":` + large + `,"status":"Succeeded"}`,
		"long message":       `{"error":{"message":` + text + `},"status":"Failed"}`,
		"with a reference":   `{"status":"Succeeded","outputRef":{"name":"x"},"output":` + large + `}`,
		"no status":          `{"output":` + large + `}`,
		"not UTF-8":          `{"status":"Succeeded","output":"` + strings.Repeat("\xff", 2*largeResult) + `"}`,
		"text after it":      `{"status":"Succeeded","output":` + large + `}1`,
		"cut off":            `{"status":"Succeeded","output":` + large,
		"a list":             large,
		"of another type":    `{"status":1,"output":` + large + `}`,
		"control characters": `{"status":"Succeeded","output":"` + strings.Repeat("\x01", 2*largeResult) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			want, wantErr := protocol.DecodeResult([]byte(body))
			got, err := decodeResult([]byte(body))
			if !reflect.DeepEqual(got, want) && err == nil || (err == nil) != (wantErr == nil) || errors.Is(err, protocol.ErrResult) != errors.Is(wantErr, protocol.ErrResult) {
				t.Errorf("%.200v, %v\nwant %.200v, %v", got, err, want, wantErr)
			}
		})
	}
}
