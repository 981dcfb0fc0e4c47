// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// fact is one line below the command decide: a kind, words, and key=value. A value is a word, a
// text in quotation marks, or a JSON object or list.
type fact struct {
	kind   string
	words  []string
	values map[string]string // as they are written
}

func parseFact(line string) (*fact, error) {
	kind, rest, _ := strings.Cut(line, " ")
	f := &fact{kind: kind, values: map[string]string{}}
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		end := strings.IndexAny(rest, " =")
		if end < 0 || rest[end] == ' ' {
			var word string
			word, rest, _ = strings.Cut(rest, " ")
			f.words = append(f.words, word)
			continue
		}
		key := rest[:end]
		value, err := valueAtStart(rest[end+1:])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		if _, twice := f.values[key]; twice || key == "" {
			return nil, fmt.Errorf("%s= is there twice, or has no name", key)
		}
		f.values[key], rest = value, rest[end+1+len(value):]
	}
	return f, nil
}

func valueAtStart(text string) (string, error) {
	switch {
	case strings.HasPrefix(text, `"`):
		return strconv.QuotedPrefix(text)
	case strings.HasPrefix(text, "{"), strings.HasPrefix(text, "["):
		var value json.RawMessage
		d := json.NewDecoder(strings.NewReader(text))
		err := d.Decode(&value)
		return text[:d.InputOffset()], err
	}
	word, _, _ := strings.Cut(text, " ")
	return word, nil
}

func (f *fact) has(word string) bool { return slices.Contains(f.words, word) }

// text is a value without its quotation marks.
func (f *fact) text(key string) string {
	if text, err := strconv.Unquote(f.values[key]); err == nil {
		return text
	}
	return f.values[key]
}

func (f *fact) number(key string, absent int64) (int64, error) {
	text, ok := f.values[key]
	if !ok {
		return absent, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s=%s is not a number", key, text)
	}
	return n, nil
}

// output is the value of output as JSON; nil: there is none.
func (f *fact) output() (json.RawMessage, error) {
	text, ok := f.values["output"]
	switch {
	case !ok:
		return nil, nil
	case !json.Valid([]byte(text)):
		return nil, fmt.Errorf("output=%s is not JSON", text)
	}
	return json.RawMessage(text), nil
}

// job is the attempt that step=, item= and attempt= name; without attempt= the first.
func (f *fact) job() (protocol.JobID, error) {
	attempt, err := f.number("attempt", 1)
	if err != nil {
		return protocol.JobID{}, err
	}
	id := job(f.text("step"), int32(attempt))
	if _, ok := f.values["item"]; ok {
		item, err := f.number("item", 0)
		if err != nil {
			return id, err
		}
		id.Item = fmt.Sprint(item)
	}
	return id, nil
}
