// SPDX-License-Identifier: Apache-2.0

// Command figures compares figures that are quoted in README.md and docs with the result
// files of docs/benchmarks:
//
//	figures [-update] [FILE...]
//
// A marker follows the figure that it is about, and names suite, table, case and name in the
// suite's JSON file:
//
//	4.6 ms<!-- figure admission; 100 decisions at once on Redis, limit 2; Atomic; p95 -->
//
// A figure is right if it is that of the file, rounded to as many digits. A fifth part is what it
// is divided by, for another unit: "/ 1000". -update writes what the files say. A table with a
// column "measured" has a marker in each of its rows, or says why not: <!-- no figure: why -->.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// results is where the files of the suites are.
const results = "docs/benchmarks"

var errFigures = errors.New("quoted figures are not those of " + results + "; go run ./hack/figures -update writes them anew")

func main() {
	update := flag.Bool("update", false, "write what the files say")
	flag.Parse()
	if err := run(".", *update); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

// run checks all pages below root that quote figures.
func run(root string, update bool) error {
	files, err := pages(root)
	if err != nil {
		return err
	}
	b, found := book{root: root, suites: map[string]map[key]float64{}}, 0
	var problems []error
	for _, path := range files {
		n, wrong, err := b.page(path, update)
		if err != nil {
			return err
		}
		found, problems = found+n, append(problems, wrong...)
	}
	if len(problems) > 0 && !update {
		return fmt.Errorf("%w:\n%w", errFigures, errors.Join(problems...))
	}
	if found == 0 {
		return errors.New("no page quotes a figure: do markers look different now?")
	}
	fmt.Printf("%d quoted figures\n", found)
	return nil
}

// page checks one, and writes it anew if that is asked for.
func (b book) page(path string, update bool) (found int, problems []error, err error) {
	file := filepath.Join(b.root, path)
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, nil, fmt.Errorf("read page: %w", err)
	}
	now, found, wrong := b.check(string(text))
	for _, p := range wrong {
		problems = append(problems, fmt.Errorf("%s: %w", path, p))
	}
	if update && now != string(text) {
		if err := os.WriteFile(file, []byte(now), 0o600); err != nil { //nolint:gosec // a page that was found below root
			return 0, nil, fmt.Errorf("write page: %w", err)
		}
	}
	return found, problems, nil
}

// pages are README.md and those of docs, but for what the suites write themselves.
func pages(root string) ([]string, error) {
	list := []string{"README.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		written := filepath.Dir(rel) == filepath.FromSlash(results) && d.Name() != "README.md"
		if d.Type().IsRegular() && filepath.Ext(path) == ".md" && !written {
			list = append(list, rel)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for pages: %w", err)
	}
	return list, nil
}

// key names a figure within a suite.
type key struct{ table, kase, name string }

// book has the figures of the suites that were asked for.
type book struct {
	root   string
	suites map[string]map[key]float64
}

// figure is one of a suite's.
func (b book) figure(suite string, k key) (float64, error) {
	if b.suites[suite] == nil {
		figures, err := b.read(suite)
		if err != nil {
			return 0, err
		}
		b.suites[suite] = figures
	}
	value, ok := b.suites[suite][k]
	if !ok {
		return 0, fmt.Errorf("%s has no figure %q of %q in %q", suite, k.name, k.kase, k.table)
	}
	return value, nil
}

func (b book) read(suite string) (map[key]float64, error) {
	if strings.ContainsAny(suite, `/\.`) {
		return nil, fmt.Errorf("%q is no name of a suite", suite)
	}
	data, err := os.ReadFile(filepath.Join(b.root, results, suite+".json"))
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	var file struct {
		Figures []struct {
			Table, Case, Name string
			Value             float64
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("results of %s: %w", suite, err)
	}
	figures := map[key]float64{}
	for _, f := range file.Figures {
		figures[key{f.Table, f.Case, f.Name}] = f.Value
	}
	return figures, nil
}
