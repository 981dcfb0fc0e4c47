// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// twoResyncs is how long one waits at most whom the operator was to wake, and did not.
const twoResyncs = time.Minute

// Hidden is the part of a lock that runs have whom the reader may not see.
type Hidden struct {
	Held    int32 `json:"held"`
	Waiting int32 `json:"waiting"`
}

// Untold is what the operator knows of who has a lock, where no status of a run under way says so,
// at most half a minute ago.
type Untold struct {
	Held   int32  `json:"held"`             // permits
	Holder string `json:"holder,omitempty"` // NAMESPACE/NAME of who has the lock for the longest; absent: a status says so
}

// busy enters what a Semaphore says of one of its keys beyond what is known from runs: of those
// that the reader may not see, or, where the reader sees the whole, of locks that no status has.
func (l *Lock) busy(k *v1alpha1.KeyStatus, whole bool) {
	held := max(0, k.Held-l.Held)
	switch h := (Hidden{Held: held, Waiting: max(0, k.Queued-int32(len(l.Waiters)))}); {
	case whole && held > 0:
		l.Untold = &Untold{Held: held, Holder: k.Holder}
		if slices.ContainsFunc(l.Holders, func(h LockHolder) bool { return h.Namespace+"/"+h.Name == k.Holder }) {
			l.Untold.Holder = ""
		}
	case !whole && h != (Hidden{}):
		l.Hidden = &h
	}
}

// beyond says what the Semaphore tells of a lock and its runs do not; "": nothing.
func (l *Lock) beyond() string {
	switch h, u := l.Hidden, l.Untold; {
	case h != nil:
		return fmt.Sprintf("runs that are not seen hold %d permits more, and %d more wait (status of the Semaphore, at most 30 s old)", h.Held, h.Waiting)
	case u == nil:
		return ""
	case u.Holder != "":
		return fmt.Sprintf(untoldText, u.Held, ", by "+u.Holder+" for the longest")
	default:
		return fmt.Sprintf(untoldText, u.Held, "")
	}
}

// untoldText is of a number of permits, and of who has them.
const untoldText = "%d permits are held of which no status of a run under way tells%s (status of the Semaphore, at most 30 s old): " +
	"such a run may just have ended, has ended while a child run cleans up, or may not be changed"

// told is how many permits beyond what runs tell of the Semaphore's status says are held.
func (l *Lock) told() (n int32) {
	if l.Hidden != nil {
		n += l.Hidden.Held
	}
	if l.Untold != nil {
		n += l.Untold.Held
	}
	return n
}

// silent says whether a lock has room by what statuses tell, and may be held all the same: a mutex
// has no status, and that of a Semaphore does not list all its keys.
func (t *table) silent(name string) bool {
	l := t.all[name]
	return l != nil && l.Permits != nil && !l.listed
}

// unexplained says why one waits whose locks have room by what statuses tell.
func (t *table) unexplained(l *Lock, w *LockWaiter) string {
	const woken = "there is room: it is to be woken"
	if t.Now.Sub(w.Since) <= twoResyncs {
		return woken
	}
	if t.silent(l.Lock) {
		return "no status tells who has it: either its holder has just ended, and the first in line is to be woken, or it has ended while a child run cleans up, or may not be changed. " +
			"The message of what waits says who had it, and at which moment"
	}
	for _, other := range w.wants {
		if other.lock != l.Lock && t.silent(other.lock) {
			return "there is room here; it may wait for " + other.lock + ", of which no status tells who has it"
		}
	}
	return woken
}

// unplaced says that places in line are not certain; "": they are.
func (l *Lock) unplaced() string {
	if l.guessed == 0 {
		return ""
	}
	return fmt.Sprintf("places are not certain: of %d child runs that wait the run at the top, whose place they have, could not be read", l.guessed)
}
