// SPDX-License-Identifier: Apache-2.0

package dag

import "fmt"

const (
	maxTypos   = 2  // letters that differ between a name and what may be meant
	maxNearest = 10 // problems of a spec with a name that may be meant: to find it takes time
)

// isIt asks whether a step with a similar name is meant; "": there is none. It does so for the run
// at the top only: the runs in it may be many.
func (v *validator) isIt(name string) string {
	if v.nest.Level > 1 || len(v.problems) >= maxNearest || len(name) > maxStepName {
		return ""
	}
	best, least := "", min(maxTypos, len(name)/2)+1
	for i := range v.plan.Steps {
		is := v.plan.Steps[i].Name
		if d := distance(name, is); d > 0 && d < least { // 0: a step that may not be meant here
			best, least = is, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; is it %s?", quote(best))
}

// distance is how many letters of a have to be added, left out or changed to make b of it.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}
