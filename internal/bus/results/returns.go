// SPDX-License-Identifier: Apache-2.0

package results

import (
	"maps"
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/internal/share"
)

const (
	// returnBytes is how many bytes a second the next owner of partitions gets again of the
	// backlogs that this process had taken and not settled. All at once, what nobody can apply
	// would be in the way of the results of others.
	returnBytes = 16 << 20
	// freeReturn is how many bytes of a run are no backlog.
	freeReturn = 16 << 10
	// firstReturn is the least wait of a backlog, but for its first result: who takes over has all
	// runs to look at then, and results that single runs wait for.
	firstReturn = time.Second
	// longestReturn bounds the wait of one: what is left of a backlog comes then, at once. It is
	// also how long a run is remembered.
	longestReturn = 30 * time.Second
)

// returns is the pace at which results come again that this process gives back when it leaves their
// partitions. The first of each run come at once; beyond freeReturn it is a backlog, and each of
// those has an equal part of the rate. What comes at once is bounded by what the process holds.
type returns struct {
	mu     sync.Mutex
	pace   *share.Pace
	runs   map[string]returned
	pruned time.Time
}

// returned is what was given back of a run of late.
type returned struct {
	bytes int
	at    time.Time
}

func newReturns() *returns {
	return &returns{pace: share.NewPace(longestReturn), runs: map[string]returned{}}
}

// after is the wait before a delivery comes again; 0: none.
func (r *returns) after(d *Delivery, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.pruned) >= longestReturn {
		r.pruned = now
		maps.DeleteFunc(r.runs, func(_ string, of returned) bool { return now.Sub(of.at) >= longestReturn })
	}
	before := r.runs[d.ID.RunUID].bytes
	r.runs[d.ID.RunUID] = returned{before + d.Size, now}
	if before+d.Size <= freeReturn {
		return 0
	}
	wait := r.pace.Wait(d.ID.RunUID, time.Second*time.Duration(d.Size)/returnBytes, now)
	if before == 0 {
		return wait
	}
	return min(firstReturn+wait, longestReturn)
}
