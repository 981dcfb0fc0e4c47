// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strconv"
)

// event is one step of the world. can is cheap, and changes nothing; do may still find that nothing
// happens, and returns false.
type event struct {
	name string
	can  func(*world) bool
	do   func(*world) bool
}

// ofMember is an event of one member.
type ofMember struct {
	name string
	can  func(*world, *process) bool
	do   func(*world, *process, int) bool
}

var memberEvents = []ofMember{
	{"renews", func(_ *world, p *process) bool { return !p.renewal && !p.hasRenewed }, func(w *world, p *process, i int) bool {
		return w.renew(p, i) && w.renewed(p, i)
	}},
	{"renews slowly", func(w *world, p *process) bool { return !p.renewal && !p.hasRenewed && w.left.slow > 0 }, func(w *world, p *process, i int) bool {
		w.left.slow--
		return w.renew(p, i)
	}},
	{"has the answer to its renewal", func(_ *world, p *process) bool { return p.renewal }, (*world).renewed},
	{"loses the answer to its renewal", func(_ *world, p *process) bool { return p.renewal }, func(_ *world, p *process, _ int) bool {
		p.renewal = false
		return true
	}},
	{"ticks", func(w *world, p *process) bool { return idleLoop(w, p) && !p.hasLooked }, func(w *world, p *process, i int) bool {
		return w.look(p, i) && w.answered(p, i) && w.list(p, i) && w.answered(p, i) && w.write(p, i)
	}},
	{"glances", func(w *world, p *process) bool { return idleLoop(w, p) && p.m.version != versionOfObject(w.object) }, func(w *world, p *process, i int) bool { return w.look(p, i) && w.answered(p, i) && w.write(p, i) }},
	{"is told", func(w *world, p *process) bool {
		return idleLoop(w, p) && p.told == nil && hasNews(w, p)
	}, func(w *world, p *process, i int) bool { return w.tell(p) && w.hear(p) && w.write(p, i) }},
	{"is to be told", func(w *world, p *process) bool { return p.told == nil && hasNews(w, p) && w.left.slow > 0 }, func(w *world, p *process, _ int) bool {
		w.left.slow--
		return w.tell(p)
	}},
	{"is told late", func(w *world, p *process) bool { return idleLoop(w, p) && p.told != nil }, func(w *world, p *process, i int) bool { return w.hear(p) && w.write(p, i) }},
	{"gives", func(w *world, p *process) bool {
		list, gift := p.m.Due(w.now)
		return idleLoop(w, p) && gift && !list
	}, (*world).write},
	{"lists", func(w *world, p *process) bool {
		list, _ := p.m.Due(w.now)
		return idleLoop(w, p) && list
	}, func(w *world, p *process, i int) bool { return w.list(p, i) && w.answered(p, i) && w.write(p, i) }},
	{"looks slowly", func(w *world, p *process) bool { return idleLoopSlow(w, p) && !p.hasLooked }, func(w *world, p *process, i int) bool {
		w.left.slow--
		return w.look(p, i)
	}},
	{"lists slowly", idleLoopSlow, func(w *world, p *process, i int) bool {
		w.left.slow--
		return w.list(p, i)
	}},
	{"has an answer", func(_ *world, p *process) bool { return p.call != noCall && p.call != writeSent }, (*world).answered},
	{"loses an answer", func(_ *world, p *process) bool { return p.call != noCall && p.call != writeSent }, func(_ *world, p *process, _ int) bool {
		p.call, p.write = noCall, nil
		return true
	}},
	{"writes slowly", idleLoopSlow, func(w *world, p *process, i int) bool {
		w.left.slow--
		return w.propose(p, i)
	}},
	{"has its write applied", func(_ *world, p *process) bool { return p.call == writeSent }, func(w *world, p *process, _ int) bool {
		w.arrive(p)
		return true
	}},
	{"gives up a write", func(w *world, p *process) bool { return p.call == writeSent && w.late == nil && w.left.late > 0 }, func(w *world, p *process, _ int) bool {
		w.left.late--
		w.late, w.lateBase = p.write, p.base
		p.call, p.write = noCall, nil
		return true
	}},
	{"has ended its work", func(_ *world, p *process) bool { return len(p.losing) > 0 }, func(w *world, p *process, _ int) bool {
		p.m.Handled(p.losing, w.now)
		p.losing = nil
		return true
	}},
	{"has ended a part of its work", func(_ *world, p *process) bool { return len(p.losing) > 1 }, func(w *world, p *process, _ int) bool {
		p.m.Handled(p.losing[:1], w.now)
		p.losing = slices.Clone(p.losing[1:])
		return true
	}},
	{"has ended the last part of its work first", func(_ *world, p *process) bool { return len(p.losing) > 1 }, func(w *world, p *process, _ int) bool {
		last := len(p.losing) - 1
		p.m.Handled(p.losing[last:], w.now)
		p.losing = slices.Clone(p.losing[:last])
		return true
	}},
	{"crashes", func(w *world, _ *process) bool { return w.left.crashes > 0 }, func(w *world, p *process, _ int) bool {
		w.left.crashes--
		p.crashed = true
		return true
	}},
	{"leaves", func(w *world, p *process) bool { return w.left.leaves > 0 && !p.m.mark.Leaving }, func(w *world, p *process, _ int) bool {
		w.left.leaves--
		p.m.Marked(Mark{Leaving: true}, w.now)
		return true
	}},
	{"ends", func(w *world, p *process) bool { return w.left.ends > 0 && p.m.mark.Leaving && p.m.Finished() }, func(w *world, p *process, i int) bool {
		w.left.ends--
		if w.leases[i].uid == p.uid {
			w.leases[i] = leaseOf{}
		}
		p.crashed, p.left = true, p.openly
		return true
	}},
	{"is blocked, or not any more", func(w *world, p *process) bool { return w.left.blocks > 0 && !p.m.mark.Leaving }, func(w *world, p *process, _ int) bool {
		w.left.blocks--
		p.m.Marked(Mark{Blocked: !p.m.mark.Blocked, Unfit: !p.m.mark.Blocked}, w.now)
		return true
	}},
}

