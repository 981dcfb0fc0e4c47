// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A text without a length of its own may lie over what is beside it, where another font draws it.
// mutation: fitText that returns what it gets makes this fail; so does a legend in another font.
func TestTextsOfPicturesFitWhateverFontDrawsThem(t *testing.T) {
	r := &report{Figures: []*figure{{Table: "t", Case: "a < b", Name: "one", Value: 1}, {Table: "t", Case: "a < b", Name: "another", Value: 2}}}
	file := filepath.Join(t.TempDir(), "p.svg")
	if err := (barPlot{title: "A title", y: "ms", table: "t", names: []string{"one", "another"}}).of(r, "p").draw(file); err != nil {
		t.Fatal(err)
	}
	pictures, err := filepath.Glob("../../docs/benchmarks/*.svg")
	if err != nil {
		t.Fatal(err)
	}
	if len(pictures) == 0 {
		t.Error("no pictures in docs/benchmarks")
	}
	text := regexp.MustCompile(`(?s)<text [^>]*>`)
	length := regexp.MustCompile(`textLength="[1-9][0-9.]*" lengthAdjust="spacingAndGlyphs"`)
	for _, name := range append(pictures, file) {
		svg, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts := text.FindAllString(string(svg), -1)
		if len(texts) == 0 {
			t.Errorf("%s: no text", name)
		}
		for _, one := range texts {
			if !length.MatchString(one) {
				t.Errorf("%s: %s", name, strings.Join(strings.Fields(one), " "))
			}
		}
		if string(fitText(svg)) != string(svg) {
			t.Errorf("%s: fitted twice it is another picture", name)
		}
	}
}

// mutation: many names in a line each, or few that are broken at each word, make this fail.
func TestNamesOfManyCasesAreBroken(t *testing.T) {
	for cases, want := range map[int]string{fewCases: "late-results", fewCases + 1: "late-\nresults"} {
		if got := inLines("late-results", cases); got != want {
			t.Errorf("%d cases: %q, want %q", cases, got, want)
		}
	}
	if got := inLines("all together", fewCases+1); got != "all\ntogether" {
		t.Errorf("%q", got)
	}
}
