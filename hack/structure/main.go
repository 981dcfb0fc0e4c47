// SPDX-License-Identifier: Apache-2.0

// Command structure measures how far the concerns of this module are apart:
//
//	structure [-check] [-update] [-calls PACKAGE] [-C DIR]
//
// It prints the types with the most methods and the fields that each method of them reaches, the
// files in the largest call cycle of each package, and the lines of functions and files. Tests and
// generated code do not count.
//
// -calls lists the calls that make the largest cycle of one package, say internal/bus. -check
// fails where a figure is above its limit. -update writes the figures into docs/structure.md,
// which explains them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// limits are the most that -check allows.
var limits = limit{methods: 50, cycle: 5, function90: 22, function: 57, file: 500}

// page has the figures between two markers.
const page = "docs/structure.md"

func main() {
	dir := flag.String("C", ".", "root of the module to measure")
	check := flag.Bool("check", false, "fail above the limits")
	update := flag.Bool("update", false, "write the figures into "+page)
	calls := flag.String("calls", "", "list the calls in the largest cycle of this package, and nothing else")
	flag.Parse()
	if err := run(*dir, *calls, *check, *update); err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(1)
	}
}

func run(dir, calls string, check, update bool) error {
	f, err := measure(dir)
	if err != nil {
		return err
	}
	if calls != "" {
		fmt.Println(strings.Join(f.callsOf(calls), "\n"))
		return nil
	}
	fmt.Print(f.tables())
	if update {
		if err := rewrite(filepath.Join(dir, page), f.tables()); err != nil {
			return err
		}
	}
	if check {
		return errors.Join(f.above(limits)...)
	}
	return nil
}

// callsOf are those in the largest cycle of a package; none if it has no cycle.
func (f figures) callsOf(name string) []string {
	for _, c := range f.cycles {
		if c.name == name {
			return c.calls
		}
	}
	return nil
}

// limit has a field for each figure that -check looks at.
type limit struct{ methods, cycle, function90, function, file int }

// above lists what is over the limits.
func (f figures) above(l limit) []error {
	var all []error
	for _, t := range f.types {
		if t.methods > l.methods {
			all = append(all, fmt.Errorf("%s has %d methods; the limit is %d", t.name, t.methods, l.methods))
		}
	}
	for _, c := range f.cycles {
		if len(c.files) > l.cycle {
			all = append(all, fmt.Errorf("%s: %d files call each other in a cycle; the limit is %d: %v", c.name, len(c.files), l.cycle, c.files))
		}
	}
	if p := f.functions.p90(); p > l.function90 {
		all = append(all, fmt.Errorf("one function in ten has more than %d lines; the limit is %d", p, l.function90))
	}
	for _, s := range f.functions {
		if s.lines > l.function {
			all = append(all, fmt.Errorf("%s has %d lines; the limit is %d", s.name, s.lines, l.function))
		}
	}
	for _, s := range f.files {
		if s.lines > l.file {
			all = append(all, fmt.Errorf("%s has %d lines; the limit is %d", s.name, s.lines, l.file))
		}
	}
	return all
}
