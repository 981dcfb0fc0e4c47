// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// shortest is how many bytes of a spec's text must be given: less is found in too many.
const shortest = 12

// sources are test files below root.
type sources struct{ root string }

// checkTest looks for a test function, or for a spec or subtest by its text, in a file.
func (s sources) checkTest(path, function, text string) error {
	functions, texts, err := s.tests(path)
	if err != nil {
		return fmt.Errorf("read tests: %w", err)
	}
	switch {
	case function != "" && !slices.Contains(functions, function):
		return fmt.Errorf("%s has no test function %s", path, function)
	case function == "" && len(text) < shortest:
		return fmt.Errorf("%q is shorter than %d bytes", text, shortest)
	case function == "" && !slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(t, text) }):
		return fmt.Errorf("%s has no spec or subtest %q", path, text)
	}
	return nil
}

// ruleTest is the name of a test of alerts, as promtool reads them.
var ruleTest = regexp.MustCompile(`(?m)^- name: (.*)$`)

// tests are the functions and the texts that name tests in a file.
func (s sources) tests(path string) (functions, texts []string, err error) {
	content, err := os.ReadFile(filepath.Join(s.root, path))
	if err != nil {
		return nil, nil, err
	}
	if filepath.Ext(path) == ".yaml" {
		for _, m := range ruleTest.FindAllSubmatch(content, -1) {
			texts = append(texts, string(m[1]))
		}
		return nil, texts, nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, content, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	return functionsOf(file), textsOf(file), nil
}

var testName = regexp.MustCompile(`^(Test|Fuzz)([^a-z]|$)`)

// functionsOf are the names of tests that go test runs.
func functionsOf(file *ast.File) []string {
	var all []string
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && testName.MatchString(f.Name.Name) {
			all = append(all, f.Name.Name)
		}
	}
	return all
}

// naming are functions whose first argument names a test. Those that leave a test out (PIt, XIt)
// are not among them.
var naming = []string{"It", "Entry", "Specify", "Describe", "Context", "When", "DescribeTable", "Run", "FIt"}

// textsOf are the texts that name specs and subtests: literals in the first argument of what makes
// one, and keys of tables.
func textsOf(file *ast.File) []string {
	var all []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if slices.Contains(naming, called(n.Fun)) && len(n.Args) > 0 {
				all = append(all, literals(n.Args[0])...)
			}
		case *ast.KeyValueExpr:
			all = append(all, literals(n.Key)...)
		}
		return true
	})
	return all
}

func called(f ast.Expr) string {
	switch f := f.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

func literals(e ast.Expr) []string {
	var all []string
	ast.Inspect(e, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if text, err := strconv.Unquote(l.Value); err == nil {
				all = append(all, text)
			}
		}
		return true
	})
	return all
}
