// SPDX-License-Identifier: Apache-2.0

// Command bugs fails where a test that docs/bugs.md names does not exist: a bug whose test was
// renamed away would come back unseen.
//
// It is run in the root of the repository.
package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

func main() {
	page, err := os.ReadFile("docs/bugs.md")
	if err == nil {
		err = check(string(page), ".")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// header is the first line of each table of bugs.
const header = "| id | what it was | how it was found | test |"

// row is a bug and what is said of its tests.
type row struct {
	line      int
	id, tests string
}

// check says all that is wrong with a page whose paths begin at root.
func check(page, root string) error {
	rows, err := rowsOf(page)
	var all []error
	if err != nil {
		all = append(all, err)
	}
	if len(rows) == 0 {
		all = append(all, errors.New("there is no bug in the page"))
	}
	seen, files := map[string]bool{}, sources{root: root}
	for _, r := range rows {
		if seen[r.id] {
			all = append(all, fmt.Errorf("line %d: %s is there twice", r.line, r.id))
		}
		seen[r.id] = true
		if err := files.checkTests(r.tests); err != nil {
			all = append(all, fmt.Errorf("line %d, %s: %w", r.line, r.id, err))
		}
	}
	return errors.Join(all...)
}

// rowsOf are the rows of the page's tables of bugs, and what is wrong with others of their lines.
func rowsOf(page string) ([]row, error) {
	var rows []row
	var all []error
	inside := false
	for i, line := range strings.Split(page, "\n") {
		switch {
		case line == header:
			inside = true
		case !strings.HasPrefix(line, "|"):
			inside = false
		case !inside:
			all = append(all, fmt.Errorf("line %d: a table that does not begin with %q", i+1, header))
		case strings.Trim(line, "|-") != "":
			r, err := rowOf(i+1, line)
			if err != nil {
				all = append(all, err)
				continue
			}
			rows = append(rows, r)
		}
	}
	return rows, errors.Join(all...)
}

func rowOf(n int, line string) (row, error) {
	cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	if len(cells) != 4 || cells[0] == "" || cells[1] == "" || cells[2] == "" {
		return row{}, fmt.Errorf("line %d: want an id, what it was, how it was found, and tests", n)
	}
	return row{line: n, id: cells[0], tests: cells[3]}, nil
}

// named is one test: a path, then a function's name or a text in quotes.
var named = regexp.MustCompile("^`([^`:]+_test\\.(?:go|yaml)): (?:([A-Za-z0-9_]+)|\"([^`]+)\")`$")

// separator is between two tests. A comma inside a text is followed by no backquote.
var separator = regexp.MustCompile("`, *`")

func (s sources) checkTests(cell string) error {
	var all []error
	for _, one := range separator.Split(cell, -1) {
		one = "`" + strings.Trim(one, "`") + "`"
		m := named.FindStringSubmatch(one)
		if m == nil {
			all = append(all, fmt.Errorf("%s is not `path_test.go: TestName` or `path_test.go: \"text\"`", one))
			continue
		}
		if err := s.checkTest(m[1], m[2], m[3]); err != nil {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}