func idleLoop(_ *world, p *process) bool { return p.call == noCall }

func idleLoopSlow(w *world, p *process) bool { return p.call == noCall && w.left.slow > 0 }

func hasNews(w *world, p *process) bool {
	return w.object.version > 0 && !w.object.garbage && p.m.version != versionOfObject(w.object)
}

// events are all that can happen to so many members.
func events(members int) []event {
	all := []event{{"time passes", func(w *world) bool { return w.missed() <= w.left.skips }, (*world).pass}}
	for i := range members {
		for _, of := range memberEvents {
			all = append(all, event{
				names[i] + " " + of.name,
				func(w *world) bool { return !w.procs[i].crashed && of.can(w, &w.procs[i]) },
				func(w *world) bool {
					p := w.own(i)
					happened := of.do(w, p, i)
					return w.act(p) || happened
				},
			})
		}
		all = append(all, event{"the Lease of " + names[i] + " is deleted by hand", func(w *world) bool {
			return w.left.deletedLeases > 0 && w.leases[i].uid > 0
		}, func(w *world) bool {
			w.left.deletedLeases--
			w.leases[i] = leaseOf{}
			return true
		}})
	}
	return append(all,
		event{"a write that was given up arrives", func(w *world) bool { return w.late != nil }, func(w *world) bool {
			w.apply(w.late, w.lateBase)
			w.late = nil
			return true
		}},
		event{"the object is deleted by hand", func(w *world) bool { return w.left.deletedObject > 0 && w.object.version > 0 }, func(w *world) bool {
			w.left.deletedObject--
			w.object = served{}
			return true
		}},
		event{"the object is made garbage by hand", func(w *world) bool { return w.left.garbage > 0 && w.object.version > 0 && !w.object.garbage }, func(w *world) bool {
			w.left.garbage--
			w.object = served{version: w.object.version + 1, garbage: true, e: w.object.e}
			return true
		}},
	)
}

// missed is what members did not do in this unit of time.
func (w *world) missed() (n int) {
	for _, p := range w.procs {
		if !p.crashed && !p.hasRenewed {
			n++
		}
		if !p.crashed && !p.hasLooked {
			n++
		}
	}
	return n
}

