// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrLater says that a pass is to come again after Later: what it needs is with others.
var ErrLater = errors.New("places for what takes long are with others")

// Later is when a pass comes again that said ErrLater.
const Later = time.Second

// Aside are passes of a controller that wait for a desk, or work there. Each has a place for passes
// meanwhile, so there are few: one of a namespace, and Most of all of them.
type Aside struct {
	Most int
	// Desk gives a namespace a place for what takes long. It waits, until ctx ends.
	Desk func(ctx context.Context, namespace string) (rest func() bool, leave func(), err error)

	mu     sync.Mutex
	inside map[string]bool
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

func (a *Aside) enter(namespace string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inside[namespace] || len(a.inside) >= a.Most {
		return false
	}
	if a.inside == nil {
		a.inside = map[string]bool{}
	}
	a.inside[namespace] = true
	return true
}

func (a *Aside) leave(namespace string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.inside, namespace)
}
