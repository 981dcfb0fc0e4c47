// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	// marked is a number, what is between it and its marker, and the marker's parts.
	marked = regexp.MustCompile(`(\d[\d,]*(?:\.\d+)?)([^\d<>|]*)<!-- figure ([^>]*?) -->`)
	// marker is one with or without a number.
	marker  = regexp.MustCompile(`<!-- figure [^>]*-->`)
	excused = regexp.MustCompile(`<!-- no figure: [^>]+-->`)
	digit   = regexp.MustCompile(`\d`)
)

// check compares the figures of a page, and says what the page should be.
func (b book) check(text string) (now string, found int, problems []error) {
	lines := strings.Split(text, "\n")
	measured := -1 // the column of that name in the table at hand
	for i, line := range lines {
		report := func(err error) { problems = append(problems, fmt.Errorf("line %d: %w", i+1, err)) }
		if !strings.HasPrefix(line, "|") {
			measured = -1
		} else if c := slices.Index(cells(line), "measured"); c >= 0 {
			measured = c
		} else if measured >= 0 && unmarked(line, measured) {
			report(errors.New("a figure without a marker"))
		}
		n := 0
		lines[i] = marked.ReplaceAllStringFunc(line, func(s string) string {
			n++
			m := marked.FindStringSubmatch(s)
			want, err := b.wanted(m[1], m[3])
			if err != nil {
				report(err)
				return s
			}
			if want != m[1] {
				report(fmt.Errorf("%s: quoted %s, measured %s", m[3], m[1], want))
			}
			return want + strings.TrimPrefix(s, m[1])
		})
		if len(marker.FindAllString(line, -1)) != n {
			report(errors.New("a marker without a figure before it"))
		}
		found += n
	}
	return strings.Join(lines, "\n"), found, problems
}

func cells(line string) []string {
	all := strings.Split(strings.Trim(line, "|"), "|")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// unmarked says whether a row has digits in a column, no marker, and no excuse.
func unmarked(row string, column int) bool {
	all := cells(row)
	return column < len(all) && digit.MatchString(all[column]) && !marker.MatchString(all[column]) && !excused.MatchString(all[column])
}

// wanted is the figure that a marker names, with as many digits as it is quoted with.
func (b book) wanted(quoted, parts string) (string, error) {
	names := strings.Split(parts, ";")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	if len(names) != 4 && len(names) != 5 {
		return "", fmt.Errorf("%q does not name suite; table; case; name", parts)
	}
	value, err := b.figure(names[0], key{names[1], names[2], names[3]})
	if err != nil {
		return "", err
	}
	if len(names) == 5 {
		by, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimPrefix(names[4], "/")), 64)
		if err != nil || by == 0 {
			return "", fmt.Errorf("%q is nothing to divide by", names[4])
		}
		value /= by
	}
	return rounded(quoted, value), nil
}

// rounded is a value with as many digits after the point as a quoted one has. Thousands have a
// comma if those of the quoted one could.
func rounded(quoted string, value float64) string {
	_, fraction, _ := strings.Cut(quoted, ".")
	text := strconv.FormatFloat(value, 'f', len(fraction), 64)
	whole, rest, _ := strings.Cut(text, ".")
	if strings.Contains(quoted, ",") {
		for i := len(whole) - 3; i > 0; i -= 3 {
			whole = whole[:i] + "," + whole[i:]
		}
	}
	if rest != "" {
		whole += "." + rest
	}
	return whole
}
