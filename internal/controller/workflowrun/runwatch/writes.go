// SPDX-License-Identifier: Apache-2.0

package runwatch

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

const (
	// maxWrites and maxBytes bound what is kept: writes whose events are under way, for a second
	// or two.
	maxWrites = 512
	maxBytes  = 8 << 20
	// answerPatience bounds how long an event waits for the answer of a write that is sent; those
	// of all other runs, behind it, wait, too. Usually it is a millisecond or two. To read the
	// event takes a tenth of a millisecond, or a few if it is large.
	answerPatience = 5 * time.Millisecond
	// patienceAgain is for how long none waits after one that waited in vain: the API server is
	// slow, or busy with a large object, and the next answers will be late, too.
	patienceAgain = 10 * answerPatience
)

// Writes are the last status writes of this process that the API server accepted.
type Writes struct {
	clock clock.Clock
	mu    sync.Mutex
	last  []write // the oldest first
	bytes int
	// asked are the writes that wait for their answer; one of a run at a time.
	asked map[types.UID]chan struct{}
	// vain is when an event last waited for an answer that did not come in time.
	vain time.Time
}

// Begin says that a status write of a run is sent; its end is to be called when the answer was
// noted, or there is none.
func (w *Writes) Begin(uid types.UID) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asked[uid] != nil {
		return func() {} // another one is waited for
	}
	if w.asked == nil {
		w.asked = map[types.UID]chan struct{}{}
	}
	answered := make(chan struct{})
	w.asked[uid] = answered
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.asked, uid)
		close(answered)
	}
}

// await waits until the write of a run that is sent has its answer, for a while: the event of a
// write often comes before its answer. It says whether that is there now.
func (w *Writes) await(uid types.UID) bool {
	w.mu.Lock()
	answered := w.asked[uid]
	if w.clock.Since(w.vain) < patienceAgain {
		answered = nil
	}
	w.mu.Unlock()
	if answered == nil {
		return false
	}
	patience := w.clock.NewTimer(answerPatience)
	defer patience.Stop()
	select {
	case <-answered:
		return true
	case <-patience.C():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.vain = w.clock.Now()
	return false
}

// NewWrites makes an empty one.
func NewWrites(clk clock.Clock) *Writes { return &Writes{clock: clk} }

type write struct {
	run   *v1alpha1.WorkflowRun
	bytes int
}

// Note keeps a run as it was written, with the resourceVersion of the answer; it must not be
// changed any more. Its size is that of all of it, which stays in memory.
func (w *Writes) Note(run *v1alpha1.WorkflowRun, size int) {
	if size > maxBytes {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = append(w.last, write{run, size})
	w.bytes += size
	for len(w.last) > maxWrites || w.bytes > maxBytes {
		w.bytes -= w.last[0].bytes
		w.last[0] = write{}
		w.last = w.last[1:]
	}
}

// take hands out a write, once, as an object of its own. Older writes of the run are forgotten:
// their events have been.
func (w *Writes) take(uid types.UID, version string) *v1alpha1.WorkflowRun {
	found := w.find(uid, version)
	if found == nil {
		return nil
	}
	run := found.DeepCopy()
	run.TypeMeta, run.ManagedFields = metav1.TypeMeta{}, nil // as a decoder and the cache's transform leave it
	return run
}

func (w *Writes) find(uid types.UID, version string) *v1alpha1.WorkflowRun {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := -1
	for i := range w.last {
		if w.last[i].run.UID == uid && w.last[i].run.ResourceVersion == version {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	found := w.last[at].run
	kept := w.last[:0]
	for i, one := range w.last {
		if i <= at && one.run.UID == uid {
			w.bytes -= one.bytes
			continue
		}
		kept = append(kept, one)
	}
	clear(w.last[len(kept):])
	w.last = kept
	return found
}
