// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"testing"
)

const mib = 1 << 20

// tookOf is how many bytes something takes.
func tookOf(t *testing.T, what func() error) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := what(); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// mutation: a body that is indented as a whole makes this fail: the first takes gigabytes.
//
//nolint:paralleltest // others would be counted
func TestABodyIsNeverIndentedAsAWhole(t *testing.T) {
	for name, body := range map[string]string{
		"deep": strings.Repeat("[", 9000) + strings.Repeat("0,", 30_000) + "0" + strings.Repeat("]", 9000),
		"wide": "[" + strings.Repeat("0,", mib/2) + "0]",
	} {
		s := ShownLetter{Letter: Letter{Bytes: len(body)}, Body: json.RawMessage(body)}
		a := &app{Env: Env{Out: io.Discard}}
		var lines []string
		if took := tookOf(t, func() error { lines = s.bodyLines(); return nil }); took > 8*mib || len(lines) > maxBodyLines+1 {
			t.Errorf("%s: %d KiB for %d lines", name, took>>10, len(lines))
		}
		if took := tookOf(t, func() error { return a.writeJSON(s) }); took > 16*mib {
			t.Errorf("%s: %d KiB for JSON", name, took>>10)
		}
	}
}

// mutations: JSONLines that indents less, or without the lines of what is empty, makes this fail.
func TestJSONIsWrittenInLines(t *testing.T) {
	t.Parallel()
	v := map[string]any{"a": []any{1, map[string]any{}, []any{}, "x\":,{<\\"}, "b": nil, "c": map[string]any{"d": "e, f"}}
	var got, want bytes.Buffer
	if err := (&app{Env: Env{Out: &got}}).writeJSON(v); err != nil {
		t.Fatal(err)
	}
	e := json.NewEncoder(&want)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil || got.String() != want.String() {
		t.Errorf("%v\n%s\nnot\n%s", err, got.String(), want.String())
	}
}
