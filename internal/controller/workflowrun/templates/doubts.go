// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
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

// errDoubted is of a pinned revision that was not found, which is not believed yet. Try again.
var errDoubted = errors.New("the revision that the run follows is not there, by the word of the API server: it is looked for again before the run ends for that")

// doubts has the runs that miss what they follow, and since when.
type doubts struct {
	mu   sync.Mutex
	runs map[types.NamespacedName]doubt
}

type doubt struct {
	uid         types.UID
	first, last time.Time
}

// miss notes that what a run follows was not found, and says whether that is believed by now.
func (d *doubts) miss(run *v1alpha1.WorkflowRun, now time.Time) (believed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := types.NamespacedName{Namespace: run.Namespace, Name: run.Name}
	is, known := d.runs[key]
	if !known || is.uid != run.UID || now.Sub(is.last).Abs() > doubtLasts {
		is = doubt{uid: run.UID, first: now}
	}
	is.last = now
	if d.runs == nil {
		d.runs = map[types.NamespacedName]doubt{}
	}
	d.runs[key] = is
	return now.Sub(is.first) >= doubtTime
}

// forget forgets a run that found what it follows, or has no use for it any more.
func (d *doubts) forget(run types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.runs, run)
}
