// SPDX-License-Identifier: Apache-2.0

package dag

import "slices"

// Width bounds how many of spec.steps that take a place can be under way at the same time: each
// chain of steps that wait for one another has one at most. It may be too large, never too small.
//
// Example: a, then b and c side by side, then d, is 2 wide.
func (p *Plan) Width() int {
	var steps []int
	for i := range p.Main {
		if TakesPlace(&p.Steps[i]) {
			steps = append(steps, i)
		}
	}
	ancestors := make(map[int]map[int]bool, len(steps))
	for _, i := range steps {
		ancestors[i] = map[int]bool{}
		for _, j := range p.Ancestors(i) {
			ancestors[i][j] = true
		}
	}
	slices.SortStableFunc(steps, func(a, b int) int { return len(ancestors[a]) - len(ancestors[b]) })
	var ends []int // of the chains so far
	for _, i := range steps {
		k := slices.IndexFunc(ends, func(end int) bool { return ancestors[i][end] })
		if k < 0 {
			ends = append(ends, i)
			continue
		}
		ends[k] = i
	}
	return len(ends)
}
