// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// world is one state of the model: everything that exists outside of Decide. It is comparable, and
// so its own key.
type world struct {
	status int32  // persisted
	spec   intent // persisted
	now    time.Duration

	lock lease // who has the lock according to Redis
	down bool  // Redis cannot be used
	full bool  // the tenant has as many runs as it may

	jobs    attempts // in JOBS
	working attempts // with a worker
	excused attempts // a worker died with it: running it again is right
	ran     attempts // handed to a worker at least once
	fenced  attempts // with a fence message in JOBS
	fences  [16]int8 // the fence in it
	said    attempts // Started is in RESULTS
	heard   attempts // Started was acknowledged
	answers answers  // final results in RESULTS
	late    attempts // those of them that were stored after their time
	tardy   attempts // Started was stored after its time
	acked   attempts // final results acknowledged
	aside   attempts // final results put aside as dead letters: not in RESULTS any more

	kid kid // the child run, if a step is one

	process [2]process

	// stored is what was published first for each attempt, as a number of core.texts; only where
	// the run may be ahead of its status.
	stored    [16]int8
	withdrawn attempts // taken back: not to be begun any more
	lossy     bool     // a stream lost its data
	lost      attempts // final results that RESULTS lost

	// budgets left; slow: how often the clock may overtake what could be done at once
	faults, cancels, terminates, suspends, decisions, retries, failures, started, slow int8
	refusals, redrives, losses                                                         int8
}

// process is the memory of an operator process.
type process struct {
	dead, seen bool
	view       int32  // the run as this process last read or wrote it
	spec       intent // likewise
	lease      lease  // as it believes
	fares      fares  // of its lease
	lost       bool   // its last lease was lost
	finals     attempts
	starts     attempts      // its inbox
	doomed     attempts      // finals in its inbox that were refused too often: to be put aside when status says so
	handled    attempts      // in flight, and published or found by this process
	asOf       time.Duration // when it asked the stream in this pass; 0: it did not
	found      attempts      // final results that it found there
	begun      attempts      // likewise Started

	// effects of its last decision that are left
	publish  attempts
	withdraw attempts
	ackFinal attempts
	ackStart attempts
	bury     attempts

	create bool // a child run
	born   int8 // the child that it created, or found; 0: it knows of none

	lag        bool     // view is decided, and not written
	base       int32    // the status that was stored when it began to be so
	held       attempts // finals in its inbox whose effect is in view
	heldStarts attempts // likewise
	own        bool     // no other process can have worked on the run before the first write
	ahead      attempts // published, and not in a status that it knows to be written

	barred bool     // all attempts in flight are fenced for its next write
	left   attempts // so are these, which others may have had ahead
	wrote  int16    // names the lease under which it last wrote

	looking  attempts // an attempt being recovered: fenced, JOBS is next
	checking attempts // an attempt being recovered: not in JOBS, RESULTS is next
	absent   attempts // an attempt being recovered: in neither; publish is next
	current  bool     // its fence message is still the last one
}

func (p *process) idle() bool {
	return p.publish|p.withdraw|p.ackFinal|p.ackStart|p.bury|p.recovering() == 0 && !p.create
}

func (p *process) recovering() attempts { return p.looking | p.checking | p.absent }

// step is a possible transition.
type step struct {
	next  world
	name  label
	fault bool  // costs budget, or comes from the user: does not count for liveness
	time  bool  // only time passes
	err   error // the transition breaks a rule
}

// label names a transition; put into words only when a path is printed.
type label struct {
	text         string // "p%d" and "%s" stand for process and attempt
	process, bit int    // -1: none
}

func (l label) words(c *core) string {
	text := strings.Replace(l.text, "%d", strconv.Itoa(l.process), 1)
	if l.bit >= 0 {
		text = strings.Replace(text, "%s", c.id(l.bit).String(), 1)
	}
	return text
}

func (w *world) holder(l lease) bool { return l.fence != 0 && w.lock == l }

// fence stores fence messages, unless there is one of a higher fence: then it says so. Whoever
// recovers one of the attempts is not in the last epoch any more.
func (w *world) fence(of attempts, fence int16) (refused bool) {
	of.each(func(bit int) {
		job := attempts(1) << bit
		if int16(w.fences[bit]) > fence {
			refused = true
			return
		}
		w.fenced |= job
		w.fences[bit] = int8(fence)
		for i := range w.process {
			if p := &w.process[i]; p.recovering()&job != 0 {
				p.current = false
			}
		}
	})
	return refused
}

