// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// mutation: decodeAnswer that takes the first data, or message, of several, that looks for the
// names as they are, or that takes data which are no text, makes a case fail.
func TestALargeAnswerIsReadAsASmallOne(t *testing.T) {
	data := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("part of an output ", largeAnswer)))
	one := func(message string) string { return `{"type":"t","message":` + message + `}` }
	large := `"data":"` + data + `"`
	for name, body := range map[string]string{
		"as it is":         one(`{"subject":"s","seq":7,` + large + `,"time":"2026-01-02T03:04:05.678Z","hdrs":"TkFUUy8xLjANCg0K"}`),
		"blanks":           " { \"message\" : {\n \"seq\" : 7 , " + large + " } } ",
		"capitals":         `{"Message":{"Seq":7,"DATA":"` + data + `"}}`,
		"escaped key":      one(`{"d\u0061ta":"` + data + `","seq":7}`),
		"escaped text":     one(`{"data":"` + strings.ReplaceAll(data, "a", `\u0061`) + `"}`),
		"data twice":       one(`{` + large + `,"data":"YQ=="}`),
		"in capitals last": one(`{` + large + `,"Data":"YQ=="}`),
		"null last":        one(`{` + large + `,"data":null}`),
		"message twice":    `{"message":{` + large + `},"message":{"data":"YQ=="}}`,
		"no message last":  `{"message":{` + large + `},"message":null}`,
		"numbers":          one(`{"data":[` + strings.Repeat("1,", largeAnswer) + `1]}`),
		"an object":        one(`{"data":{"a":"` + data + `"}}`),
		"no base64":        one(`{"data":"!` + data + `"}`),
		"cut off":          one(`{"seq":7,` + large + `}`)[:largeAnswer+100],
		"text after it":    one(`{`+large+`}`) + "1",
		"an error, too":    `{"error":{"code":404},"message":{` + large + `}}`,
		"an error":         `{"error":{"code":500,"description":"` + data + `"}}`,
		"large elsewhere":  one(`{"subject":"` + data + `","data":"YQ=="}`),
		"a list":           `[` + one(`{`+large+`}`) + `]`,
	} {
		t.Run(name, func(t *testing.T) {
			var want getResponse
			wantErr := json.Unmarshal([]byte(body), &want)
			got, err := decodeAnswer([]byte(body))
			if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("%.200v, %v\nwant %.200v, %v", got, err, want, wantErr)
			}
		})
	}
}

func BenchmarkDecodeAnswer(b *testing.B) {
	part := []byte(strings.Repeat(`{"a":1},`, 16<<10))
	body := []byte(`{"type":"t","message":{"subject":"s","seq":7,"data":"` + base64.StdEncoding.EncodeToString(part) + `"}}`)
	b.SetBytes(int64(len(part)))
	for b.Loop() {
		if _, err := decodeAnswer(body); err != nil {
			b.Fatal(err)
		}
	}
}
