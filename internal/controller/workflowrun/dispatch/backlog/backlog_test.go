// SPDX-License-Identifier: Apache-2.0

package backlog

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// rig is a room with a stream and a part that a test sets.
type rig struct {
	*Room
	stream Stream
	driven int
}

func newRig(limit int64) *rig {
	r := &rig{stream: Stream{Limit: limit}, driven: 64}
	r.Room = New(func() Stream { return r.stream }, func() (int, int) { return r.driven, 64 })
	return r
}

func job(run string, n int) protocol.JobID {
	return protocol.JobID{RunUID: run, Step: fmt.Sprint("s", n), Item: protocol.NoItem, Attempt: 1}
}

// flood takes places of one byte until there is none for the run.
func (r *rig) flood(tenant, run string) (n int) {
	for r.Take(tenant, job(run, n), 1) {
		n++
	}
	return n
}

// check compares what is held with what is used.
func (r *rig) check(t *rapid.T) {
	sum := int64(0)
	for uid, of := range r.runs {
		if len(of.jobs) == 0 {
			t.Fatalf("run %s is remembered for nothing", uid)
		}
		for _, c := range of.jobs {
			sum += c.bytes
		}
	}
	if sum != r.room.Used() {
		t.Fatalf("%d are held, %d used", sum, r.room.Used())
	}
}

// mutations: a limit without the reserve, without the part that is driven or without what the
// stream holds beside, makes a case fail, and so does one that takes no limit for none.
func TestRoom_WhatARunMayHold(t *testing.T) {
	for name, c := range map[string]struct {
		adjust func(r *rig)
		want   int // of one run, of 4,800 in the stream
	}{
		"a third of what is no reserve":                 {func(*rig) {}, 1400},
		"of half of the partitions half of that":        {func(r *rig) { r.driven = 32 }, 700},
		"less where the stream holds what nobody knows": {func(r *rig) { r.stream.Holds = 600 + 2100 }, 1050},
		"not less for the fences in the reserve":        {func(r *rig) { r.stream.Holds = 600 }, 1400},
		"as much as is left when the limit shrinks":     {func(r *rig) { r.flood("b", "b1"); r.stream.Limit = 3200 }, 467},
		"nothing beyond a limit that shrank":            {func(r *rig) { r.flood("b", "b1"); r.stream.Limit = 1600 }, 0},
		"nothing of a partition that is handed over":    {func(r *rig) { r.flood("b", "b1"); r.driven = 0 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(4800)
			c.adjust(r)
			if n := r.flood("a", "a1"); n < c.want-1 || n > c.want {
				t.Errorf("it holds %d, want %d", n, c.want)
			}
		})
	}
	r := newRig(0)
	for n := range 10_000 {
		if !r.Take("a", job("a1", n), 1<<20) {
			t.Fatal("a stream without a limit has no room")
		}
	}
	if r.stream.Limit = 1 << 30; r.Take("b", job("b1", 0), 1) {
		t.Error("what was taken without a limit does not count under one")
	}
}

// mutations: Take that counts a job again, or asks for room for one that is held; Found that
// changes what is held, or asks for room.
func TestRoom_AJobCountsOnce(t *testing.T) {
	r := newRig(800)
	r.Found("b", job("b1", 0), 5000)
	if r.Take("a", job("a1", 0), 1) {
		t.Error("there is room beside what was found")
	}
	if !r.Take("b", job("b1", 0), 300) || r.room.Used() != 300 {
		t.Errorf("what is found and sent again counts as %d", r.room.Used())
	}
	r.Found("b", job("b1", 0), 5)
	if r.Take("a", job("a1", 0), 100); r.room.Used() != 400 {
		t.Errorf("%d are used", r.room.Used())
	}
	r.Drop(job("a1", 0))
	r.Drop(job("a1", 0))
	r.Drop(job("a2", 0))
	if r.room.Used() != 300 {
		t.Errorf("after a return %d are used", r.room.Used())
	}
}