// forget takes out fence messages that do not matter any more: nobody can publish or
// recover their attempts.
func (m *model) forget(w *world) {
	matters := m.core.statuses[w.status].inFlight
	if m.lags {
		return // whoever is ahead may publish what no status has: the message outlives the attempt by an hour
	}
	for i := range w.process {
		p := &w.process[i]
		matters |= p.publish | p.recovering()
		if p.seen {
			matters |= m.core.statuses[p.view].inFlight
		}
	}
	(w.fenced &^ matters).each(func(bit int) { w.fences[bit] = 0 })
	w.fenced &= matters
}

// put publishes a job of an epoch, last or not, at any time: the process may have been paused
// before. It says whether the job is there. The stream refuses it if the last message about the
// attempt is another than the one expected.
func (w *world) put(job attempts, last bool) (there bool, err error) {
	switch {
	case !last:
		return w.jobs&job != 0, nil
	case w.jobs&job != 0:
		return true, errors.New("J3: a job is in the queue twice")
	}
	w.jobs |= job
	return true, nil
}

// answered are the attempts with a final result in RESULTS, or that had one which was acknowledged.
func (w *world) answered() attempts {
	var a attempts
	for bit := range 16 {
		if w.answers.of(bit) != answerNone {
			a |= 1 << bit
		}
	}
	return a &^ w.aside &^ w.lost
}

// model is one configuration: a DAG and its budgets.
type model struct {
	core  *core
	start world
	procs int
	// mutations that the model itself must catch
	ackEarly, noLookup, noClaim, noBirth, noFence, noBar, buryEarly, blindQuestion bool
	// gated: the tenant is at its limit at first.
	gated bool
	// parks: results are given back with a delay while Redis cannot be used.
	parks bool
	// forRun: leases are kept for the run, and renewals happen, fail, and work again.
	forRun bool
	// continues: a lease that cannot be renewed is worked under without the lock (onFailure
	// Continue), else it is lost.
	continues bool
	// lags: the run may be ahead of its status. And what is left out of the rules for that.
	lags                                                                    bool
	consequences                                                            map[consequence]attempts
	ackAhead, plainTaker, beginAnyone, recoverBegun, settleAgain, leaveJobs bool
}

func (m *model) steps(w *world) []step {
	var all []step
	for i := range m.procs {
		if w.process[i].dead {
			all = append(all, m.restart(w, i))
			continue
		}
		all = m.processSteps(all, w, i)
	}
	all = m.gateSteps(all, w)
	all = m.workerSteps(all, w)
	all = m.kidSteps(all, w)
	all = m.redisSteps(all, w)
	all = m.userSteps(all, w)
	all = m.redriveSteps(all, w)
	all = m.lossSteps(all, w)
	all = m.timeSteps(all, w)
	for i := range all {
		next := &all[i].next
		m.forget(next)
		open := m.core.statuses[next.status].inFlight | m.mayBeAhead(next) // of others nobody asks any more
		next.late, next.tardy = next.late&open, next.tardy&open
		if m.lags {
			all[i].err = errors.Join(all[i].err, m.aheadRules(next))
		}
	}
	return all
}

func (m *model) restart(w *world, i int) step {
	next := *w
	next.process[i] = process{own: m.beginAnyone}
	return step{next: next, name: label{text: "p%d restarts", process: i, bit: -1}}
}

func (m *model) processSteps(all []step, w *world, i int) []step {
	all = m.deliveries(all, w, i)
	if w.faults > 0 {
		all = append(all, m.crash(w, i))
	}
	p := &w.process[i]
	if !p.idle() {
		return append(all, m.act(w, i))
	}
	if !p.seen || p.stored() != w.status || p.spec != w.spec {
		next := *w
		q := &next.process[i]
		m.readAhead(&next, i)
		q.seen, q.spec = true, w.spec
		q.handled &= m.core.statuses[q.view].inFlight
		q.barred = false
		all = append(all, step{next: next, name: label{text: "p%d reads the run", process: i, bit: -1}})
	}
	if !p.seen {
		return all
	}
	all = m.lockSteps(all, w, i)
	all = m.recoverSteps(all, w, i)
	all = m.birthSteps(all, w, i)
	all = m.parkSteps(all, w, i)
	return m.decideSteps(all, w, i)
}

