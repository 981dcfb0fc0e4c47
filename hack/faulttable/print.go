// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (a *account) print(out io.Writer) {
	parts := a.parts()
	a.printParts(out, parts)
	fmt.Fprint(out, "\n| fault, by itself or in a pair | times | violations | longest stall |\n|---|---|---|---|\n")
	for _, fault := range slices.SortedFunc(maps.Keys(a.Faults), byNumber) {
		t := a.Faults[fault]
		fmt.Fprintf(out, "| %s | %d | %d | %s |\n", fault, t.Times, t.Wrong, t.Stall)
	}
	fmt.Fprintf(out, "\n| counted by the operators | %s |\n|---%s|\n", strings.Join(parts, " | "), strings.Repeat("|---", len(parts)))
	for _, what := range slices.Sorted(maps.Keys(a.Counted)) {
		fmt.Fprintf(out, "| %s |", what)
		for _, part := range parts {
			fmt.Fprintf(out, " %d |", a.Counted[what][part])
		}
		fmt.Fprintln(out)
	}
}

// parts are those that were played.
func (a *account) parts() []string {
	all := map[string]bool{}
	for _, p := range a.Plays {
		all[p.Part] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func (a *account) printParts(out io.Writer, parts []string) {
	fmt.Fprint(out, "| part | plays | time | rounds | strikes | results | violations | longest stall | last seeds |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, part := range parts {
		var sum play
		var plays int
		var last string
		for _, p := range a.Plays {
			if p.Part != part {
				continue
			}
			plays++
			sum.Strikes, sum.Results = sum.Strikes+p.Strikes, sum.Results+p.Results
			sum.Rounds, sum.Wrong, sum.Took, sum.Stall = sum.Rounds+p.Rounds, sum.Wrong+p.Wrong, sum.Took+p.Took, max(sum.Stall, p.Stall)
			last = fmt.Sprintf("%d from %d", p.Rounds, p.FirstSeed)
			if p.Commit != "" {
				last += " at " + p.Commit
			}
		}
		took := time.Duration(float64(sum.Took) * float64(time.Second)).Round(time.Second)
		fmt.Fprintf(out, "| %s | %d | %s | %d | %d | %d | %d | %s | %s |\n", part, plays, took, sum.Rounds, sum.Strikes, sum.Results, sum.Wrong, sum.Stall, last)
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
