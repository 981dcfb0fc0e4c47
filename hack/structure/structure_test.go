// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMeasure(t *testing.T) {
	f, err := measure("testdata/rooms")
	if err != nil {
		t.Fatal(err)
	}
	want := figures{
		types: []typeSize{{"tangled.State", 4, 10}, {"tangled.Generic", 1, 1}},
		// State.Back is in no cycle: the interface breaks it.
		cycles:    []cycle{{"tangled", []string{"last.go", "middle.go", "state.go"}, 4, f.cycles[0].calls}},
		functions: f.functions,
		files:     f.files,
	}
	if diff := cmp.Diff(want, f, cmp.AllowUnexported(figures{}, typeSize{}, cycle{}, size{})); diff != "" {
		t.Error(diff)
	}
	if got, want := f.callsOf("tangled")[0], "last.go -> state.go: "; !strings.HasPrefix(got, want) {
		t.Errorf("the first calls are %q, want %q", got, want)
	}
	if got, want := f.functions[0], (size{"tangled.State.last", 6}); got != want {
		t.Errorf("the longest function is %v, want %v: neither generated, nor of tests", got, want)
	}
	if got, want := f.files[0].name, "tangled/state.go"; got != want {
		t.Errorf("the longest file is %s, want %s", got, want)
	}
	if got, want := len(f.files), 6; got != want {
		t.Errorf("%d files were measured, want %d", got, want)
	}
}

func TestMeasure_CodeThatDoesNotCompile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.org/broken\n\ngo 1.26\n", "a.go": "package broken\n\nvar X = y\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := measure(dir); err == nil {
		t.Error("there are figures of code that does not compile")
	}
}

func TestLargestCycle(t *testing.T) {
	for name, c := range map[string]struct {
		calls map[string]string
		want  string
	}{
		"one way":                        {map[string]string{"a": "b", "b": "c", "c": ""}, "a"},
		"there and back":                 {map[string]string{"a": "b", "b": "a", "c": "a"}, "a b"},
		"the larger of two":              {map[string]string{"a": "b", "b": "a", "c": "d", "d": "e", "e": "c"}, "c d e"},
		"two that share a file are one":  {map[string]string{"a": "b d", "b": "a", "d": "a"}, "a b d"},
		"a file that calls only itself":  {map[string]string{"a": "a"}, "a"},
		"one that leads into the cycle":  {map[string]string{"a": "b", "b": "c", "c": "b"}, "b c"},
		"one that is led to by the same": {map[string]string{"a": "b", "b": "a c", "c": ""}, "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			g := graph{}
			for from, all := range c.calls {
				g.add(from, "", "")
				for to := range strings.FieldsSeq(all) {
					g.add(from, to, "f")
				}
			}
			if got := strings.Join(g.largestCycle(), " "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestAbove(t *testing.T) {
	most := limit{methods: 2, cycle: 2, function90: 3, function: 4, file: 10}
	within := figures{
		types:     []typeSize{{"p.T", 2, 99}},
		cycles:    []cycle{{"p", []string{"a.go", "b.go"}, 9, nil}},
		functions: sizes{{"p.F", 4}, {"p.G", 3}},
		files:     sizes{{"p/a.go", 10}},
	}
	within.functions = append(within.functions, make(sizes, 8)...)
	if all := within.above(most); len(all) > 0 {
		t.Errorf("at the limits: %v", errors.Join(all...))
	}
	over := figures{
		types:     []typeSize{{"p.T", 3, 0}},
		cycles:    []cycle{{"p", []string{"a.go", "b.go", "c.go"}, 3, nil}},
		functions: sizes{{"p.F", 5}},
		files:     sizes{{"p/a.go", 11}},
	}
	text := errors.Join(over.above(most)...).Error()
	for _, want := range []string{
		"p.T has 3 methods", "p: 3 files call each other", "one function in ten has more than 5", "p.F has 5 lines", "p/a.go has 11 lines",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

func TestRewrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("above\n" + begin + "old\n" + end + "below\n")
	for range 2 { // once more changes nothing
		if err := rewrite(path, "| new |\n"); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff("above\n"+begin+"\n| new |\n\n"+end+"below\n", string(got)); diff != "" {
			t.Error(diff)
		}
	}
	write("above\n" + begin + "old\n")
	if err := rewrite(path, "| new |\n"); err == nil {
		t.Error("a page without its end was rewritten")
	}
}
