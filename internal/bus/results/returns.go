// SPDX-License-Identifier: Apache-2.0

package results

import (
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/internal/share"
)

const (
	// returnBytes is how many bytes a second the next owner of partitions gets again of what this
	// process had taken and not settled. All at once, a backlog that nobody can apply would be in
	// the way of the results of others.
	returnBytes = 16 << 20
	// atOnce is the longest wait that is none.
	atOnce = 10 * time.Millisecond
	// longestReturn bounds the wait of one.
	longestReturn = 30 * time.Second
)

// returns is the pace at which results come again that this process gives back when it leaves their
// partitions: each run has an equal part of the rate, so those of a run with few come at once.
type returns struct {
	mu   sync.Mutex
	pace *share.Pace
}

func newReturns() *returns { return &returns{pace: share.NewPace(longestReturn)} }

// after is the wait before a delivery comes again; 0: none.
func (r *returns) after(d *Delivery, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := r.pace.Wait(d.ID.RunUID, time.Second*time.Duration(d.Size)/returnBytes, now)
	if wait <= atOnce {
		return 0
	}
	return wait
}
