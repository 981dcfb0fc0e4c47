// SPDX-License-Identifier: Apache-2.0

// Command errtext fails where an error is made of the text of another one: errors.New("read: " +
// err.Error()), or fmt.Errorf("read: %s", err.Error()). Who gets such an error cannot find out what
// it is with errors.Is and errors.As. The linter errorlint sees `%s` with an error only, and not
// with its text.
//
// It looks at the Go files below the root of the repository, without tests. A line ends in `//
// errtext:` and a reason where the text is what is wanted. It knows no types, so it takes each call
// of a method Error without arguments for one of an error; and it does not see a text that was put
// into a variable before.
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"

	"github.com/syncopate-dev/syncopate/hack/gofiles"
)

func main() {
	code := func(path string) bool { return !strings.HasSuffix(path, "_test.go") }
	if err := gofiles.Each(".", code, checkFile); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// checkFile says all that is wrong with a file.
func checkFile(path string, source []byte) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.ParseComments)
	if err != nil {
		return err
	}
	meant := meantLines(set, file)
	var all []error
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !makesError(call) {
			return true
		}
		for _, text := range textsOf(call) {
			if at := set.Position(text.Pos()); !meant[at.Line] {
				all = append(all, fmt.Errorf("%s:%d: an error is made of the text of another: wrap it with %%w, or say why not: // errtext: reason", path, at.Line))
			}
		}
		return true
	})
	return errors.Join(all...)
}

// meantLines are the lines with a reason.
func meantLines(set *token.FileSet, file *ast.File) map[int]bool {
	lines := map[int]bool{}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if reason, ok := strings.CutPrefix(c.Text, "// errtext:"); ok && strings.TrimSpace(reason) != "" {
				lines[set.Position(c.Pos()).Line] = true
			}
		}
	}
	return lines
}

// makesError says whether a call is of fmt.Errorf or errors.New.
func makesError(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := f.X.(*ast.Ident)
	return ok && (from.Name == "fmt" && f.Sel.Name == "Errorf" || from.Name == "errors" && f.Sel.Name == "New")
}

// textsOf are the calls of Error() in the arguments of a call, but for those of another that makes
// an error: that is looked at by itself.
func textsOf(call *ast.CallExpr) (texts []*ast.CallExpr) {
	for _, arg := range call.Args {
		ast.Inspect(arg, func(n ast.Node) bool {
			inner, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if method, ok := inner.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "Error" && len(inner.Args) == 0 {
				texts = append(texts, inner)
			}
			return !makesError(inner)
		})
	}
	return texts
}
