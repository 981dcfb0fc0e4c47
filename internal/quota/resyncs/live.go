// SPDX-License-Identifier: Apache-2.0

package resyncs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// ErrDoubted is returned of a run that does not exist by the word of the API server, and exists by
// the cache. A load balancer, or a server that is ill, says so of anything, and what such a run has
// would be given away while it goes on. Try again: the watch soon says which is true.
var ErrDoubted = errors.New("the API server says that the run does not exist, and its watch says that it does")

// Read reads a run live. nil: there is none of that name, and the cache does not have the one with
// that UID either. What is read may have another UID.
//
// Errors: those of the API server and the cache, ErrDoubted.
func Read(ctx context.Context, live, cache client.Reader, name types.NamespacedName, uid types.UID) (*v1alpha1.WorkflowRun, error) {
	run := &v1alpha1.WorkflowRun{}
	err := live.Get(ctx, name, run)
	switch {
	case err == nil:
		return run, nil
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("read run %s: %w", name, err)
	}
	seen := &v1alpha1.WorkflowRun{}
	err = cache.Get(ctx, name, seen)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("read run %s from the cache: %w", name, err)
	case err == nil && seen.UID == uid:
		return nil, fmt.Errorf("read run %s: %w", name, ErrDoubted)
	}
	return nil, nil //nolint:nilnil // that there is none is an answer
}

const (
	// doubtTime is for how long a watch may have nothing new to say of runs that are doubted: it
	// tells of a deletion within a second or so, and a server that is ill may be for longer.
	doubtTime = 2 * time.Second
	// doubtPause is the wait before a run that is doubted is read again.
	doubtPause = 100 * time.Millisecond
)

// Doubts reads runs for work that an ErrDoubted of one of them would end for all: it waits for the
// watch. Where a watch has nothing new for two seconds all that are doubted are given up, those
// that come within two more at once: a thousand of them take no longer than one. Safe for
// concurrent use.
type Doubts struct {
	clock clock.Clock

	mu    sync.Mutex
	until time.Time // when those that are doubted are given up
}

// NewDoubts makes one that waits by a clock.
func NewDoubts(c clock.Clock) *Doubts { return &Doubts{clock: c} }

// Read is the function Read, which is asked again while it doubts. nil Doubts do not wait.
func (d *Doubts) Read(ctx context.Context, live, cache client.Reader, name types.NamespacedName, uid types.UID) (*v1alpha1.WorkflowRun, error) {
	run, err := Read(ctx, live, cache, name, uid)
	if d == nil || !errors.Is(err, ErrDoubted) {
		return run, err
	}
	for own := d.clock.Now().Add(doubtTime); d.clock.Now().Before(d.end(own)); {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-d.clock.After(doubtPause):
		}
		if run, err = Read(ctx, live, cache, name, uid); !errors.Is(err, ErrDoubted) {
			d.cleared()
			return run, err
		}
	}
	return nil, err
}

// end is when a run that is doubted is given up: with all others, and at its own time
// at the latest.
func (d *Doubts) end(own time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.clock.Now(); now.Sub(d.until).Abs() >= doubtTime {
		d.until = now.Add(doubtTime) // the first one, or the clock was set
	}
	if own.Before(d.until) {
		return own
	}
	return d.until
}

// cleared notes that the watch gets on: who doubts then has all the time.
func (d *Doubts) cleared() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.until = time.Time{}
}
