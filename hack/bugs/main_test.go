// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const tests = `package x

func TestThere(t *testing.T) {
	for name, n := range map[string]int{"a row of a table": 1} {
		t.Run(name, func(t *testing.T) { t.Log("a text of no test") })
	}
}

// TestSaid is in a comment only.
func Testament() {}
func (s suite) TestOfSuite() {}

var _ = Describe("something real", func() {
	It("does "+what+" at each place", func() {})
	PIt("is left out for now", func() {})
})
`

// mutation: each of these makes its row fail: names looked for as text in the file; methods, or
// functions that go test does not run, taken for tests; any literal, or any spec that is left out,
// taken for a spec; ids, cells or tables that nobody looks at; a page without rows that passes.
func TestWhatAPageMayName(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "x_test.go"), []byte(tests), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "rules_test.yaml"), []byte("tests:\n- name: all replicas are gone\n  # a slow burn\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rows := func(lines ...string) string {
		return "# Bugs\n\n" + header + "\n|---|---|---|---|\n" + strings.Join(lines, "\n") + "\n\nMore.\n"
	}
	test := func(name string) string { return rows("| a | it broke | trial | `x_test.go: " + name + "` |") }
	for name, c := range map[string]struct{ page, want string }{
		"a test":                  {test("TestThere"), ""},
		"two tests":               {test("TestThere`, `x_test.go: TestThere"), ""},
		"a spec":                  {test(`"at each place"`), ""},
		"a subtest of a table":    {test(`"a row of a table"`), ""},
		"a container":             {test(`"something real"`), ""},
		"a test of alerts":        {rows("| a | it broke | trial | `rules_test.yaml: \"all replicas are gone\"` |"), ""},
		"an alert's comment":      {rows("| a | it broke | trial | `rules_test.yaml: \"# a slow burn\"` |"), "no spec or subtest"},
		"a test that is not":      {test("TestThat"), "line 5, a: x_test.go has no test function TestThat"},
		"the second is not":       {test("TestThere`, `x_test.go: TestThat"), "no test function TestThat"},
		"part of a name":          {test("TestTher"), "no test function TestTher"},
		"a name in a comment":     {test("TestSaid"), "no test function TestSaid"},
		"a function":              {test("Testament"), "no test function Testament"},
		"a method":                {test("TestOfSuite"), "no test function TestOfSuite"},
		"a spec that is not":      {test(`"at every place"`), `no spec or subtest "at every place"`},
		"a spec that is left out": {test(`"is left out for now"`), "no spec or subtest"},
		"a text of no test":       {test(`"a text of no test"`), "no spec or subtest"},
		"a text too short":        {test(`"place"`), "shorter than 12 bytes"},
		"no file":                 {rows("| a | it broke | trial | `y_test.go: TestThere` |"), "y_test.go"},
		"a file of no tests":      {rows("| a | it broke | trial | `x.go: TestThere` |"), "is not `path_test.go: TestName`"},
		"no test":                 {rows("| a | it broke | trial | |"), "is not `path_test.go: TestName`"},
		"an id twice":             {rows("| a | it | trial | `x_test.go: TestThere` |", "| a | it | trial | `x_test.go: TestThere` |"), "line 6: a is there twice"},
		"nothing said of it":      {rows("| a | | trial | `x_test.go: TestThere` |"), "line 5: want an id"},
		"another table":           {test("TestThere") + "\n| a | b |\n|---|---|\n", "a table that does not begin with"},
		"no bug":                  {"# Bugs\n", "there is no bug"},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(c.page, root)
			if c.want == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
