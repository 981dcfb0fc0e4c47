// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// probePause is the time between two looks at a dependency. With probeTimeout and
	// probeTolerance readyz tells of an outage at most 4 s after it began.
	probePause = time.Second
	// probeTimeout bounds one look.
	probeTimeout = time.Second
	// probeTolerance is how many looks in a row must fail before readyz says so: one lost packet
	// is no outage.
	probeTolerance = 3
)

// probe watches a dependency and answers readyz from what it saw last, so that a hung dependency
// does not hang readyz.
type probe struct {
	check func(context.Context) error
	clock clock.WithTicker

	mu       sync.Mutex
	failures int
	last     error
	once     bool // it was reached since this process began
}

func newProbe(c clock.WithTicker, check func(context.Context) error) *probe {
	return &probe{check: check, clock: c, failures: probeTolerance, last: errors.New("not reached yet")}
}

// Start looks at the dependency until ctx ends.
func (p *probe) Start(ctx context.Context) error {
	tick := p.clock.NewTicker(probePause)
	defer tick.Stop()
	for {
		p.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: standbys answer readyz too.
func (p *probe) NeedLeaderElection() bool { return false }

func (p *probe) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := p.check(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.failures, p.last, p.once = 0, nil, true
		return
	}
	p.failures, p.last = p.failures+1, err
}

// ready is nil while the dependency can be used.
func (p *probe) ready(*http.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failures < probeTolerance {
		return nil
	}
	return p.last
}

// reached tells whether the dependency could be used once, however it is now.
func (p *probe) reached() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.once
}
