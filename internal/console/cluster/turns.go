// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"sync"
)

// maxTurns is how many pages may have the runs under way at a time.
const maxTurns = 2

// turns bound the pages that have all runs under way, which are many. A user has one of them at
// a time, whatever the token: who asks often waits for themselves.
type turns struct {
	all chan struct{}

	mu sync.Mutex
	of map[string]*turn // by user
}

// turn is that of one user.
type turn struct {
	taken chan struct{}
	users int // who have it, or wait for it
}

func newTurns() *turns { return &turns{all: make(chan struct{}, maxTurns), of: map[string]*turn{}} }

// enter waits for a turn, until ctx ends. The function gives it back.
func (t *turns) enter(ctx context.Context, user string) (leave func(), err error) {
	mine := t.join(user)
	for _, place := range []chan struct{}{mine.taken, t.all} {
		select {
		case place <- struct{}{}:
		case <-ctx.Done():
			if place == t.all {
				<-mine.taken
			}
			t.part(user)
			return nil, fmt.Errorf("wait until others have read the runs under way: %w", ctx.Err())
		}
	}
	return func() {
		<-t.all
		<-mine.taken
		t.part(user)
	}, nil
}

func (t *turns) join(user string) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[user] == nil {
		t.of[user] = &turn{taken: make(chan struct{}, 1)}
	}
	t.of[user].users++
	return t.of[user]
}

func (t *turns) part(user string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of[user].users--; t.of[user].users == 0 {
		delete(t.of, user)
	}
}
