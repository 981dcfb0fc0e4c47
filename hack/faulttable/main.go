// SPDX-License-Identifier: Apache-2.0

// Command faulttable makes one table of the output of several plays of test/faults:
//
//	faulttable [-totals FILE [-commit NAME]] [-page PAGE [-check]] [FILE...]
//
// It reads the line of each strike, and prints plays, faults and what the operators counted, as
// tables of Markdown. A strike of two faults counts for both. -totals adds the rounds to those of
// a file, and prints all. -page writes the tables between the two markers of a page instead; with
// -check it fails where they are not there.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// The tables of a page are between these.
const (
	begin = "<!-- faults: what follows is written by hack/faulttable -->\n"
	end   = "<!-- end of faults -->\n"
)

// options are the flags.
type options struct {
	totals, commit, page string
	check                bool
}

func main() {
	var o options
	flag.StringVar(&o.totals, "totals", "", "file that the rounds are added to")
	flag.StringVar(&o.commit, "commit", "", "what the plays are plays of")
	flag.StringVar(&o.page, "page", "", "page to write the tables into")
	flag.BoolVar(&o.check, "check", false, "fail where the page has other tables, and write nothing")
	flag.Parse()
	if err := run(o, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "faulttable:", err)
		os.Exit(1)
	}
}

func run(o options, paths []string, out io.Writer) error {
	a, err := load(o.totals)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := a.readFile(path, o.commit); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
	}
	if len(a.Plays) == 0 {
		return errors.New("no round was played")
	}
	if o.totals != "" && len(paths) > 0 {
		if err := a.save(o.totals); err != nil {
			return err
		}
	}
	if o.page == "" {
		a.print(out)
		return nil
	}
	return a.onPage(o.page, o.check)
}

// onPage writes the tables where the markers of a page are, or compares them with what is there.
func (a *account) onPage(path string, check bool) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no line %q, or none %q after it", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	var tables strings.Builder
	a.print(&tables)
	now := before + begin + "\n" + tables.String() + "\n" + end + after
	switch {
	case now == string(text):
		return nil
	case check:
		return fmt.Errorf("%s has other tables than the totals: make faults-page writes them", path)
	}
	if err := os.WriteFile(path, []byte(now), 0o600); err != nil { //nolint:gosec // a page that is there keeps its mode
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}
