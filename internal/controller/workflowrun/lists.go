// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"cmp"
	"slices"
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
//
// What one namespace has takes no room of another that has less: of n namespaces each is sure of an
// n-th of all, and may have more where others leave it. Within a namespace small lists are kept
// before large ones: those of most runs are tiny.
type lists struct {
	mu     sync.Mutex
	byRun  map[types.UID]remembered
	bySize map[string]*byteSizes // by namespace
	bytes  int
}

type remembered struct {
	namespace string
	bySteps   map[string][]any
	bytes     int
}

// byteSizes are the runs of a namespace by what is remembered of them, the largest last.
type byteSizes struct {
	runs  []sized
	bytes int
}

type sized struct {
	bytes int
	uid   types.UID
}

func (s sized) compare(other sized) int {
	return cmp.Or(cmp.Compare(s.bytes, other.bytes), cmp.Compare(s.uid, other.uid))
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
func (l *lists) keep(namespace string, uid types.UID, bySteps map[string][]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sameLists(l.byRun[uid].bySteps, bySteps) {
		return
	}
	l.drop(uid)
	if len(bySteps) == 0 {
		return
	}
	now := remembered{namespace: namespace, bySteps: bySteps}
	for _, list := range bySteps {
		now.bytes += expr.MemoryOf(list)
	}
	if now.bytes <= maxRunLists && l.makeRoom(namespace, now.bytes) {
		l.add(uid, now)
	}
}

// forget forgets the lists of a run.
func (l *lists) forget(uid types.UID) { l.keep("", uid, nil) }

// makeRoom forgets lists for so many bytes of a namespace: the largest of those that would still
// have more than it, or else a larger one of its own. If neither is enough nobody is forgotten, and
// there is no room. l.mu is held.
func (l *lists) makeRoom(namespace string, bytes int) bool {
	lacks := func() int { return l.bytes + bytes - maxListBytes }
	if lacks() <= 0 {
		return true
	}
	own, excess := l.bySize[namespace], 0
	if own == nil {
		own = &byteSizes{}
	}
	for name, other := range l.bySize {
		if name != namespace {
			excess += max(0, other.bytes-own.bytes-bytes)
		}
	}
	if excess >= lacks() {
		for lacks() > 0 {
			l.drop(l.most(namespace).largest().uid)
		}
		return true
	}
	if len(own.runs) == 0 || own.largest().bytes <= bytes {
		return false
	}
	l.drop(own.largest().uid) // which is more than what is lacking
	return true
}

// most is the namespace that has the most, but for one. l.mu is held.
func (l *lists) most(except string) *byteSizes {
	most := &byteSizes{}
	for name, sizes := range l.bySize {
		if name != except && sizes.bytes > most.bytes {
			most = sizes
		}
	}
	return most
}

func (s *byteSizes) largest() sized { return s.runs[len(s.runs)-1] }

func (l *lists) add(uid types.UID, r remembered) {
	if l.byRun == nil {
		l.byRun, l.bySize = map[types.UID]remembered{}, map[string]*byteSizes{}
	}
	sizes := l.bySize[r.namespace]
	if sizes == nil {
		sizes = &byteSizes{}
		l.bySize[r.namespace] = sizes
	}
	entry := sized{r.bytes, uid}
	at, _ := slices.BinarySearchFunc(sizes.runs, entry, sized.compare)
	sizes.runs = slices.Insert(sizes.runs, at, entry)
	sizes.bytes += r.bytes
	l.byRun[uid] = r
	l.bytes += r.bytes
}

func (l *lists) drop(uid types.UID) {
	r, ok := l.byRun[uid]
	if !ok {
		return
	}
	sizes := l.bySize[r.namespace]
	if at, found := slices.BinarySearchFunc(sizes.runs, sized{r.bytes, uid}, sized.compare); found {
		sizes.runs = slices.Delete(sizes.runs, at, at+1)
	}
	sizes.bytes -= r.bytes
	if len(sizes.runs) == 0 {
		delete(l.bySize, r.namespace)
	}
	l.bytes -= r.bytes
	delete(l.byRun, uid)
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
