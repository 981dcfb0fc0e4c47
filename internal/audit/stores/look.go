// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/audit"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// Bounds of a look.
const (
	maxRuns     = 100_000
	runsPage    = 50 // a run has up to 1.5 MiB
	maxSubjects = 200_000
	maxLocks    = 100_000
	maxQuotas   = 10_000
	// maxResultTimes bounds the results of runs that are over whose age is asked for.
	maxResultTimes = 1000
	// lookTimeout bounds a look.
	lookTimeout = 2 * time.Minute
	// Pause is the time between two looks: longer than the operator takes from one store to the
	// next, and than two of its resyncs, in which it repairs slots and locks.
	Pause = 90 * time.Second
)

// Stores are what is compared.
type Stores struct {
	API   client.Reader // reads from the API server itself
	Redis redis.UniversalClient
	Quota *store.Store
	NATS  *bus.Conn
	Clock clock.Clock
}

// Report is what an audit found.
type Report struct {
	At       time.Time             `json:"at"`
	Findings []audit.Finding       `json:"findings"`
	Unread   map[audit.Part]string `json:"unread,omitempty"`
	Runs     int                   `json:"runs"`
}

// Twice looks, and if that found something, looks again after a pause: what both looks found is
// told. What was unread in either look is unread.
func (s *Stores) Twice(ctx context.Context, pause time.Duration) (Report, error) {
	first := s.Look(ctx)
	found := audit.Compare(first)
	if len(found) == 0 || ctx.Err() != nil {
		return reportOf(first, nil), ctx.Err()
	}
	timer := s.Clock.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return Report{}, fmt.Errorf("wait for the second look: %w", context.Cause(ctx))
	case <-timer.C():
	}
	second := s.Look(ctx)
	for part, why := range first.Unread {
		if _, also := second.Unread[part]; !also {
			second.Unread[part] = why
		}
	}
	return reportOf(second, audit.Confirm(found, audit.Compare(second))), ctx.Err()
}

func reportOf(s audit.Snapshot, findings []audit.Finding) Report {
	return Report{At: s.At, Findings: findings, Unread: s.Unread, Runs: len(s.Runs)}
}

// Look reads the stores.
func (s *Stores) Look(ctx context.Context) audit.Snapshot {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	snap := audit.Snapshot{Unread: map[audit.Part]string{}, Closed: map[audit.Quota]bool{}}
	var q quotas
	// The order matters: see package audit.
	for _, part := range []struct {
		name audit.Part
		read func(context.Context, *audit.Snapshot) error
	}{
		{audit.Slots, func(ctx context.Context, snap *audit.Snapshot) (err error) { q, err = s.slots(ctx, snap); return err }},
		{audit.Locks, s.locks},
		{audit.RunLocks, s.runLocks},
		{audit.Jobs, s.jobs},
		{audit.Results, s.results},
		{audit.Outputs, s.outputs},
		{audit.Runs, func(ctx context.Context, snap *audit.Snapshot) error { return s.runs(ctx, snap, q) }},
	} {
		if err := part.read(ctx, &snap); err != nil {
			snap.Unread[part.name] = err.Error()
		}
	}
	snap.At = s.Clock.Now()
	if err := s.resultTimes(ctx, &snap); err != nil {
		snap.Unread[audit.Results] = err.Error()
	}
	return snap
}
