// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// figures are those of a module, each list with the largest first.
type figures struct {
	types     []typeSize
	cycles    []cycle
	functions sizes
	files     sizes
}

// typeSize is how much one type can do, and how much each of its methods can touch.
type typeSize struct {
	name            string
	methods, fields int
}

// cycle is the largest of a package's.
type cycle struct {
	name  string
	files []string
	of    int      // files of the package
	calls []string // those that make it
}

// size is the length of a function or a file.
type size struct {
	name  string
	lines int
}

type sizes []size

// p90 is the length that one in ten exceeds.
func (s sizes) p90() int {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)/10].lines
}

// measured excludes tests that are no _test.go files: programs in test/, and packages
// that help tests.
func measured(path string, p *packages.Package) bool {
	return !strings.HasPrefix(path, "test/") && p.Imports["testing"] == nil
}

const needed = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo |
	packages.NeedImports | packages.NeedModule

// measure loads the packages of the module at dir.
func measure(dir string) (figures, error) {
	loaded, err := packages.Load(&packages.Config{Mode: needed, Dir: dir}, "./...")
	if err != nil {
		return figures{}, fmt.Errorf("load packages: %w", err)
	}
	var f figures
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return figures{}, fmt.Errorf("load %s: %w", p.PkgPath, p.Errors[0])
		}
		name := strings.TrimPrefix(strings.TrimPrefix(p.PkgPath, p.Module.Path), "/")
		if measured(name, p) {
			f.add(name, p)
		}
	}
	if len(f.files) == 0 {
		return figures{}, fmt.Errorf("no Go file in %s", dir)
	}
	slices.SortFunc(f.types, func(a, b typeSize) int { return cmp.Or(b.methods-a.methods, cmp.Compare(a.name, b.name)) })
	slices.SortFunc(f.cycles, func(a, b cycle) int { return cmp.Or(len(b.files)-len(a.files), cmp.Compare(a.name, b.name)) })
	for _, s := range []sizes{f.functions, f.files} {
		slices.SortFunc(s, func(a, b size) int { return cmp.Or(b.lines-a.lines, cmp.Compare(a.name, b.name)) })
	}
	return f, nil
}

// add measures one package.
func (f *figures) add(name string, p *packages.Package) {
	calls, methods := graph{}, map[string]int{}
	for _, file := range p.Syntax {
		if ast.IsGenerated(file) {
			continue
		}
		path := p.Fset.File(file.Pos())
		base := filepath.Base(path.Name())
		f.files = append(f.files, size{name + "/" + base, path.LineCount()})
		calls.add(base, "", "")
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				from, to := p.Fset.Position(fn.Pos()).Line, p.Fset.Position(fn.End()).Line
				f.functions = append(f.functions, size{name + "." + qualified(fn), to - from + 1})
				methods[receiver(fn)]++
			}
		}
		for _, used := range functionsUsed(file, p) {
			calls.add(base, filepath.Base(p.Fset.Position(used.Pos()).Filename), used.Name())
		}
	}
	delete(methods, "")
	for t, n := range methods {
		f.types = append(f.types, typeSize{name + "." + t, n, fieldsReached(p.Types.Scope().Lookup(t))})
	}
	if files := calls.largestCycle(); len(files) > 1 {
		f.cycles = append(f.cycles, cycle{name, files, len(calls), calls.arrows(files)})
	}
}

// functionsUsed are the package's own functions and methods that a file calls, or hands
// on as values.
func functionsUsed(file *ast.File, p *packages.Package) (used []*types.Func) {
	ast.Inspect(file, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		fn, ok := p.TypesInfo.Uses[id].(*types.Func)
		if ok && fn.Pkg() == p.Types && !types.IsInterface(receiverType(fn)) {
			used = append(used, fn.Origin())
		}
		return true
	})
	return used
}

// receiverType is that of a method, or one that is no interface.
func receiverType(fn *types.Func) types.Type {
	if r := fn.Signature().Recv(); r != nil {
		return r.Type()
	}
	return types.Typ[types.Invalid]
}

// receiver is the name of a method's type, "" for a function.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	name := ""
	ast.Inspect(fn.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

func qualified(fn *ast.FuncDecl) string {
	if r := receiver(fn); r != "" {
		return r + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// fieldsReached counts the fields of a struct, and of those of the same package that it embeds
// or points to.
func fieldsReached(object types.Object) int {
	if object == nil {
		return 0
	}
	seen, count := map[*types.Named]bool{}, 0
	var visit func(t types.Type)
	visit = func(t types.Type) {
		named, ok := types.Unalias(t).(*types.Named)
		if !ok || named.Obj().Pkg() != object.Pkg() || seen[named.Origin()] {
			return
		}
		seen[named.Origin()] = true
		s, ok := named.Underlying().(*types.Struct)
		if !ok {
			return
		}
		count += s.NumFields()
		for field := range s.Fields() {
			pointer, isPointer := types.Unalias(field.Type()).(*types.Pointer)
			switch {
			case isPointer:
				visit(pointer.Elem())
			case field.Embedded():
				visit(field.Type())
			}
		}
	}
	visit(object.Type())
	return count
}
