// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/revisions"
)

const (
	// doubtTime is for how long what a run follows has to be missing before that is believed. A
	// load balancer, or a server that is ill, says of anything that it is not there, for a moment.
	doubtTime = 10 * time.Second
	// doubtPause is the wait before a run that has not begun looks again for what may be missing.
	doubtPause = doubtTime / 2
	// doubtLasts is after how long without a look what was missed before says nothing any more.
	doubtLasts = 10 * time.Minute
)

// errDoubted is of a pinned revision that was not found, which is not believed yet: try again. It
// is a revisions.ErrGone.
var errDoubted = fmt.Errorf("%w, by the word of the API server: what the run follows is looked for again before the run ends for that", revisions.ErrGone)

// doubts has the runs that miss what they follow, and since when. A run that was deleted, and one
// of its name, are two of them.
type doubts struct {
	mu    sync.Mutex
	runs  map[types.UID]doubt
	swept time.Time // when those were dropped last that say nothing any more
}

type doubt struct{ first, last time.Time }

// miss notes that what a run follows was not found, and says whether that is believed by now.
func (d *doubts) miss(run *v1alpha1.WorkflowRun, now time.Time) (believed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweep(now)
	is, known := d.runs[run.UID]
	if !known || is.stale(now) {
		is.first = now
	}
	is.last = now
	if d.runs == nil {
		d.runs = map[types.UID]doubt{}
	}
	d.runs[run.UID] = is
	return now.Sub(is.first) >= doubtTime
}

// sweep drops, now and then, what says nothing any more of runs that nobody forgot. d.mu is held.
func (d *doubts) sweep(now time.Time) {
	if now.Sub(d.swept).Abs() <= doubtLasts {
		return
	}
	maps.DeleteFunc(d.runs, func(_ types.UID, is doubt) bool { return is.stale(now) })
	d.swept = now
}

// stale says whether the run may have had meanwhile what it missed.
func (is doubt) stale(now time.Time) bool { return now.Sub(is.last).Abs() > doubtLasts }

// forget forgets a run that found what it follows, or has no use for it any more.
func (d *doubts) forget(run types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.runs, run)
}