func (w *world) pass() bool {
	w.left.skips -= w.missed()
	w.now++
	for i := range w.procs {
		w.procs[i].hasRenewed, w.procs[i].hasLooked = w.procs[i].renewal, w.procs[i].call != noCall
	}
	return true
}

// renew: the renewal takes effect now, and may be answered later.
func (w *world) renew(p *process, i int) bool {
	l := &w.leases[i]
	p.renewal, p.renewalSent, p.renewalGone, p.hasRenewed = true, w.now, false, true
	switch {
	case p.uid == 0 && l.uid == 0:
		w.uids++
		*l = leaseOf{uid: w.uids}
		p.uid = w.uids
	case l.uid != p.uid || p.uid == 0:
		p.renewalGone = true
		return true
	}
	l.rv++
	l.leaving, l.unfit = p.m.mark.Leaving, p.m.mark.Unfit
	return true
}

func (w *world) renewed(p *process, _ int) bool {
	p.renewal = false
	if p.renewalGone {
		p.m.LeaseGone()
		p.uid = 0
		return true
	}
	p.m.Renewed(p.renewalSent, w.now)
	return true
}

func (w *world) look(p *process, _ int) bool {
	p.hasLooked = true
	p.call, p.look = lookCall, Look{Sent: w.now, Version: versionOfObject(w.object)}
	if w.object.version > 0 && !w.object.garbage {
		e := w.object.e
		p.look.Effective = &e
	}
	return true
}

// tell: the watch of a member has seen the object.
func (w *world) tell(p *process) bool {
	e := w.object.e
	p.told, p.toldVersion = &e, versionOfObject(w.object)
	return true
}

// hear: the member has what its watch has seen.
func (w *world) hear(p *process) bool {
	e := p.told
	p.told = nil
	return p.m.Told(p.toldVersion, *e, w.now)
}

func (w *world) list(p *process, _ int) bool {
	p.call, p.list = listCall, List{Sent: w.now}
	for i, l := range w.leases {
		if l.uid > 0 {
			p.list.Leases = append(p.list.Leases, Lease{Name: names[i], Version: versionOf(l), Leaving: l.leaving, Unfit: l.unfit, Lasts: w.procs[i].m.Lease})
		}
	}
	return true
}

func (w *world) answered(p *process, _ int) bool {
	switch p.call {
	case lookCall, writeApplied:
		p.look.Received = w.now
		p.m.Looked(p.look)
	case listCall:
		p.list.Received = w.now
		p.m.Listed(p.list)
	case writeRefused, noCall, writeSent:
	}
	p.call, p.write = noCall, nil
	return true
}

func (w *world) propose(p *process, _ int) bool {
	next, base := p.m.Propose(w.now, Making{Origin: "o" + strconv.Itoa(w.origins+1), Floor: slices.Max(w.written) + 1})
	if next == nil {
		return false
	}
	if next.Origin != p.m.known.Origin {
		w.origins++
	}
	p.call, p.write, p.base, p.look = writeSent, next, 0, Look{Sent: w.now}
	if base != "" {
		p.base, _ = strconv.Atoi(base)
	}
	return true
}

// write is a write with its answer, if there is anything to write.
func (w *world) write(p *process, i int) bool {
	w.act(p)
	if w.propose(p, i) {
		w.arrive(p)
		w.answered(p, i)
	}
	return true
}

// arrive: the write of a member is at the API server.
func (w *world) arrive(p *process) {
	p.call = writeRefused
	if w.apply(p.write, p.base) {
		p.call = writeApplied
	} else if p.m.without(ruleCompareAndSwap) {
		w.store(p.write)
		p.call = writeApplied
	}
	p.openly = p.call == writeApplied && p.m.mark.Leaving && w.leases[slices.Index(names, p.m.name)].leaving
	p.look.Version, p.look.Effective = versionOfObject(w.object), p.write
}

// act is what the shell does after each event.
func (w *world) act(p *process) bool {
	a := p.m.Act(w.now)
	p.losing = append(p.losing, a.Lose...)
	return len(a.Gain)+len(a.Lose)+len(a.Cut) > 0
}
