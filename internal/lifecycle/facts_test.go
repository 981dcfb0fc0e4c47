// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoStageChangesTheFacts looks at each assignment of the package: only newDraft makes the
// facts, so a stage may be read without the others that see the same facts. (What the facts point
// to is looked at by TestItemsByChance and FuzzDecide: the run is the same after Decide.)
// mutation: d.in.Tenant = ... in claimParent, or d.now = d.now.Add(1) in a stage.
func TestNoStageChangesTheFacts(t *testing.T) {
	set := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, to := range targets(n) {
				checked++
				if isFact(to) {
					t.Errorf("%s: a fact is changed", set.Position(to.Pos()))
				}
			}
			return true
		})
	}
	if checked < 100 {
		t.Errorf("%d assignments found: this test looks at the wrong files", checked)
	}
}

// targets are the expressions whose value n changes, or lets others change.
func targets(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		return n.Lhs
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	}
	return nil
}

// isFact says whether e is d.in, d.run, d.now, d.plan, d.given, or a part of one.
func isFact(e ast.Expr) bool {
	for {
		switch x := e.(type) {
		case *ast.SelectorExpr:
			if root, ok := x.X.(*ast.Ident); ok && root.Name == "d" {
				switch x.Sel.Name {
				case "given", "in", "run", "now", "plan":
					return true
				}
			}
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return false
		}
	}
}
