// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"errors"
	"slices"
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

// lackPatience is how long what a run tells of has to refuse nothing before the run tells of
// something else: two that take turns are told as one.
const lackPatience = time.Minute

// longestTry is how far ahead such a try may be. One that is further off is of a clock that was set
// back since.
const longestTry = time.Minute

// noRoom is what is known of a NATS that is full, and refuses what the run has to store, of a share
// of it that is used up, or of topics that get no consumer.
type noRoom struct {
	since         time.Time      // zero: it refuses nothing
	jobs, outputs bool           // which it refuses
	lack          lifecycle.Lack // what had no room, as the run tells
	lackSeen      time.Time      // when that refused something last
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
			now := p.r.Clock.Now()
			m.since, m.lack, m.lackSeen, m.jobs, m.outputs, m.refusedAt = at, lack, now, true, lack == lifecycle.LackNATS, now
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
		m.tell(lacksOf(p)[0], now)
	case waits:
		m.follow(lacksOf(p), now)
	}
	comeAgainForRoom(p, now)
}

// lacksOf is what refused something in a pass, or an output not long ago.
func lacksOf(p *pass) []lifecycle.Lack {
	all := p.jobs.Refusing()
	if p.mem.noRoom.outputs && !slices.Contains(all, lifecycle.LackNATS) {
		all = slices.Insert(all, 0, lifecycle.LackNATS)
	}
	return all
}

// tell has the run tell from now on that something has no room.
func (m *noRoom) tell(lack lifecycle.Lack, now time.Time) {
	m.since, m.lack, m.lackSeen = now, lack, now
}

// follow has the run tell of something else, once what it tells of has refused nothing for a while:
// a run may lack one thing or another for hours.
func (m *noRoom) follow(lacks []lifecycle.Lack, now time.Time) {
	switch {
	case slices.Contains(lacks, m.lack):
		m.lackSeen = now
	case len(lacks) > 0 && now.Sub(m.lackSeen) >= lackPatience:
		m.tell(lacks[0], now)
	}
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
