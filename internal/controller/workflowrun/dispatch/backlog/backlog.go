// SPDX-License-Identifier: Apache-2.0

// Package backlog divides the room of the stream of jobs among namespaces and their runs.
//
// For example, JOBS may hold 64 MiB, one replica drives all runs, and the workers of a namespace
// are away. Its jobs get 28 MiB, however many there are, and one run of it gets 18 MiB or so. The
// rest of its jobs wait in status. The next namespace finds room at once.
//
// # What may be held
//
// The stream's limit, less an eighth, times the part of the runs that this replica drives. The
// eighth is for fence messages, which share it in the same way, and for what other replicas
// misjudge. Of that, internal/share says what a run and a namespace may have. A stream without a
// limit has room for all.
//
// # What is held
//
// A job counts from before it is published until its message is out of the stream, or its run has
// left this replica. What was there when the replica took the run over counts, too, also beyond the
// limit. Its size is an estimate, which may be too small. So what the stream held at the last look,
// less the eighth, counts as well: what that is more than all that is known here is held by nobody.
//
// Invariants: what is used is the sum of the jobs that are held; a job counts once; a run that
// holds nothing is remembered nowhere. NATS itself refuses what goes wrong beyond that.
package backlog

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/internal/share"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// reservePart is the part of the stream that no job is let into: one in so many.
const reservePart = 8

// costOfTry spreads the tries of runs that were refused, each of which is a pass with the run's
// lock: there are a hundred a second at most, as long as no tenant has more than 6,000 such runs.
const costOfTry = 10 * time.Millisecond

// longestWait bounds the wait between two tries of a run.
const longestWait = time.Minute

// Stream is the stream of jobs as last seen, in bytes. A Limit of 0 is none.
type Stream struct{ Holds, Limit int64 }

// Room is what the jobs of one replica share. It is safe for concurrent use. A nil one has room for
// all.
type Room struct {
	stream  func() Stream
	part    func() (driven, of int)
	refused prometheus.Counter // nil: that of fences, which are no jobs
	fences  *Room              // that of the reserve; nil: it is that

	mu   sync.Mutex
	pace *share.Pace
	room *share.Room
	runs map[string]*run // by UID
}

// run is what a run holds.
type run struct {
	tenant string
	jobs   map[protocol.JobID]charge
	round  uint32 // of Keep
}

// charge is what a job holds, and the round of Keep that found it in flight last.
type charge struct {
	bytes int64
	round uint32
}

// New makes a room. stream says what the stream holds and may hold, and part how much of all runs
// this replica drives.
func New(stream func() Stream, part func() (driven, of int)) *Room {
	refused := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "syncopate_job_share_refusals_total",
		Help: "How often a job was kept back because its run or its namespace has used up its share of the stream of jobs. NATS was not asked.",
	})
	made := func(refused prometheus.Counter, fences *Room) *Room {
		return &Room{
			stream: stream, part: part, refused: refused, fences: fences,
			pace: share.NewPace(longestWait), room: share.NewRoom(0), runs: map[string]*run{},
		}
	}
	return made(refused, made(nil, nil))
}

// Fences is the room of the fence messages of attempts.
func (r *Room) Fences() *Room {
	if r == nil {
		return nil
	}
	return r.fences
}

// TryAfter is after which time a run of a tenant may ask again that was refused: all runs that wait
// come at one rate, and tenants have equal parts of it.
func (r *Room) TryAfter(tenant string, now time.Time) time.Duration {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pace.Wait(tenant, costOfTry, now)
}

// Take lets a job of a tenant's run in, if there is room for its bytes. One that is held already
// stays, with the bytes that are given now: it is in the stream, or had room for that.
func (r *Room) Take(tenant string, id protocol.JobID, bytes int64) bool {
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holds(id) {
		r.drop(id)
		r.add(tenant, id, bytes)
		return true
	}
	limit, bounded := r.limit()
	if !bounded {
		r.add(tenant, id, bytes)
		return true
	}
	r.room.SetLimit(limit)
	if !r.room.Take(tenant, id.RunUID, bytes) {
		if r.refused != nil {
			r.refused.Inc()
		}
		return false
	}
	r.room.Free(tenant, id.RunUID, bytes) // add counts it
	r.add(tenant, id, bytes)
	return true
}

// Found notes a job that is in the stream whoever asked for room. One that is held already
// keeps its bytes.
func (r *Room) Found(tenant string, id protocol.JobID, bytes int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.holds(id) {
		r.add(tenant, id, bytes)
	}
}

// Drop gives back what a job holds, if it holds something.
func (r *Room) Drop(id protocol.JobID) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holds(id) {
		r.drop(id)
	}
}

// Keep gives back what a run holds but for some jobs.
func (r *Room) Keep(uid string, jobs ...[]protocol.JobID) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.runs[uid]
	if of == nil {
		return
	}
	of.round++
	for _, list := range jobs {
		for _, id := range list {
			if c, held := of.jobs[id]; held {
				c.round = of.round
				of.jobs[id] = c
			}
		}
	}
	for id, c := range of.jobs {
		if c.round != of.round {
			r.drop(id)
		}
	}
}

// Leave gives back all that some runs hold: they are gone, or another replica drives them.
func (r *Room) Leave(gone func(uid string) bool) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, of := range r.runs {
		if gone(uid) {
			r.leave(of)
		}
	}
}

// Forget gives back all that one run holds.
func (r *Room) Forget(uid string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := r.runs[uid]; of != nil {
		r.leave(of)
	}
}

// limit is what jobs may hold here. Needs mu.
func (r *Room) limit() (bytes int64, bounded bool) {
	s := r.stream()
	if s.Limit <= 0 {
		return 0, false
	}
	driven, of := r.part()
	reserve := s.Limit / reservePart
	mine := func(n int64) int64 { return int64(float64(n) * float64(driven) / float64(of)) }
	if r.fences == nil {
		return mine(reserve), true
	}
	unknown := max(0, mine(s.Holds-reserve)-r.room.Used())
	return mine(s.Limit-reserve) - unknown, true
}

// holds says whether a job holds something. Needs mu.
func (r *Room) holds(id protocol.JobID) bool {
	of := r.runs[id.RunUID]
	if of == nil {
		return false
	}
	_, held := of.jobs[id]
	return held
}

// add counts a job that is not held. A run keeps the tenant that it had first. Needs mu.
func (r *Room) add(tenant string, id protocol.JobID, bytes int64) {
	of := r.runs[id.RunUID]
	if of == nil {
		of = &run{tenant: tenant, jobs: map[protocol.JobID]charge{}}
		r.runs[id.RunUID] = of
	}
	r.room.Add(of.tenant, id.RunUID, bytes)
	of.jobs[id] = charge{bytes: bytes, round: of.round}
}

// drop gives back what a job holds. Needs mu.
func (r *Room) drop(id protocol.JobID) {
	of := r.runs[id.RunUID]
	r.room.Free(of.tenant, id.RunUID, of.jobs[id].bytes)
	delete(of.jobs, id)
	if len(of.jobs) == 0 {
		delete(r.runs, id.RunUID)
	}
}

// leave gives back what a run holds. Needs mu.
func (r *Room) leave(of *run) {
	for id := range of.jobs {
		r.drop(id)
	}
}
