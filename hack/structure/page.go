// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
)

// shown is how many types and cycles the tables have.
const shown = 10

// tables is what the program prints, and what the page has.
func (f figures) tables() string {
	var b strings.Builder
	row := func(cells ...any) {
		for _, c := range cells {
			fmt.Fprintf(&b, "| %v ", c)
		}
		b.WriteString("|\n")
	}
	row("type", "methods", "fields reached")
	row("---", "---", "---")
	for _, t := range f.types[:min(shown, len(f.types))] {
		row("`"+t.name+"`", t.methods, t.fields)
	}
	b.WriteString("\n")
	row("package", "files in the largest call cycle")
	row("---", "---")
	for _, c := range f.cycles[:min(shown, len(f.cycles))] {
		row("`"+c.name+"`", fmt.Sprintf("%d of %d", len(c.files), c.of))
	}
	b.WriteString("\n")
	row("lines of", "p90", "most", "which")
	row("---", "---", "---", "---")
	for _, s := range []struct {
		name string
		all  sizes
	}{{"functions", f.functions}, {"files", f.files}} {
		if len(s.all) > 0 {
			row(s.name, s.all.p90(), s.all[0].lines, "`"+s.all[0].name+"`")
		}
	}
	return b.String()
}

const (
	begin = "<!-- structure: written by go run ./hack/structure -update -->\n"
	end   = "<!-- structure: end -->\n"
)

// rewrite puts the tables between the markers of a page.
func rewrite(path, tables string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s has no markers %q and %q", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	if err := os.WriteFile(path, []byte(before+begin+"\n"+tables+"\n"+end+after), 0o600); err != nil { //nolint:gosec // the page of this repository
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}
