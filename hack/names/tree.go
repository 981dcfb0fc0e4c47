// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// set is a set of names.
type set map[string]bool

// tree is what can be named, and where it is.
type tree struct {
	files    []string       // paths below the root
	words    set            // in code, texts and data
	packages map[string]set // what packages of a name declare: also methods and fields
	declared map[string]set // what a Go file declares, by its path
	beside   map[string]set // what the files of a folder declare
	selected set            // pkg.Name as code has it
	texts    []text
}

// text is one line of a comment or a page.
type text struct{ at, dir, line string }

// read collects a tree's names and texts.
func read(root string) (*tree, error) {
	t := &tree{words: set{}, packages: map[string]set{}, declared: map[string]set{}, beside: map[string]set{}, selected: set{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && foreign(d.Name()):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		t.files = append(t.files, filepath.ToSlash(rel))
		t.addWords(rel)
		return t.file(path, filepath.ToSlash(rel))
	})
	if err != nil {
		return nil, fmt.Errorf("read tree: %w", err)
	}
	return t, nil
}

// foreign says whether a folder holds what others wrote, or CRDs, whose words are
// those of comments.
func foreign(name string) bool {
	return strings.HasPrefix(name, ".") || slices.Contains([]string{"bin", "node_modules", "crd", "crds"}, name)
}

// data are the files whose words exist, but for lines that are comments.
var data = set{".yaml": true, ".yml": true, ".lua": true, ".sh": true, ".mjs": true, ".py": true, ".json": true, ".tpl": true, ".mod": true, ".txt": true}

func (t *tree) file(path, rel string) error {
	ext := filepath.Ext(rel)
	if ext != ".go" && ext != ".md" && !data[ext] {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	switch ext {
	case ".go":
		return t.goFile(rel, content)
	case ".md":
		t.page(rel, string(content))
	default:
		for line := range strings.Lines(string(content)) {
			if !comment.MatchString(line) {
				t.addWords(line)
			}
		}
	}
	return nil
}

// comment is the beginning of a comment's line in a file of data.
var comment = regexp.MustCompile(`^\s*(#|--|//)`)

// records are pages of their time, or written from comments that are looked at.
var records = regexp.MustCompile(`^docs/(adr/|api\.md|benchmarks/[a-z]+\.md)`)

func (t *tree) page(rel, content string) {
	if rel != "README.md" && (!strings.HasPrefix(rel, "docs/") || records.MatchString(rel)) {
		return
	}
	n := 0
	for line := range strings.Lines(content) {
		n++
		t.texts = append(t.texts, text{fmt.Sprintf("%s:%d", rel, n), folder(rel), line})
	}
}

func (t *tree) goFile(rel string, content []byte) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, rel, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t.declarations(rel, file)
	t.code(file)
	if !ast.IsGenerated(file) {
		t.comments(rel, files, file)
	}
	return nil
}

// code notes the words of a file but for its comments.
func (t *tree) code(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CommentGroup:
			return false
		case *ast.Ident:
			t.words[n.Name] = true
		case *ast.BasicLit:
			t.addWords(n.Value)
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok {
				t.selected[x.Name+"."+n.Sel.Name] = true
			}
		}
		return true
	})
}

func (t *tree) comments(rel string, files *token.FileSet, file *ast.File) {
	for _, group := range file.Comments {
		for _, c := range group.List {
			first := files.Position(c.Pos()).Line
			for i, line := range strings.Split(c.Text, "\n") {
				t.texts = append(t.texts, text{fmt.Sprintf("%s:%d", rel, first+i), folder(rel), line})
			}
		}
	}
}

// declarations notes what a file declares: also methods, fields and local names, which a list of
// mutations may name.
func (t *tree) declarations(rel string, file *ast.File) {
	all := set{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			all[n.Name.Name] = true
		case *ast.TypeSpec:
			all[n.Name.Name] = true
		case *ast.ValueSpec:
			all.add(n.Names)
		case *ast.Field:
			all.add(n.Names)
		}
		return true
	})
	t.declared[rel] = all
	merge(t.packages, file.Name.Name, all)
	merge(t.beside, folder(rel), all)
}

func merge(into map[string]set, key string, names set) {
	if into[key] == nil {
		into[key] = set{}
	}
	maps.Copy(into[key], names)
}

func folder(rel string) string { return filepath.ToSlash(filepath.Dir(rel)) }

func (s set) add(names []*ast.Ident) {
	for _, n := range names {
		s[n.Name] = true
	}
}

var word = regexp.MustCompile(`[A-Za-z0-9_]+`)

func (t *tree) addWords(s string) {
	for _, w := range word.FindAllString(s, -1) {
		t.words[w] = true
	}
}
