// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const notUTF8 = "M\xfcller"

type named struct {
	Name   string         `json:"name,omitempty"`
	Hidden string         `json:"-"`
	More   map[string]any `json:"more,omitempty"`
	hidden string
}

type embedding struct{ named }

// texts has a text of its own.
type texts struct{ text string }

func (x texts) MarshalText() ([]byte, error) { return []byte(x.text), nil }

// forms has a form of its own, which is taken as it is.
type forms struct{ text string }

func (x *forms) MarshalJSON() ([]byte, error) { return json.Marshal(x.text) }

// encoding/json would put other letters in the place of bytes that are none.
//
// mutations: succeeded without its look at the strings; a look that leaves out one kind of value;
// one that goes by the escape alone has what is good, and has this escape, for bad.
func TestAStringThatIsNotUTF8IsNoOutput(t *testing.T) {
	const escaped = `{"a":"\ufffd"}`
	bad := notUTF8
	for name, output := range map[string]any{
		"a string": notUTF8, "a pointer": &bad, "a list": []any{1, notUTF8}, "an array": [1]string{notUTF8}, "strings": []string{"a", notUTF8},
		"a key": map[string]int{notUTF8: 1}, "a value": map[int]any{1: notUTF8}, "a field": named{Name: notUTF8}, "deep": &named{More: map[string]any{"a": []named{{Name: notUTF8}}}},
		"an embedded field": embedding{named{Name: notUTF8}}, "a text": texts{notUTF8}, "a text that is a key": map[texts]int{{notUTF8}: 1},
		"a string beside raw JSON": []any{json.RawMessage(escaped), notUTF8},
	} {
		got := resultOf(output, nil)
		if e := got.Error; got.Status != protocol.StatusFailed || !got.Final || e == nil || e.Code != CodeInvalidOutput || e.Message != "a string of the output is not UTF-8" {
			t.Errorf("%s: %+v, %s, %v", name, got, got.Output, got.Error)
		}
	}
	for name, output := range map[string]any{
		"raw JSON": json.RawMessage(escaped), "raw JSON in a map": map[string]any{"a": json.RawMessage(escaped)}, "the letter": "\ufffd", "the escape": `\ufffd`,
		"bytes": []any{[]byte(notUTF8), json.RawMessage(escaped)}, "hidden fields": []any{named{Hidden: notUTF8, hidden: notUTF8}, json.RawMessage(escaped)},
		"nothing":           []any{nil, (*named)(nil), (*forms)(nil), map[string]any(nil), time.Time{}, json.RawMessage(escaped)},
		"a form of its own": &forms{notUTF8}, "forms of their own": []forms{{notUTF8}},
	} {
		if got := resultOf(output, nil); got.Status != protocol.StatusSucceeded {
			t.Errorf("%s: %+v, %v", name, got, got.Error)
		}
	}
}
