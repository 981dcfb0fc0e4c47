// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/syncopate-dev/syncopate/internal/audit"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func (s *Stores) jobs(ctx context.Context, snap *audit.Snapshot) error {
	queued, err := jobs.ListQueued(ctx, s.NATS, maxSubjects)
	for _, j := range queued {
		snap.Jobs = append(snap.Jobs, audit.Job{ID: j.ID.String(), Topic: j.Topic, UID: j.ID.RunUID})
	}
	return err
}

func (s *Stores) results(ctx context.Context, snap *audit.Snapshot) error {
	names := s.NATS.Names
	subjects, err := s.NATS.Subjects(ctx, names.ResultsStream(), ">", maxSubjects)
	if err != nil {
		return fmt.Errorf("list results: %w", err)
	}
	for _, subject := range subjects {
		if id, err := names.ParseResult(subject); err == nil { // the operator puts what is no result's aside
			snap.Results = append(snap.Results, audit.Result{ID: id.String(), UID: id.RunUID})
		}
	}
	return nil
}

// resultTimes asks when results of runs that are over were stored.
func (s *Stores) resultTimes(ctx context.Context, snap *audit.Snapshot) error {
	if _, unread := snap.Unread[audit.Runs]; unread {
		return nil
	}
	asked := 0
	for i := range snap.Results {
		r := &snap.Results[i]
		if run, known := snap.Runs[r.UID]; known && !run.Ended {
			continue
		}
		if asked++; asked > maxResultTimes {
			return nil // these are told; there will be fewer next time
		}
		id, err := protocol.ParseJobID(r.ID)
		if err != nil {
			return fmt.Errorf("read result %s: %w", r.ID, err)
		}
		m, err := s.NATS.Read(ctx, s.NATS.Names.ResultsStream(), bus.Query{LastFor: s.NATS.Names.Result(id)})
		if err != nil {
			return fmt.Errorf("read result %s: %w", r.ID, err)
		}
		if m != nil {
			r.Stored = m.Time
		}
	}
	return nil
}

func (s *Stores) outputs(ctx context.Context, snap *audit.Snapshot) error {
	names := s.NATS.Names
	entries := names.PayloadEntry("")
	subjects, err := s.NATS.Subjects(ctx, names.PayloadsStream(), entries+">", maxSubjects)
	if err != nil {
		return fmt.Errorf("list outputs: %w", err)
	}
	for _, subject := range subjects {
		name, err := base64.URLEncoding.DecodeString(strings.TrimPrefix(subject, entries))
		if err != nil {
			continue // no object's
		}
		if uid, ok := protocol.PayloadRun(string(name)); ok {
			snap.Outputs = append(snap.Outputs, audit.Output{Name: string(name), UID: uid})
		}
	}
	return nil
}