// mutations: Keep that keeps nothing, or all, or what another call kept; Leave that leaves one
// behind; drop that leaves a run behind, or does not give its bytes back; Take that does so twice.
func TestRoom_NothingLeaks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(rapid.Int64Range(0, 200).Draw(t, "limit"))
		aRun := func() (tenant, run string) {
			tenant = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant")
			return tenant, tenant + rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "run")
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			tenant, run := aRun()
			id, bytes := job(run, rapid.IntRange(0, 4).Draw(t, "job")), rapid.Int64Range(1, 40).Draw(t, "bytes")
			used := r.room.Used()
			limit, bounded := r.limit()
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1:
				held := r.holds(id)
				_, known := r.runs[run]
				took := r.Take(tenant, id, bytes)
				if took != r.holds(id) || held && !took || !bounded && !took {
					t.Fatalf("taken %t, held before %t", took, held)
				}
				if took && !held && bounded && used > 0 && r.room.Used() > limit {
					t.Fatalf("%d of %d are used", r.room.Used(), limit)
				}
				if idle := r.idle(tenant, id); !took && !known && idle && used+bytes <= limit {
					t.Fatalf("who holds nothing does not get in: %d of %d are used", used, limit)
				}
			case 2:
				r.Found(tenant, id, bytes)
			case 3:
				r.Drop(id)
			case 4:
				r.Keep(run, []protocol.JobID{id}, []protocol.JobID{job(run, 0)})
				if of := r.runs[run]; of != nil && len(of.jobs) > 2 {
					t.Fatalf("%d jobs are kept", len(of.jobs))
				}
			case 5:
				r.Forget(run)
			default:
				r.stream.Limit, r.driven = rapid.Int64Range(0, 200).Draw(t, "limit"), rapid.IntRange(0, 64).Draw(t, "driven")
				r.stream.Holds = rapid.Int64Range(0, 200).Draw(t, "holds")
			}
			r.check(t)
		}
		r.Leave(func(uid string) bool { return uid[0] == 'a' })
		for uid := range r.runs {
			if uid[0] == 'a' {
				t.Fatalf("%s is left", uid)
			}
		}
		for uid := range r.runs {
			r.Keep(uid)
		}
		if r.room.Used() != 0 || len(r.runs) != 0 {
			t.Fatalf("at the end %d are used, by %d", r.room.Used(), len(r.runs))
		}
	})
}

// idle says whether a tenant holds nothing but what is asked for now.
func (r *rig) idle(tenant string, id protocol.JobID) bool {
	for uid, of := range r.runs {
		if of.tenant == tenant && uid != id.RunUID {
			return false
		}
	}
	return true
}

func TestRoom_NilHasRoomForAll(t *testing.T) {
	var r *Room
	if !r.Take("a", job("a1", 0), 1<<40) {
		t.Error("it has no room")
	}
	r.Found("a", job("a1", 0), 1)
	r.Drop(job("a1", 0))
	r.Keep("a1")
	r.Forget("a1")
	r.Leave(func(string) bool { return true })
}

// Fences have the reserve, and share it.
//
// mutations: fences with the room of jobs, or none of their own; TryAfter that lets all come at
// once, or has one tenant wait for the runs of another.
func TestRoom_FencesAndTriesAreShared(t *testing.T) {
	r := newRig(4800)
	jobs := r.flood("a", "a1")
	fences := &rig{Room: r.Fences()}
	if n := fences.flood("a", "a1"); n < 199 || n > 200 {
		t.Errorf("a third of the reserve is %d fences, want 200", n)
	}
	if jobs < 1399 {
		t.Errorf("fences took room from jobs: %d", jobs)
	}
	if !fences.Take("b", job("b1", 0), 100) {
		t.Error("no fence of another namespace finds room")
	}
	now := time.Unix(1000, 0)
	last := time.Duration(0)
	for range 1000 {
		last = r.TryAfter("a", now)
	}
	if last < 9*time.Second || last > 11*time.Second {
		t.Errorf("the last of 1,000 runs tries again after %s", last)
	}
	if wait := r.TryAfter("b", now); wait > time.Second {
		t.Errorf("a run of another tenant waits %s", wait)
	}
	if (*Room)(nil).Fences() != nil || (*Room)(nil).TryAfter("a", now) != 0 {
		t.Error("no room is shared, and somebody waits")
	}
}
