// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// words is a text of n words of four letters, each with a space before it: 5n columns.
func words(n int) string { return strings.Repeat(" word", n) }

func TestWrap(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"a paragraph is filled from its first long line on": {
			"// Short.\n//" + words(5) + "\n//" + words(25) + "\n//" + words(3) + "\n//\n// Next.",
			"// Short.\n//" + words(5) + "\n//" + words(19) + "\n//" + words(9) + "\n//\n// Next.",
		},
		"paragraphs without a long line stay ragged":       {"//" + words(3) + "\n//" + words(9), ""},
		"no line has one word that could have company":     {"//" + words(20), "//" + words(17) + "\n//" + words(3)},
		"an item of a list as gofmt has it":                {"//   - a" + words(22) + "\n//     end\n//   - b", "//   - a" + words(18) + "\n//    " + words(4) + " end\n//   - b"},
		"a numbered item":                                  {"//  1. a" + words(22), "//  1. a" + words(18) + "\n//    " + words(4)},
		"an item that is not indented":                     {"// - a" + words(22) + "\n// end\n// - b", "// - a" + words(18) + "\n//" + words(4) + " end\n// - b"},
		"a label begins a line":                            {"// All" + words(20) + ".\n// mutation: none", "// All" + words(17) + "\n//" + words(3) + ".\n// mutation: none"},
		"a bullet does not begin a line":                   {"//" + words(19) + " abcd -" + words(3), "//" + words(19) + "\n// abcd -" + words(3)},
		"a number, a heading's mark, a plus do not either": {"//" + words(18) + " abcd 1. # +build" + words(3), "//" + words(18) + "\n// abcd 1. # +build" + words(3)},
		"code stays":                       {"//\t" + words(30) + "\n//    x" + words(30), ""},
		"columns stay":                     {"// a  b" + words(30) + "\n// a" + words(3), ""},
		"directives stay":                  {"//nolint:all" + words(30) + "\n//go:generate" + words(30) + "\n//+kubebuilder:x" + words(30) + "\n// +kubebuilder:x" + words(30), ""},
		"a marker ends a paragraph":        {"//" + words(20) + "\n// +optional", "//" + words(17) + "\n//" + words(3) + "\n// +optional"},
		"rows of a table stay":             {"// | a" + words(30) + " |", ""},
		"a link's target stays":            {"// [x]: https://example.org/" + strings.Repeat("x", 90) + words(2), ""},
		"an address is longer than a line": {"// See https://example.org/" + strings.Repeat("x", 90) + " there.", "// See\n// https://example.org/" + strings.Repeat("x", 90) + "\n// there."},
		"what a test compares stays":       {"// Output:\n//" + words(30), ""},
		"a long heading stays":             {"// #" + words(30), ""},
		"letters of many bytes":            {"// " + strings.Repeat("é", 96), ""},
		"exactly at the limit":             {"// " + strings.Repeat("x", 92) + " word", ""},
	} {
		t.Run(name, func(t *testing.T) {
			want := c.after
			if want == "" {
				want = c.before
			}
			got := strings.Join(wrap("", strings.Split(c.before, "\n")), "\n")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if again := strings.Join(wrap("", strings.Split(got, "\n")), "\n"); again != got {
				t.Errorf("wrapped again it is another:\n%s", again)
			}
		})
	}
}

// TestOne wraps a file with all that may be beside a comment, and checks it before and after.
func TestOne(t *testing.T) {
	source := "//go:build linux\n\n// Package a is documented." + words(25) + "\n//\n// # Heading\n//\n//   - item" + words(25) + "\n//   - short\n//\n//\tcode" + words(30) + "\npackage a\n\n" +
		"import \"fmt\"\n\nconst url = \"http://example.org\" // beside code" + words(30) + "\n\nconst raw = `\n// not a comment" + words(30) + "\n`\n\n" +
		"/* a block" + words(30) + " */\n\n// F is one.\nfunc F() {\n\tif true { // why" + words(30) + "\n\t\t// inside" + words(22) + "\n\t\tfmt.Println(url, raw) //nolint:forbidigo // why" + words(30) + "\n\t}\n}\n"
	formatted, err := format.Source([]byte(source))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a.go")
	if err := os.WriteFile(path, formatted, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := walk(path, false); err == nil || len(strings.Split(err.Error(), "\n")) != 3 {
		t.Errorf("want three long lines, got: %v", err)
	}
	if err := errors.Join(walk(path, true), walk(path, false)); err != nil {
		t.Error(err)
	}
	wrapped, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(
		"documented."+words(25), "documented."+words(14)+"\n//"+words(11),
		"item"+words(25), "item"+words(17)+"\n//    "+words(8),
		"inside"+words(22), "inside"+words(16)+"\n\t\t//"+words(6),
	).Replace(string(formatted))
	if diff := cmp.Diff(want, string(wrapped)); diff != "" {
		t.Error(diff)
	}
}

func TestOne_GeneratedCode(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"zz.go": "// Code generated by x. DO NOT EDIT.\n\npackage a\n\n//" + words(30) + "\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := walk(root, false); err != nil {
		t.Error(err)
	}
}

func FuzzWrap(f *testing.F) {
	f.Add("a list:\n  - one" + words(30) + "\n    two\n\n1. three" + words(30) + "\n# four\n+five\n\tsix")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "\r\x00\f\v\ufeff\u0085\u00a0") || strings.ToValidUTF8(text, "") != text {
			t.Skip()
		}
		source := "package a\n\n// " + strings.ReplaceAll(text, "\n", "\n//") + "\nvar x int\n"
		formatted, err := format.Source([]byte(source))
		if err != nil {
			t.Skip()
		}
		path := filepath.Join(t.TempDir(), "a.go")
		if err := os.WriteFile(path, formatted, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := walk(path, true); errors.Is(err, errWords) {
			t.Error(err)
		}
	})
}
