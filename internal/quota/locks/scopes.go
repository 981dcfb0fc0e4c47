// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"strings"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// scope is a part of a tree of runs: all of it, or the items of a step, or a run with those below
// it. Nothing waits for another tree but by a lock.
type scope struct {
	tree string
	step string // its ticket
	run  string
}

// needs are the scopes in which what waits has to go on before what holds its locks ends, by the
// runs that there are. A run ends after all that is below it, so after each wait of its tree. A
// step ends after its items, or its child run, and else by itself, as an item does: other steps of
// the run may wait meanwhile.
func (v *view) needs(held store.Ticket) []scope {
	_, step, isStep := strings.Cut(held.ID, "/")
	if !isStep {
		return []scope{{tree: held.Tree}}
	}
	all := []scope{{tree: held.Tree, step: held.ID}}
	if child := v.runs[uidOf(held.ID)].childOf(step); child != "" {
		all = append(all, scope{tree: held.Tree, run: child})
	}
	return all
}

// within are the scopes that one that waits is inside of.
func (v *view) within(waits store.Ticket) []scope {
	all := []scope{{tree: waits.Tree}}
	if item := strings.LastIndexByte(waits.ID, '/'); item >= 0 {
		all = append(all, scope{tree: waits.Tree, step: waits.ID[:item]})
	}
	run := waits.Run
	for level := 0; level < maxLevels && run != ""; level++ {
		all = append(all, scope{tree: waits.Tree, run: run})
		run = v.parents[run]
	}
	return all
}

// maxLevels bounds the way up a tree of runs.
const maxLevels = 100

// childOf names the child run of a step; "": it has none.
func (f fact) childOf(step string) string {
	if f.status == nil {
		return ""
	}
	if s := stepNamed(f.status.Steps, step); s != nil && s.ChildRun != nil {
		return f.name.Namespace + "/" + s.ChildRun.Name
	}
	return ""
}
