// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/expr"
)

const (
	// maxListBytes bounds what is remembered of lists of all runs, in bytes, by expr.MemoryOf.
	maxListBytes = 64 << 20
	// maxRunLists is the part of it that one run may have: two lists of the largest size.
	maxRunLists = maxListBytes / 2
)

// lists remembers what lists the steps with forEach of runs go over, and the keys of locks that are
// waited for, so that they are not evaluated again for each decision. All of it follows from the
// runs: what does not fit is forgotten, and costs time only.
type lists struct {
	mu    sync.Mutex
	byRun map[types.UID]remembered
	bytes int
}

type remembered struct {
	bySteps map[string][]any
	bytes   int
}

// knownLists are those of the decision before. They are not evaluated twice in a pass, also where
// they are too large to be remembered after it, or other runs took their room.
func knownLists(p *pass) map[string][]any {
	if p.lists != nil {
		return p.lists
	}
	return p.r.lists.of(p.run.UID)
}

func (l *lists) of(uid types.UID) map[string][]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byRun[uid].bySteps
}

// keep remembers the lists of a run in place of those before; none: it is forgotten.
func (l *lists) keep(uid types.UID, bySteps map[string][]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.byRun[uid]
	if sameLists(before.bySteps, bySteps) {
		return
	}
	l.bytes -= before.bytes
	delete(l.byRun, uid)
	if len(bySteps) == 0 {
		return
	}
	now := remembered{bySteps: bySteps}
	for _, list := range bySteps {
		now.bytes += expr.MemoryOf(list)
	}
	if now.bytes > maxRunLists {
		return // nobody is forgotten for what finds no room
	}
	for other, r := range l.byRun {
		if l.bytes+now.bytes <= maxListBytes {
			break
		}
		l.bytes -= r.bytes
		delete(l.byRun, other)
	}
	if l.byRun == nil {
		l.byRun = map[types.UID]remembered{}
	}
	l.byRun[uid] = now
	l.bytes += now.bytes
}

// sameLists says whether both are the same lists, without looking into them: they
// are never changed.
func sameLists(a, b map[string][]any) bool {
	if len(a) != len(b) {
		return false
	}
	for step, list := range a {
		other, ok := b[step]
		if !ok || len(list) != len(other) || (len(list) > 0 && &list[0] != &other[0]) {
			return false
		}
	}
	return true
}