// deliveries hand results to the inbox: each once, and again as a fault.
func (m *model) deliveries(all []step, w *world, i int) []step {
	var inboxFinals, inboxStarts attempts
	for k := range w.process {
		p := &w.process[k]
		inboxFinals |= p.finals | p.ackFinal | p.doomed | p.bury | p.held
		inboxStarts |= p.starts | p.ackStart | p.heldStarts
	}
	(w.answered() &^ inboxFinals &^ w.acked).each(func(bit int) {
		next := *w
		next.process[i].finals |= 1 << bit
		all = append(all, step{next: next, name: label{text: "p%d gets the result of %s", process: i, bit: bit}})
	})
	(w.said &^ inboxStarts &^ w.heard).each(func(bit int) {
		next := *w
		next.process[i].starts |= 1 << bit
		all = append(all, step{next: next, name: label{text: "p%d gets Started of %s", process: i, bit: bit}})
	})
	all = m.refusals(all, w, i)
	if w.faults > 0 {
		(w.acked &^ inboxFinals).each(func(bit int) {
			next := *w
			next.faults--
			next.acked &^= 1 << bit
			next.process[i].finals |= 1 << bit
			all = append(all, step{next: next, name: label{text: "p%d gets the result of %s again", process: i, bit: bit}, fault: true})
		})
		((w.process[0].held | w.process[1].held) &^ w.process[i].finals).each(func(bit int) {
			next := *w
			next.faults--
			next.process[i].finals |= 1 << bit
			all = append(all, step{next: next, name: label{text: "p%d gets the result of %s, which is ahead, again", process: i, bit: bit}, fault: true})
		})
	}
	return all
}

// refusals: writes with a result are refused until its deliveries are used up.
func (m *model) refusals(all []step, w *world, i int) []step {
	if w.refusals == 0 || w.process[i].lease.fence == 0 {
		return all
	}
	(w.process[i].finals & m.core.statuses[w.process[i].view].inFlight).each(func(bit int) {
		next := *w
		next.refusals--
		p := &next.process[i]
		p.finals &^= 1 << bit
		p.doomed |= 1 << bit
		if m.buryEarly {
			next.aside |= 1 << bit
			p.doomed &^= 1 << bit
		}
		all = append(all, step{next: next, name: label{text: "p%d cannot write the result of %s", process: i, bit: bit}, fault: true})
	})
	return all
}

// redriveSteps: somebody publishes a dead letter again.
func (m *model) redriveSteps(all []step, w *world) []step {
	if w.redrives == 0 {
		return all
	}
	w.aside.each(func(bit int) {
		next := *w
		next.redrives--
		next.aside &^= 1 << bit
		if m.overdue(w, bit) {
			next.late |= 1 << bit // it is stored anew
		}
		all = append(all, step{next: next, name: label{text: "somebody redrives the result of %s", process: -1, bit: bit}, fault: true})
	})
	return all
}

// crash loses the memory: inbox, lease, effects under way. Redis does not notice.
func (m *model) crash(w *world, i int) step {
	next := *w
	next.faults--
	next.process[i] = process{dead: true}
	return step{next: next, name: label{text: "p%d crashes", process: i, bit: -1}, fault: true}
}

func (m *model) lockSteps(all []step, w *world, i int) []step {
	p := &w.process[i]
	all = m.renewalSteps(all, w, i)
	switch {
	case p.lease.fence != 0 && !w.holder(p.lease) && (!m.continues || (w.lock.fence != 0 && !w.down)):
		next := *w
		next.process[i].lease, next.process[i].fares, next.process[i].lost, next.process[i].barred = lease{}, fares{}, true, false
		m.dropAhead(&next, i)
		all = append(all, step{next: next, name: label{text: "p%d notices that its lease is lost", process: i, bit: -1}})
	case p.lease.fence != 0 && !m.usable(p):
		next := *w
		next.drop(i)
		m.dropAhead(&next, i)
		all = append(all, step{next: next, name: label{text: "p%d drops a lease below its floor", process: i, bit: -1}})
	case p.lease.fence != 0 && m.procs > 1 && m.unknown(p) == 0 && !p.lag && w.process[1-i].finals|w.process[1-i].starts|w.process[1-i].doomed != 0:
		next := *w
		next.drop(i)
		all = append(all, step{next: next, name: label{text: "p%d releases its lease", process: i, bit: -1}})
	case p.lease.fence == 0 && w.lock.fence == 0 && !w.down && !m.core.statuses[p.view].finished:
		// Redis lost its data, always: the floor alone keeps the fence up.
		next := *w
		l := lease{fence: int16(m.core.statuses[p.view].fence) + 1, process: int8(i)}
		next.process[i].lease, next.lock, next.process[i].barred = l, l, false
		all = append(all, step{next: next, name: label{text: "p%d takes the lock", process: i, bit: -1}})
	}
	return all
}

