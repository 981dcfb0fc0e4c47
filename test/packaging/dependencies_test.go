// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const dependenciesPage = "docs/adr/0009-dependencies.md"

// mutation: a module taken out of the page, or one added that no go.mod names, makes this fail.
func TestThePageOfDependenciesHasEachDirectModule(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(moduleRoot, dependenciesPage))
	if err != nil {
		t.Fatal(err)
	}
	// A path has a dot in its first part, and a slash.
	named := regexp.MustCompile("`([a-z0-9]+(\\.[a-z0-9]+)+/[A-Za-z0-9/._-]+)`").FindAllStringSubmatch(string(page), -1)
	var explained []string
	for _, n := range named {
		explained = append(explained, n[1])
	}
	direct := directModules(t)
	for _, m := range direct {
		if !slices.ContainsFunc(explained, func(e string) bool { return m == e || strings.HasPrefix(m, e+"/") }) {
			t.Errorf("%s does not explain %s", dependenciesPage, m)
		}
	}
	for _, e := range explained {
		if !slices.ContainsFunc(direct, func(m string) bool { return m == e || strings.HasPrefix(m, e+"/") }) {
			t.Errorf("%s explains %s, which no go.mod names", dependenciesPage, e)
		}
	}
}

// directModules are the modules and tools that our go.mod files name for themselves.
func directModules(t *testing.T) (all []string) {
	t.Helper()
	for _, file := range goMods(t) {
		text, err := run(nil, "go", "mod", "edit", "-json", file)
		if err != nil {
			t.Fatal(err)
		}
		var mod struct {
			Require []struct {
				Path     string
				Indirect bool
			}
			Tool []struct{ Path string }
		}
		if err := json.Unmarshal(text, &mod); err != nil {
			t.Fatal(err)
		}
		for _, r := range mod.Require {
			if !r.Indirect && r.Path != "github.com/syncopate-dev/syncopate" {
				all = append(all, r.Path)
			}
		}
		for _, tool := range mod.Tool {
			all = append(all, tool.Path)
		}
	}
	return all
}

// goMods are those of the repository, below moduleRoot. What is in bin was built.
func goMods(t *testing.T) (files []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(moduleRoot), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"bin", "node_modules", ".git"}, d.Name()):
			return fs.SkipDir
		case d.Name() == "go.mod":
			files = append(files, path)
		}
		return nil
	})
	if err != nil || len(files) < 2 {
		t.Fatalf("go.mod files %v, %v", files, err)
	}
	return files
}
