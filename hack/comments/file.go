// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/scanner"
	"go/token"
	"slices"
	"strings"
)

// group is lines of // comments that follow each other, each alone on its line.
type group struct {
	first  int // line of the file, from 1
	indent string
	lines  []string
}

// groupsOf finds the groups of a file, in order.
func groupsOf(files *token.FileSet, file *ast.File, source []byte) []group {
	lines := strings.Split(string(source), "\n")
	var all []group
	for _, comments := range file.Comments {
		first := files.Position(comments.Pos()).Line
		indent, _, ok := strings.Cut(lines[first-1], "//")
		if !ok || strings.TrimSpace(indent) != "" {
			continue // beside code, or of another form
		}
		g := group{first: first, indent: indent}
		for i := range comments.List {
			text, ok := strings.CutPrefix(lines[first-1+i], indent+"//")
			if !ok {
				break
			}
			g.lines = append(g.lines, "//"+text)
		}
		all = append(all, g)
	}
	return all
}

var (
	errWords  = errors.New("wrapping changed code or words of comments")
	errFormat = errors.New("gofmt changes what was wrapped")
)

// wrapFile is the source with its comments wrapped.
func wrapFile(files *token.FileSet, file *ast.File, source []byte) ([]byte, error) {
	lines := strings.Split(string(source), "\n")
	for _, g := range slices.Backward(groupsOf(files, file, source)) {
		wrapped := wrap(g.indent, g.lines)
		for i := range wrapped {
			wrapped[i] = g.indent + wrapped[i]
		}
		lines = slices.Replace(lines, g.first-1, g.first-1+len(g.lines), wrapped...)
	}
	result := []byte(strings.Join(lines, "\n"))
	if bytes.Equal(result, source) {
		return source, nil
	}
	if !slices.Equal(essence(source), essence(result)) {
		return nil, errWords
	}
	formatted, err := format.Source(result)
	if err != nil {
		return nil, fmt.Errorf("format: %w", err)
	}
	if !bytes.Equal(formatted, result) {
		return nil, errFormat
	}
	return result, nil
}

// essence is what wrapping must leave: the tokens of the code, and the words of its comments.
func essence(source []byte) (all []string) {
	files := token.NewFileSet()
	var s scanner.Scanner
	s.Init(files.AddFile("", files.Base(), len(source)), source, nil, scanner.ScanComments)
	for {
		_, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return all
		case tok == token.COMMENT && strings.HasPrefix(text, "//"):
			all = append(all, strings.Fields(strings.TrimPrefix(text, "//"))...)
		case tok == token.SEMICOLON && text == "\n":
			// gofmt's matter
		default:
			all = append(all, tok.String()+" "+text)
		}
	}
}
