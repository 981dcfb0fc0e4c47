// SPDX-License-Identifier: Apache-2.0

// Command headers fails where a source file does not say its licence: Go, shell, Lua, JavaScript,
// Python, a Dockerfile.
//
//	headers [-fix] [DIR]...
//
// The line is "SPDX-License-Identifier: Apache-2.0" (spdx.dev), the first comment of a file; below
// #! in a script. Generated files need none. -fix adds it.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const licence = "SPDX-License-Identifier: Apache-2.0"

func main() {
	fix := flag.Bool("fix", false, "add the line")
	flag.Parse()
	roots := flag.Args()
	if len(roots) == 0 {
		roots = []string{"."}
	}
	var all []error
	for _, root := range roots {
		all = append(all, walk(root, *fix))
	}
	if err := errors.Join(all...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// walk looks at all files below a folder, but for those of others.
func walk(root string, fix bool) error {
	var all []error
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && foreign(d.Name()):
			return filepath.SkipDir
		case d.Type().IsRegular() && comment(path) != "":
			all = append(all, one(path, fix))
		}
		return nil
	})
	return errors.Join(append(all, err)...)
}

// foreign says whether a folder holds what others wrote, or no sources.
func foreign(name string) bool {
	return strings.HasPrefix(name, ".") && name != ".ci" || name == "bin" || name == "node_modules" || name == "testdata"
}

// comment begins a comment in such a file; "": it needs no line.
func comment(path string) string {
	switch filepath.Ext(path) {
	case ".go", ".js", ".mjs":
		return "//"
	case ".lua":
		return "--"
	case ".sh", ".py":
		return "#"
	}
	if base := filepath.Base(path); base == "Dockerfile" || strings.HasPrefix(base, "Dockerfile.") || base == "run" && filepath.Base(filepath.Dir(path)) == ".ci" {
		return "#"
	}
	return ""
}

func one(path string, fix bool) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	line := comment(path) + " " + licence + "\n"
	interpreter, rest := split(source)
	if bytes.HasPrefix(rest, []byte(line)) || generated(source) {
		return nil
	}
	if !fix {
		return fmt.Errorf("%s does not say its licence; go run ./hack/headers -fix adds it", path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if filepath.Ext(path) == ".go" {
		line += "\n" // or it would be part of the package's comment
	}
	return os.WriteFile(path, append(append(interpreter, line...), rest...), info.Mode()) //nolint:gosec // a file of the tree
}

// split parts a script's #! from the rest.
func split(source []byte) (interpreter, rest []byte) {
	if !bytes.HasPrefix(source, []byte("#!")) {
		return nil, source
	}
	end := bytes.IndexByte(source, '\n') + 1
	return bytes.Clone(source[:end]), source[end:]
}

// generated says whether a program wrote a Go file (go.dev/s/generatedcode).
func generated(source []byte) bool {
	for line := range bytes.Lines(source) {
		text := string(bytes.TrimSpace(line))
		if strings.HasPrefix(text, "// Code generated ") && strings.HasSuffix(text, " DO NOT EDIT.") {
			return true
		}
		if strings.HasPrefix(text, "package ") {
			return false
		}
	}
	return false
}
