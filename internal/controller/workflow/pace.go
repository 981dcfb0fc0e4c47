// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

const (
	// atOnceKept is how many revisions of a Workflow are kept at once, until it rests.
	atOnceKept = 20
	// firstPause is the time between the next two; it doubles with each, up to longestPause.
	firstPause   = time.Second
	longestPause = time.Minute
	// rest is how long a Workflow has no new revision until it may have some at once again. It is
	// longer than any pause: who edits all the time does not get there.
	rest = 2 * time.Minute
)

// pace spaces out the revisions of Workflows that are edited all the time: each is as large as its
// Workflow, and stays until the Sweeper comes. What is edited in a pause is kept once, as it is at
// the end. No run waits for this: one that needs a revision makes it itself. The zero
// value is ready.
type pace struct {
	mu     sync.Mutex
	edits  map[types.NamespacedName]edits
	pruned time.Time
}

// edits are the revisions of a Workflow that were kept without a rest in between.
type edits struct {
	n    int
	last time.Time
	// of which object, and as of which edit, the last one was
	uid        types.UID
	generation int64
}

func (e edits) has(w *v1alpha1.Workflow) bool { return e.uid == w.UID && e.generation == w.Generation }

func (e edits) rested(now time.Time) bool { return now.Sub(e.last) >= rest }

// wait is how long a Workflow has to wait until its revision may be kept. One whose revision is
// kept already does not.
func (p *pace) wait(w *v1alpha1.Workflow, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.edits[client.ObjectKeyFromObject(w)]
	if e.n < atOnceKept || e.has(w) || e.rested(now) {
		return 0
	}
	pause := min(firstPause<<min(e.n-atOnceKept, 10), longestPause)
	return max(0, e.last.Add(pause).Sub(now))
}

// kept notes that the revision of a Workflow is kept.
func (p *pace) kept(w *v1alpha1.Workflow, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := client.ObjectKeyFromObject(w)
	e := p.edits[key]
	if e.has(w) {
		return
	}
	if e.rested(now) {
		e.n = 0
	}
	if p.edits == nil {
		p.edits = map[types.NamespacedName]edits{}
	}
	p.edits[key] = edits{n: e.n + 1, last: now, uid: w.UID, generation: w.Generation}
	if now.Sub(p.pruned) >= rest {
		p.pruned = now
		maps.DeleteFunc(p.edits, func(_ types.NamespacedName, e edits) bool { return e.rested(now) })
	}
}
