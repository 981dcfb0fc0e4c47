// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// write stores the report in dir, as JSON, as a page for people, and its plots; an empty
// dir stores nothing.
func (r *report) write(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory of results: %w", err)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, r.Suite+".json"), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, r.Suite+".md"), []byte(r.page()), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	for _, p := range r.plots {
		if err := p.draw(filepath.Join(dir, r.file(p))); err != nil {
			return err
		}
	}
	return nil
}

func (r *report) file(p plot) string { return r.Suite + "-" + p.name + ".svg" }

// page is the report as Markdown.
func (r *report) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s. Written by `make bench-%s BENCH_ARGS=-update`; [what the figures mean](README.md).\n\n```\n",
		r.Suite, strings.ToUpper(r.About[:1])+r.About[1:], r.Suite)
	r.Machine.print(&b)
	r.print(&b)
	b.WriteString("```\n")
	for _, p := range r.plots {
		fmt.Fprintf(&b, "\n![%s](%s)\n", p.name, r.file(p))
	}
	return b.String()
}
