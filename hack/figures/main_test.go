// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const suite = `{"suite": "admission", "figures": [
	{"table": "t, limit 2", "case": "Atomic", "name": "p95 / other", "value": 4.5816},
	{"table": "t, limit 2", "case": "Atomic", "name": "requests", "value": 12345.6}
]}`

func tree(t *testing.T, readme string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range map[string]string{"README.md": readme, "docs/benchmarks/admission.json": suite, "docs/benchmarks/admission.md": "12"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// mutation: each of these makes its row fail: any digits compared for all of them, the first number
// of a line for the one before the marker, a marker without a number or with another key that is
// let pass, rows of measured figures that nobody looks at.
func TestWhatAPageMayQuote(t *testing.T) {
	const p95, requests = "<!-- figure admission; t, limit 2; Atomic; p95 / other -->", "<!-- figure admission; t, limit 2; Atomic; requests -->"
	table := func(row string) string {
		return "| | goal | measured |\n|---|---|---|\n| a 4.6" + p95 + " | 5 | " + row + " |\n"
	}
	for name, c := range map[string]struct{ page, want string }{
		"a figure":                   {"With 3 of them 4.6 ms" + p95 + ".", ""},
		"with more digits":           {"4.582 ms" + p95, ""},
		"another figure":             {"4.5 ms" + p95, "line 1: admission; t, limit 2; Atomic; p95 / other: quoted 4.5, measured 4.6"},
		"thousands":                  {"12,346 requests" + requests, ""},
		"divided":                    {"12.3 thousand<!-- figure admission; t, limit 2; Atomic; requests; / 1000 -->", ""},
		"divided by nothing":         {"12.3<!-- figure admission; t, limit 2; Atomic; requests; / 0 -->", "is nothing to divide by"},
		"two in a line":              {"4.6" + p95 + " and 12345" + requests, "quoted 12345, measured 12346"},
		"no such figure":             {"4.6<!-- figure admission; t, limit 2; Lock; p95 -->", `has no figure "p95" of "Lock"`},
		"no such suite":              {"4.6<!-- figure latency; t; a; b -->", "read results"},
		"a suite of another place":   {"4.6<!-- figure ../x; t; a; b -->", "is no name of a suite"},
		"too few parts":              {"4.6<!-- figure admission; p95 -->", "does not name suite"},
		"nothing before it":          {"some" + p95, "line 1: a marker without a figure before it"},
		"no figure at all":           {"4.6 ms", "no page quotes a figure"},
		"a row with its figure":      {table("4.6 ms" + p95), ""},
		"a row without":              {table("4.6 ms"), "line 3: a figure without a marker"},
		"a row that says why not":    {table("4.6 ms<!-- no figure: by hand -->"), ""},
		"a row without a figure":     {table("none"), ""},
		"a table of something else":  {"| | goal |\n|---|---|\n| a | 7 |\n\n4.6" + p95, ""},
		"a page that a suite writes": {"4.6" + p95, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(tree(t, c.page), false)
			if c.want == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestUpdateWritesWhatWasMeasured(t *testing.T) {
	root := tree(t, "It takes 9.9 ms<!-- figure admission; t, limit 2; Atomic; p95 / other --> of 1,000<!-- figure admission; t, limit 2; Atomic; requests -->.")
	if err := run(root, true); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "It takes 4.6 ms<!-- figure admission; t, limit 2; Atomic; p95 / other --> of 12,346<!-- figure admission; t, limit 2; Atomic; requests -->."
	if string(got) != want {
		t.Errorf("wrote %q", got)
	}
	if err := run(root, false); err != nil {
		t.Error(err)
	}
}

// The pages of this repository.
func TestFiguresOfThisRepository(t *testing.T) {
	if err := run(filepath.Join("..", ".."), false); err != nil {
		t.Error(err)
	}
}
