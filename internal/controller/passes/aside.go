// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrLater says that a pass is to come again after Later: what it needs is with others.
var ErrLater = errors.New("places for what takes long are with others")

const (
	// Later is when a pass comes again that said ErrLater.
	Later = time.Second
	// forgotten is when a namespace is out of line that did not come again.
	forgotten = 10 * Later
)

// Aside are passes of a controller that wait for a desk, or work there. Each has a place for passes
// meanwhile, so there are few: one of a namespace, and Most of all of them.
type Aside struct {
	Most  int
	Clock clock.PassiveClock
	// Desk gives a namespace a place for what takes long. It waits, until ctx ends.
	Desk func(ctx context.Context, namespace string) (rest func() bool, leave func(), err error)

	mu     sync.Mutex
	inside map[string]bool
	line   []waiter
}

// waiter is a namespace that was refused a place, and comes again.
type waiter struct {
	namespace string
	seen      time.Time
}

// Work gives a pass a desk until it leaves. The error is ErrLater: too many are there, or ctx
// ended.
func (a *Aside) Work(ctx context.Context, namespace string) (rest func() bool, leave func(), err error) {
	if !a.enter(namespace) {
		return nil, nil, ErrLater
	}
	rest, standUp, err := a.Desk(ctx, namespace)
	if err != nil {
		a.leave(namespace)
		return nil, nil, errors.Join(ErrLater, err)
	}
	return rest, func() {
		standUp()
		a.leave(namespace)
	}, nil
}

// Free says whether a pass of a namespace may try Work.
func (a *Aside) Free(namespace string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.next(namespace)
}

// enter lets namespaces in, in the order in which they were refused first.
func (a *Aside) enter(namespace string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.next(namespace) {
		return false
	}
	a.line = slices.DeleteFunc(a.line, func(w waiter) bool { return w.namespace == namespace })
	if a.inside == nil {
		a.inside = map[string]bool{}
	}
	a.inside[namespace] = true
	return true
}

// next says whether it is a namespace's turn; if not, it is in line. Who does not come again is in
// nobody's way. a.mu is held.
func (a *Aside) next(namespace string) bool {
	if a.inside[namespace] {
		return false
	}
	now := a.Clock.Now()
	a.line = slices.DeleteFunc(a.line, func(w waiter) bool { return now.Sub(w.seen) > forgotten })
	at := slices.IndexFunc(a.line, func(w waiter) bool { return w.namespace == namespace })
	if at < 0 {
		at = len(a.line)
		a.line = append(a.line, waiter{namespace: namespace})
	}
	a.line[at].seen = now
	return at < a.Most-len(a.inside)
}

func (a *Aside) leave(namespace string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.inside, namespace)
}
