// SPDX-License-Identifier: Apache-2.0

// Command comments fails where a comment line of a Go file has more than 100 columns:
//
//	comments [-fix] [FILE | DIR]...
//
// A tab is four columns. Lines with code before the comment do not count, nor what cannot be
// wrapped: directives, markers, indented blocks (code, diagrams and tables), and lines of one word,
// such as an address.
//
// -fix wraps paragraphs and items of lists from their first long line on. It checks that code and
// the words of each file stay as they are, and that gofmt changes nothing.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"

	"github.com/syncopate-dev/syncopate/hack/gofiles"
)

func main() {
	fix := flag.Bool("fix", false, "wrap long lines")
	flag.Parse()
	paths := flag.Args()
	if len(paths) == 0 {
		paths = []string{"."}
	}
	var all []error
	for _, path := range paths {
		all = append(all, walk(path, *fix))
	}
	if err := errors.Join(all...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// walk looks at a file, or at all of a folder.
func walk(root string, fix bool) error {
	return gofiles.Each(root, func(string) bool { return true }, func(path string, source []byte) error { return one(path, source, fix) })
}

func one(path string, source []byte, fix bool) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return err
	}
	if !fix {
		return check(path, files, file, source)
	}
	wrapped, err := wrapFile(files, file, source)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if string(wrapped) == string(source) {
		return nil
	}
	return os.WriteFile(path, wrapped, 0o600)
}

// check says which lines are too long.
func check(path string, files *token.FileSet, file *ast.File, source []byte) error {
	var all []error
	for _, g := range groupsOf(files, file, source) {
		for _, b := range blocksOf(g.lines) {
			for i := b.from; i < b.to; i++ {
				if l := g.indent + g.lines[i]; tooLong(g.indent, g.lines[i]) {
					all = append(all, fmt.Errorf("%s:%d: a comment line of %d columns; go run ./hack/comments -fix wraps it", path, g.first+i, columns(l)))
				}
			}
		}
	}
	return errors.Join(all...)
}
