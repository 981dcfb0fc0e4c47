// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// graph has, for each file, those with functions that it uses, and which these are.
type graph map[string]map[string]map[string]bool

// add notes that one file uses a function of another; "" is none.
func (g graph) add(from, to, function string) {
	if g[from] == nil {
		g[from] = map[string]map[string]bool{}
	}
	if to == "" {
		return
	}
	if g[from][to] == nil {
		g[from][to] = map[string]bool{}
	}
	g[from][to][function] = true
}

// arrows lists the calls between these files, one line for each pair.
func (g graph) arrows(files []string) (lines []string) {
	for _, from := range files {
		for _, to := range files {
			if used := g[from][to]; from != to && len(used) > 0 {
				lines = append(lines, fmt.Sprintf("%s -> %s: %s", from, to, strings.Join(slices.Sorted(maps.Keys(used)), ", ")))
			}
		}
	}
	return lines
}

// largestCycle is the largest set of files of which each reaches each other, sorted: the largest
// strongly connected component.
func (g graph) largestCycle() []string {
	var largest []string
	reached := map[string]map[string]bool{}
	for file := range g {
		reached[file] = g.reach(file)
	}
	for _, file := range slices.Sorted(maps.Keys(g)) {
		var files []string
		for other := range reached[file] {
			if reached[other][file] {
				files = append(files, other)
			}
		}
		if len(files) > len(largest) {
			slices.Sort(files)
			largest = files
		}
	}
	return largest
}

// reach is a file and all that it uses, directly or through others.
func (g graph) reach(file string) map[string]bool {
	seen, next := map[string]bool{file: true}, []string{file}
	for len(next) > 0 {
		last := next[len(next)-1]
		next = next[:len(next)-1]
		for to := range g[last] {
			if !seen[to] {
				seen[to] = true
				next = append(next, to)
			}
		}
	}
	return seen
}