// drop gives a lease back.
func (w *world) drop(i int) {
	p := &w.process[i]
	if w.holder(p.lease) {
		w.lock = lease{}
	}
	p.lease, p.fares, p.barred = lease{}, fares{}, false
}

// renewalSteps: a renewal works, fails, or has failed for so long that the lease ends. A lock that
// is gone is taken again for the same lease, with the next fence.
func (m *model) renewalSteps(all []step, w *world, i int) []step {
	p := &w.process[i]
	if !m.forRun || p.lease.fence == 0 {
		return all
	}
	fare := func(f fares, text string) {
		next := *w
		next.process[i].fares = f
		all = append(all, step{next: next, name: label{text: text, process: i, bit: -1}})
	}
	switch {
	case !w.down && w.holder(p.lease) && p.fares != fares{renewed: true}:
		fare(fares{renewed: true}, "p%d renews its lock")
	case w.down && !p.fares.failing:
		fare(fares{renewed: p.fares.renewed, failing: true}, "p%d cannot renew its lock")
	case w.down && m.continues && !p.fares.unlocked:
		fare(fares{renewed: p.fares.renewed, failing: true, unlocked: true}, "p%d goes on without the lock")
	case w.down && !m.continues:
		next := *w
		next.process[i].lease, next.process[i].fares, next.process[i].lost, next.process[i].barred = lease{}, fares{}, true, false
		all = append(all, step{next: next, name: label{text: "p%d's lease ends", process: i, bit: -1}})
	case m.continues && !w.down && w.lock.fence == 0 && p.lease.raised < maxRaised:
		next := *w
		q := &next.process[i]
		q.lease.fence++
		q.lease.raised++
		q.barred = false
		q.fares, next.lock = fares{renewed: true}, q.lease
		all = append(all, step{next: next, name: label{text: "p%d takes its lock again", process: i, bit: -1}})
	}
	return all
}

// maxRaised bounds how often a lease of the model is taken again; more often than locks are lost.
const maxRaised = 3

// usable is what the lock manager promises: a lease is handed out only above the floor, the fence
// in the status that the process knows.
func (m *model) usable(p *process) bool {
	k := &m.core.statuses[p.view]
	return int64(p.lease.fence) > k.fence || (int64(p.lease.fence) == k.fence && leaseID(p.lease) == k.leaseID)
}

// recoverSteps look for attempts which status says are in flight and this process knows nothing
// about. What is found needs no more. Before it publishes what is nowhere it must have written the
// run under its lease, and have looked after that: only then can no earlier holder withdraw the
// attempt in between.
func (m *model) recoverSteps(all []step, w *world, i int) []step {
	p := &w.process[i]
	if p.lease.fence == 0 || !m.usable(p) {
		return all
	}
	unknown := m.unknown(p)
	if unknown == 0 {
		return all
	}
	bit := unknown & -unknown
	next := *w
	q := &next.process[i]
	if !m.noFence && next.fence(bit, p.lease.fence) {
		m.fencedOut(&next, i)
		return append(all, step{next: next, name: label{text: "p%d is told of a higher fence", process: i, bit: -1}})
	}
	q.looking, q.current = bit, true
	return append(all, step{next: next, name: label{text: "p%d fences %s to recover it", process: i, bit: bits.TrailingZeros16(uint16(bit))}})
}

// fencedOut: a process that is told of a higher fence gives its lease back and reads the run.
func (m *model) fencedOut(w *world, i int) {
	w.drop(i)
	m.dropAhead(w, i)
	w.process[i].seen = false
}

func (m *model) unknown(p *process) attempts { return m.core.statuses[p.view].unanswered &^ p.handled }

// mustClaim: attempts are to be recovered, and status was written under another lease.
func (m *model) mustClaim(p *process) bool {
	k := &m.core.statuses[p.stored()]
	if m.recoverBegun {
		k = &m.core.statuses[p.view]
	}
	return p.lease.fence != 0 && m.unknown(p) != 0 && (k.leaseID != leaseID(p.lease) || k.fence != int64(p.lease.fence))
}

