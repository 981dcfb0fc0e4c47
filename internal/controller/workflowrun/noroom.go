// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"errors"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
)

// roomPatience is how long an output that was refused counts though no other is to be stored: its
// result went back to NATS, and comes again, unless it is of no use any more.
const roomPatience = 2 * time.Minute

// jobPatience is when jobs are tried again that found no room.
const jobPatience = 5 * time.Second

// longestTry is how far ahead such a try may be. One that is further off is of a clock that was set
// back since.
const longestTry = time.Minute

// noRoom is what is known of a NATS that is full, and refuses what the run has to store, of a share
// of it that is used up, or of topics that get no consumer.
type noRoom struct {
	since         time.Time      // zero: it refuses nothing
	jobs, outputs bool           // which it refuses
	lack          lifecycle.Lack // what had no room
	refusedAt     time.Time      // when it refused an output last
	seeded        bool           // what an earlier owner said was asked for
	tryAt         time.Time      // when jobs that found no room are tried again
}

// seedRoom takes over what an earlier owner of the run said, which may have been of jobs or of
// outputs: or the first write would take the reason away, and the next one bring it back.
func seedRoom(p *pass) {
	if m := &p.mem.noRoom; !m.seeded {
		m.seeded = true
		if at, lack := report.NoRoomSaid(p.run); !at.IsZero() {
			m.since, m.lack, m.jobs, m.outputs, m.refusedAt = at, lack, true, lack == lifecycle.LackNATS, p.r.Clock.Now()
		}
	}
}

// noteRoom notes since when NATS is full, and has the end of that told at once. That nothing lacks
// at the moment is no such end: what was refused may have been given back. That jobs or outputs
// were tried, and none was refused for want of room, is one.
func noteRoom(p *pass) {
	m := &p.mem.noRoom
	if _, refused := p.jobs.Room(); !refused && m.since.IsZero() && !errors.Is(p.outputs.Lacking, bus.ErrNoRoom) {
		return
	}
	now := p.r.Clock.Now()
	m.jobs, m.outputs = refusesJobs(p), refusesOutputs(p, now)
	switch waits, known := m.jobs || m.outputs, !m.since.IsZero(); {
	case !waits && known:
		m.since, p.later = time.Time{}, pacing.Earliest(p.later, now)
	case waits && !known:
		m.since, m.lack = now, lackOf(p)
	}
	comeAgainForRoom(p, now)
}

// lackOf is what has no room, as a run is about to say.
func lackOf(p *pass) lifecycle.Lack {
	if p.mem.noRoom.outputs {
		return lifecycle.LackNATS
	}
	return p.jobs.Lack()
}

// comeAgainForRoom has a pass come that tries again what NATS refused: what was kept back is no
// error, after which a pass would come by itself.
func comeAgainForRoom(p *pass, now time.Time) {
	m := &p.mem.noRoom
	if m.jobs {
		m.tryAt = nextTry(p, now)
		p.later = pacing.Earliest(p.later, m.tryAt)
	}
	if until := m.refusedAt.Add(roomPatience); m.outputs && until.After(now) {
		p.later = pacing.Earliest(p.later, until)
	}
}

// nextTry is when jobs are tried again that found no room. A run that waits for its share keeps its
// place in the pace of all of these, whatever else it has passes for.
func nextTry(p *pass, now time.Time) time.Time {
	share := p.jobs.OnlyShare()
	_, refused := p.jobs.Room()
	switch at := p.mem.noRoom.tryAt; {
	case at.After(now) && at.Sub(now) <= longestTry && (share || !refused):
		return at
	case share:
		return now.Add(max(jobPatience, p.r.Dispatch.TryAfter(p.key.Namespace, now)))
	default:
		return now.Add(jobPatience)
	}
}

// refusesJobs says whether NATS refuses jobs of the run, as far as is known.
func refusesJobs(p *pass) bool {
	tried, refused := p.jobs.Room()
	lacks := p.jobs.Lacks(p.run)
	return refused || p.mem.noRoom.jobs && (!tried && len(lacks) > 0 || p.jobs.Refused(lacks))
}

// refusesOutputs says whether NATS refuses outputs of the run, as far as is known.
func refusesOutputs(p *pass, now time.Time) bool {
	m, lacking := &p.mem.noRoom, p.outputs.Lacking
	if errors.Is(lacking, bus.ErrNoRoom) {
		m.refusedAt = now
		return true
	}
	return m.outputs && !p.outputs.Stored && (lacking != nil || now.Sub(m.refusedAt) < roomPatience)
}
