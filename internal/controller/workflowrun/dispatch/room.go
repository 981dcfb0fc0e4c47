// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mostRefused bounds the jobs of one pass that may be refused in a row for want of room.
const mostRefused = 3

// gate keeps jobs back, for the rest of a pass, for which there will be no room either: those that
// are not smaller than one which was refused, by NATS or by the share of their run, all of them
// after some refusals in a row, and those of a topic for which NATS has no consumer.
type gate struct {
	mu    sync.Mutex
	sizes map[protocol.JobID]int // of inputs, as far as they are known: the State's, of what was refused
	nats  bool                   // NATS refused one
	share bool                   // one was refused because its share of the stream is used up
	least int                    // the smallest that was refused
	row   int                    // refusals since something found room
	// noConsumer are topics of which jobs were refused, as there are too many topics.
	noConsumer map[string]bool
	// tried says that NATS was asked to take one, and answered; it may have refused others.
	tried bool
}

// inOrder are jobs with those last that found no room before: first those of which no size is
// known, as not even their fences found room, and the largest at the end.
func (g *gate) inOrder(list []lifecycle.Job) []lifecycle.Job {
	if len(g.sizes) == 0 {
		return list
	}
	rank := func(j lifecycle.Job) int {
		size, refused := g.sizes[j.ID]
		if !refused {
			return -1
		}
		return size
	}
	return slices.SortedStableFunc(slices.Values(list), func(a, b lifecycle.Job) int { return cmp.Compare(rank(a), rank(b)) })
}

// known is the size of the input of a job that was refused before; 0: it is not known.
func (g *gate) known(id protocol.JobID) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sizes[id]
}

// admits says whether a job may find room. One of which the size is not known may.
func (g *gate) admits(j lifecycle.Job) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	size := max(len(j.Input), g.sizes[j.ID])
	if !g.noConsumer[j.Topic] && (!g.full() || g.row < mostRefused && size < g.least) {
		return true
	}
	g.sizes[j.ID] = size
	return false
}

// note notes what became of a job that was admitted, whose input was rendered with so many bytes;
// 0: it was not.
func (g *gate) note(j lifecycle.Job, rendered int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch known := max(len(j.Input), g.sizes[j.ID]); {
	case errors.Is(err, bus.ErrNoRoom), errors.Is(err, errShareUsed):
		size := max(known, rendered)
		if known == 0 || !g.full() || size < g.least { // others under way say nothing new
			g.row++
		}
		g.least, g.sizes[j.ID] = min(size, g.leastOr(size)), size
		g.refused(err)
	case errors.Is(err, jobs.ErrTooManyTopics):
		if g.noConsumer == nil {
			g.noConsumer = map[string]bool{}
		}
		g.noConsumer[j.Topic], g.sizes[j.ID] = true, max(known, rendered)
	case errors.Is(err, render.ErrEnough), errors.Is(err, bus.ErrUnreachable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
	default:
		g.tried = true
		delete(g.sizes, j.ID)
		if err == nil {
			g.row = 0
		}
	}
}

func (g *gate) leastOr(size int) int {
	if g.full() {
		return g.least
	}
	return size
}

// fenced notes what became of a fence.
func (g *gate) fenced(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if errors.Is(err, errShareUsed) || errors.Is(err, bus.ErrNoRoom) {
		g.refused(err)
		g.least = 0 // nothing is smaller
	}
}

// refused notes that there was no room for a job, or a fence.
func (g *gate) refused(err error) {
	share := errors.Is(err, errShareUsed)
	g.share, g.nats = g.share || share, g.nats || !share
}

// full says whether one was refused.
func (g *gate) full() bool { return g.nats || g.share }

// Refused says whether one of some attempts was refused when it was last tried.
func (s *Session) Refused(ids []protocol.JobID) bool {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	return slices.ContainsFunc(ids, func(id protocol.JobID) bool { _, refused := s.gate.sizes[id]; return refused })
}

// OnlyShare says whether it is the share of the run or its namespace that had no room for what was
// refused in this pass: NATS was asked for nothing that it had no room for. A topic without a
// consumer is no want of room, and has a pace of its own.
func (s *Session) OnlyShare() bool { return s.gate.share && !s.gate.nats }

// Refusing lists all that had no room for what was refused in this pass, first what holds up most.
func (s *Session) Refusing() (all []lifecycle.Lack) {
	for _, lack := range [...]struct {
		is      lifecycle.Lack
		refused bool
	}{
		{lifecycle.LackNATS, s.gate.nats},
		{lifecycle.LackTopic, len(s.gate.noConsumer) > 0},
		{lifecycle.LackShare, s.gate.share},
	} {
		if lack.refused {
			all = append(all, lack.is)
		}
	}
	return all
}

// Room says what the pass found out about room in NATS: whether it was asked to take jobs, and
// whether some were refused for want of it, by NATS or by their share, or of a consumer.
func (s *Session) Room() (tried, refused bool) {
	return s.gate.tried, s.gate.full() || len(s.gate.noConsumer) > 0
}