// untold: a lease was lost, and the status that the process knows does not say so yet.
func (m *model) untold(p *process) bool {
	k := &m.core.statuses[p.view]
	return p.lost && (k.status == nil || !report.Abandoned(k.status))
}

// act does one effect.
func (m *model) act(w *world, i int) step {
	next := *w
	p := &next.process[i]
	s := step{}
	switch {
	case p.looking != 0:
		switch {
		case w.jobs&p.looking != 0:
			p.handled |= p.looking
		case m.noLookup:
			p.absent = p.looking
		default:
			p.checking = p.looking
		}
		p.looking = 0
		p.current = p.current && p.recovering() != 0
		s.name = label{text: "p%d looks for a job in JOBS", process: i, bit: -1}
	case p.checking != 0:
		if w.answered()&^w.acked&p.checking != 0 {
			p.handled |= p.checking
		} else {
			p.absent = p.checking
		}
		p.checking = 0
		p.current = p.current && p.recovering() != 0
		s.name = label{text: "p%d looks for a result in RESULTS", process: i, bit: -1}
	case p.absent != 0:
		bit := p.absent
		p.absent = 0
		if m.mustClaim(p) && !m.noClaim {
			p.current = false
			s.name = label{text: "p%d found a job nowhere, and has not claimed it", process: i, bit: -1}
			break
		}
		s.err = m.publish(&next, i, bit, p.current || m.noFence)
		s.name = label{text: "p%d publishes a recovered job", process: i, bit: -1}
	case p.create:
		return m.giveBirth(w, i)
	case p.publish != 0:
		bit := p.publish & -p.publish
		p.publish &^= bit
		if !m.lags {
			s.err = m.intended(w, bit)
		}
		s.err = errors.Join(s.err, m.publish(&next, i, bit, w.fenced&bit == 0))
		s.name = label{text: "p%d publishes %s", process: i, bit: bits.TrailingZeros16(uint16(bit))}
	case p.withdraw != 0:
		next.jobs &^= p.withdraw
		next.withdrawn |= p.withdraw
		p.withdraw = 0
		s.name = label{text: "p%d withdraws jobs", process: i, bit: -1}
	case p.bury != 0:
		next.aside |= p.bury
		p.bury = 0
		s.name = label{text: "p%d puts results aside", process: i, bit: -1}
	default:
		p.ackFinal.each(func(bit int) { s.err = errors.Join(s.err, m.mayAck(w, 1<<bit)) })
		next.acked |= p.ackFinal &^ w.lost
		next.heard |= p.ackStart
		p.ackFinal, p.ackStart = 0, 0
		s.name = label{text: "p%d acks", process: i, bit: -1}
	}
	s.next = next
	return s
}

// publish publishes a job, and learns what became of it.
func (m *model) publish(next *world, i int, bit attempts, last bool) error {
	p := &next.process[i]
	if m.noFence && next.jobs&bit != 0 {
		last = false // expected-last-sequence 0 of the job's own subject
	}
	before := next.jobs
	there, err := next.put(bit, last)
	if next.jobs != before {
		err = errors.Join(err, m.store(next, p.view, bit))
	}
	switch {
	case there:
		p.handled |= bit
	case p.lease.fence != 0 && int16(next.fences[bits.TrailingZeros16(uint16(bit))]) > p.lease.fence:
		m.fencedOut(next, i)
	}
	return err
}

// intended: nothing leaves the process before its intent is persisted.
func (m *model) intended(w *world, job attempts) error {
	step, attempt := m.where(job)
	steps := m.core.statuses[w.status].slots
	if step >= len(steps) || steps[step].Attempt < attempt {
		return fmt.Errorf("a job was published before its attempt was persisted")
	}
	return nil
}

// mayAck is I1: what is acknowledged is in the persisted status, or stale by rule.
func (m *model) mayAck(w *world, result attempts) error {
	step, attempt := m.where(result)
	k := &m.core.statuses[w.status]
	if k.finished {
		return nil
	}
	s := v1alpha1.StepStatus{}
	if k.status != nil {
		s = k.slots[step]
	}
	if s.Attempt < attempt || (s.Attempt == attempt && status.InFlight(s.Phase)) {
		return fmt.Errorf("I1: a result was acknowledged, but status still waits for it")
	}
	return nil
}

func (m *model) where(bit attempts) (step int, attempt int32) {
	n := bits.TrailingZeros16(uint16(bit))
	return n / perStep, int32(n%perStep) + 1
}
