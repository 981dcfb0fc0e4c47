// SPDX-License-Identifier: Apache-2.0

// Command faulttable makes one table of the output of several plays of test/faults:
//
//	faulttable FILE...
//
// It reads the line of each round, and prints parts, faults and what the operators counted, as
// tables of Markdown. A round with two faults counts for both.
package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// round is what a play prints of one: "PART=one SEEDS=7: redis hangs + watches cut at 12 results;
// longest stall 1.2s; round 20.3s; counted: lease lost 2, job looked up 1".
var round = regexp.MustCompile(`PART=(\w+) SEEDS=(\d+): (.+) at \d+ results; longest stall (\S+); round \S+; counted: (.*)$`)

// wrong is what it prints of a violation.
var wrong = regexp.MustCompile(`PART=(\w+) SEEDS=(\d+), (.+?): `)

// resultsOfARound is how many results each round has.
const resultsOfARound = 120

type tally struct {
	rounds, violations int
	stall              time.Duration
}

// account is that of all files.
type account struct {
	parts, faults map[string]*tally
	counted       map[string]map[string]int // what, by part
	seeds         map[string][]uint64       // the first of each file, by part
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "faulttable:", err)
		os.Exit(1)
	}
}

func run(paths []string, out io.Writer) error {
	a := account{parts: map[string]*tally{}, faults: map[string]*tally{}, counted: map[string]map[string]int{}, seeds: map[string][]uint64{}}
	for _, path := range paths {
		f, err := os.Open(path) //nolint:gosec // whoever calls it names its files
		if err != nil {
			return fmt.Errorf("read a play: %w", err)
		}
		err = errors.Join(a.read(f), f.Close())
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
	}
	if len(a.parts) == 0 {
		return errors.New("no round was played")
	}
	a.print(out)
	return nil
}

// read adds a file.
func (a account) read(in io.Reader) error {
	first := true
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if m := round.FindStringSubmatch(lines.Text()); m != nil {
			if err := a.add(m[1], m[2], m[3], m[4], m[5], first); err != nil {
				return err
			}
			first = false
		} else if m := wrong.FindStringSubmatch(lines.Text()); m != nil {
			a.violated(m[1], m[3])
		}
	}
	return lines.Err()
}

func (a account) add(part, seed, faults, stall, counted string, first bool) error {
	longest, err := time.ParseDuration(stall)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return err
	}
	if first {
		a.seeds[part] = append(a.seeds[part], n)
	}
	for _, t := range a.tallies(part, faults) {
		t.rounds++
		t.stall = max(t.stall, longest)
	}
	for entry := range strings.SplitSeq(counted, ", ") {
		what, number, found := cutLast(entry, " ")
		count, err := strconv.Atoi(number)
		if !found || err != nil {
			continue // nothing was counted
		}
		if a.counted[what] == nil {
			a.counted[what] = map[string]int{}
		}
		a.counted[what][part] += count
	}
	return nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func (a account) violated(part, faults string) {
	for _, t := range a.tallies(part, faults) {
		t.violations++
	}
}

// tallies are those of a part and of each fault of a round.
func (a account) tallies(part, faults string) []*tally {
	all := []*tally{of(a.parts, part)}
	for fault := range strings.SplitSeq(faults, " + ") {
		all = append(all, of(a.faults, fault))
	}
	return all
}

func of(all map[string]*tally, name string) *tally {
	if all[name] == nil {
		all[name] = &tally{}
	}
	return all[name]
}

func (a account) print(out io.Writer) {
	fmt.Fprint(out, "| part | rounds | results | violations | longest stall | first seeds |\n|---|---|---|---|---|---|\n")
	for _, part := range slices.Sorted(maps.Keys(a.parts)) {
		t := a.parts[part]
		fmt.Fprintf(out, "| %s | %d | %d | %d | %.1f s | %s |\n", part, t.rounds, t.rounds*resultsOfARound, t.violations, t.stall.Seconds(), strings.Trim(fmt.Sprint(a.seeds[part]), "[]"))
	}
	fmt.Fprint(out, "\n| fault, by itself or in a pair | rounds | violations | longest stall |\n|---|---|---|---|\n")
	for _, fault := range slices.SortedFunc(maps.Keys(a.faults), byNumber) {
		t := a.faults[fault]
		fmt.Fprintf(out, "| %s | %d | %d | %.1f s |\n", fault, t.rounds, t.violations, t.stall.Seconds())
	}
	parts := slices.Sorted(maps.Keys(a.parts))
	fmt.Fprintf(out, "\n| counted by the operators | %s |\n|---%s|\n", strings.Join(parts, " | "), strings.Repeat("|---", len(parts)))
	for _, what := range slices.Sorted(maps.Keys(a.counted)) {
		fmt.Fprintf(out, "| %s |", what)
		for _, part := range parts {
			fmt.Fprintf(out, " %d |", a.counted[what][part])
		}
		fmt.Fprintln(out)
	}
}

// byNumber has the faults with numbers first, in their order.
func byNumber(a, b string) int {
	return cmp.Or(cmp.Compare(number(a), number(b)), cmp.Compare(a, b))
}

func number(fault string) int {
	digits := fault[:len(fault)-len(strings.TrimLeft(fault, "0123456789"))]
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 1000
	}
	return n
}
