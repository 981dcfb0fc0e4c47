// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"fmt"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// decideSteps: decide on what the process knows, and persist in the same step. What it knows may be
// old: then the API server refuses the write by its resourceVersion, and nothing else happens.
func (m *model) decideSteps(all []step, w *world, i int) []step {
	p := &w.process[i]
	if p.lag && m.mustClaim(p) {
		return append(all, m.checkpoint(w, i))
	}
	q := question{
		status: p.view, spec: p.spec, now: w.now, lease: p.lease, fares: p.fares, forRun: m.forRun, lost: m.untold(p),
		finals: p.finals | p.found, starts: p.starts | p.begun, doomed: p.doomed, asOf: p.asOf, claim: m.mustClaim(p), full: m.shut(w, p.view), kid: m.kidFact(w, p),
		lags: m.lags, begins: m.lags && p.view == 0 && p.own,
	}
	q.finals.each(func(bit int) { q.answers = q.answers.with(bit, w.answers.of(bit)) })
	if m.lags {
		q.late = w.late & q.finals
	}
	if p.lease.fence == 0 && q.finals|q.starts|q.doomed != 0 {
		all = m.settleUnlocked(all, w, i, q)
	}
	switch {
	case p.lease.fence != 0 && !m.usable(p):
		return all
	case p.lease.fence != 0:
		q.state = LockHeld
	case w.down:
		q.state = LockUnavailable
	case w.lock.fence != 0 || m.core.statuses[p.view].finished:
		q.state = LockBusy
	default:
		return all // it takes the lock first
	}
	if q.state != LockHeld {
		q.lease, q.fares = lease{process: int8(i)}, fares{}
	}
	number := m.core.ask(q)
	v := &m.core.verdicts[number]
	if v.err != nil {
		return append(all, step{next: *w, name: label{text: "decide", process: -1, bit: -1}, err: v.err})
	}
	switch {
	case v.asks:
		return append(all, m.question(w, i))
	case m.mayRunAhead(p, v):
		all = append(all, m.runAhead(w, i, number))
	case p.lag && !v.changed && v.ackFinal&p.finals|v.ackStart&p.starts != 0:
		return append(all, m.hold(w, i, v))
	}
	if p.lag {
		all = append(all, m.checkpoint(w, i))
	}
	switch {
	case m.mustBar(p, v):
		return append(all, m.bar(w, i, v))
	case v.changed || v.ackFinal&p.finals|v.ackStart&p.starts != 0, v.told && p.doomed != 0:
		return append(all, m.persist(w, i, number, q.state))
	case p.asOf != 0:
		next := *w
		next.process[i].forget()
		return append(all, step{next: next, name: label{text: "p%d's pass ends", process: i, bit: -1}})
	default:
		return all
	}
}

// question: the stream's leader is asked for all results of the run that are not settled.
func (m *model) question(w *world, i int) step {
	next := *w
	p := &next.process[i]
	p.asOf = w.now
	if !m.blindQuestion {
		p.found, p.begun = w.answered()&^w.acked&^p.doomed, w.said&^w.heard
	}
	return step{next: next, name: label{text: "p%d asks the stream", process: i, bit: -1}}
}

// nothingTimely is J7: what timed out had no answer that came in time, unless it was
// refused for good.
func (m *model) nothingTimely(w *world, i int, v *verdict) error {
	switch {
	case v.timedOut&w.answered()&^w.acked&^w.late&^w.process[i].doomed != 0:
		return errors.New("J7: timed out, though an answer was stored in time")
	case v.unstarted&w.said&^w.heard&^w.tardy != 0:
		return errors.New("J7: timed out before its start, though Started was stored in time")
	}
	return nil
}

// forget ends a pass: what it found in the stream is not known to the next one.
func (p *process) forget() { p.asOf, p.found, p.begun = 0, 0, 0 }

// parkSteps: results go back to NATS, which delivers them again some time.
func (m *model) parkSteps(all []step, w *world, i int) []step {
	if p := &w.process[i]; !m.parks || !w.down || p.finals|p.starts == 0 {
		return all
	}
	next := *w
	next.process[i].finals, next.process[i].starts = 0, 0
	return append(all, step{next: next, name: label{text: "p%d gives its results back", process: i, bit: -1}})
}

// mustBar: a run that another wrote last, or an end without the lock, is written only when all
// attempts in flight are fenced: an answer may be acknowledged after it, and then nobody can tell a
// late publish from a first one.
func (m *model) mustBar(p *process, v *verdict) bool {
	k := &m.core.statuses[p.view]
	left := m.mayBeLeft(p, v)
	barred := p.barred && left&^p.left == 0
	foreign := k.leaseID != fmt.Sprintf("p%d-%d", p.lease.process, p.wrote)
	return v.changed && (k.inFlight != 0 || left != 0) && !barred && !m.noFence && !m.noBar && ((foreign && !v.forced) || (v.forced && v.withdraw|v.applied != 0) || left != 0)
}

// bar fences all attempts in flight. Without the lock it is told of a higher fence in vain: whoever
// has that one has fenced, too.
func (m *model) bar(w *world, i int, v *verdict) step {
	next := *w
	p := &next.process[i]
	fence := p.lease.fence
	if v.forced {
		fence = int16(m.core.statuses[v.next].fence)
	}
	if next.fence(m.core.statuses[p.view].inFlight|m.mayBeLeft(p, v), fence) && !v.forced {
		m.fencedOut(&next, i)
		return step{next: next, name: label{text: "p%d is told of a higher fence before it writes", process: i, bit: -1}}
	}
	p.barred, p.left = true, m.mayBeLeft(p, v)
	return step{next: next, name: label{text: "p%d fences what is in flight", process: i, bit: -1}}
}

// settleUnlocked: what a decision under a lock would not change needs no lock. So duplicates are
// acknowledged without one.
func (m *model) settleUnlocked(all []step, w *world, i int, q question) []step {
	q.lease = lease{fence: int16(m.core.statuses[q.status].fence) + 1, process: int8(i)}
	number := m.core.ask(q)
	v := &m.core.verdicts[number]
	if p := &w.process[i]; v.err == nil && (v.changed || (v.ackFinal&p.finals|v.ackStart&p.starts == 0 && (!v.told || q.doomed == 0))) {
		return all
	}
	s := m.persist(w, i, number, LockHeld)
	s.err = errors.Join(s.err, v.err)
	return append(all, s)
}

func (m *model) persist(w *world, i int, number int32, state LockState) step {
	next := *w
	v, p := &m.core.verdicts[number], &next.process[i]
	p.forget()
	fresh := p.stored() == w.status && p.spec == w.spec
	if v.changed {
		refusal := m.refuse(w, v)
		if !fresh || refusal != nil {
			// A refused write drops the lease; the next one is taken with a floor from a live read.
			if (!m.forRun && !p.lag) || !m.current(w.status, p.lease) {
				next.drop(i)
				m.dropAhead(&next, i)
			}
			p.seen, p.barred = false, false
			s := step{next: next, name: label{text: "p%d is refused", process: i, bit: -1}}
			if fresh && (state != LockHeld || w.holder(w.process[i].lease)) {
				s.err = fmt.Errorf("a write that should pass was refused: %w", refusal)
			}
			if m.ackEarly {
				s.next.acked |= v.ackFinal
				s.next.process[i].finals &^= v.ackFinal
			}
			return s
		}
		next.status = v.next
		if !v.forced {
			p.wrote = p.lease.fence - int16(p.lease.raised)
		}
		p.view, p.lost, p.barred, p.left = v.next, false, false, 0
	}
	p.publish, p.withdraw, p.ackFinal, p.ackStart = v.dispatch, v.withdraw, v.ackFinal&p.finals, v.ackStart&p.starts
	m.afterWrite(p, v)
	p.create = v.create
	p.finals &^= v.ackFinal
	p.starts &^= v.ackStart
	if v.told {
		p.bury, p.doomed = p.doomed, 0
	}
	p.handled &= m.core.statuses[p.view].inFlight
	s := step{next: next, name: label{text: "p%d decides and persists ( " + v.eventText + ")", process: i, bit: -1}}
	s.err = errors.Join(m.invariants(w, &next, v), m.nothingTimely(w, i, v))
	return s
}

// current: the status shows no writer after a lease.
func (m *model) current(number int32, l lease) bool {
	k := &m.core.statuses[number]
	return int64(l.fence) > k.fence || (int64(l.fence) == k.fence && leaseID(l) == k.leaseID)
}

// refuse is the rules of the CRD.
func (m *model) refuse(w *world, v *verdict) error {
	old, next := &m.core.statuses[w.status], &m.core.statuses[v.next]
	switch {
	case next.fence < old.fence:
		return errors.New("the fence decreases")
	case next.fence == old.fence && next.leaseID != old.leaseID:
		return errors.New("an equal fence of another lease")
	case old.finished && (!next.finished || next.status.Phase != old.status.Phase):
		return errors.New("the run has ended")
	}
	return nil
}

// invariants of accepted writes.
func (m *model) invariants(old, next *world, v *verdict) error {
	a, b := &m.core.statuses[old.status], &m.core.statuses[next.status]
	inFlight := a.inFlight
	if m.lags {
		inFlight = ^attempts(0) // of what the writer knew, which is ahead of this: see checkStep
	}
	switch {
	case b.fence < a.fence:
		return errors.New("I3: the fence decreased")
	case a.finished && old.status != next.status:
		return errors.New("an end is not absorbing")
	case v.applied&^inFlight != 0:
		return errors.New("I2: a result was applied to an attempt that was not in flight")
	}
	return nil
}

// workerSteps: take, say Started, answer, ack, die.
func (m *model) workerSteps(all []step, w *world) []step {
	(w.jobs &^ w.working).each(func(bit int) {
		job := attempts(1) << bit
		next := *w
		next.working |= job
		s := step{name: label{text: "a worker takes %s", process: -1, bit: bit}}
		if w.withdrawn&job != 0 && m.lags {
			s.err = errors.New("J8: a job begins after it was taken back")
		}
		if w.ran&job != 0 && w.excused&job == 0 {
			s.err = errors.New("I2: a worker runs an attempt again, though no worker died with it")
		}
		next.ran |= job
		next.excused &^= job
		s.next = next
		all = append(all, s)
	})
	w.working.each(func(bit int) { all = m.workerAt(all, w, bit) })
	return all
}

func (m *model) workerAt(all []step, w *world, bit int) []step {
	job := attempts(1) << bit
	if w.answered()&job != 0 || w.aside&job != 0 {
		next := *w
		next.working &^= job
		next.jobs &^= job
		return append(all, step{next: next, name: label{text: "the worker acks the job %s", process: -1, bit: bit}})
	}
	if w.said&job == 0 && w.started > 0 {
		next := *w
		next.said |= job
		next.started--
		if m.overdue(w, bit) {
			next.tardy |= job
		}
		all = append(all, step{next: next, name: label{text: "the worker of %s says Started", process: -1, bit: bit}})
	}
	say := func(a answer, next world, name string, fault bool) {
		next.answers, next.lost = next.answers.with(bit, a), next.lost&^job
		if m.overdue(w, bit) {
			next.late |= job
		}
		all = append(all, step{next: next, name: label{text: name, process: -1, bit: bit}, fault: fault})
	}
	say(answerSucceeded, *w, "the worker of %s succeeds", false)
	if w.failures > 0 {
		next := *w
		next.failures--
		say(answerFailed, next, "the worker of %s fails", true)
	}
	if w.retries > 0 {
		next := *w
		next.retries--
		say(answerRetry, next, "the worker of %s asks for a retry", true)
	}
	if w.faults > 0 {
		next := *w
		next.faults--
		next.working &^= job
		next.excused |= job
		all = append(all, step{next: next, name: label{text: "the worker of %s dies", process: -1, bit: bit}, fault: true})
	}
	return all
}

func (m *model) redisSteps(all []step, w *world) []step {
	if w.down && m.forRun && w.lock.fence != 0 && m.unlocked(w) {
		next := *w
		next.lock = lease{}
		all = append(all, step{next: next, name: label{text: "the lock of a process that cannot renew it expires", process: -1, bit: -1}})
	}
	if w.lock.fence != 0 && !m.believed(w) {
		next := *w
		next.lock = lease{}
		all = append(all, step{next: next, name: label{text: "the lock of a dead process expires", process: -1, bit: -1}})
	}
	if w.down {
		next := *w
		next.down = false
		all = append(all, step{next: next, name: label{text: "Redis is back", process: -1, bit: -1}})
	}
	if w.faults == 0 || m.core.statuses[w.status].finished {
		return all
	}
	if m.forRun && !w.down && w.lock.fence != 0 {
		next := *w
		next.faults--
		next.down = true
		all = append(all, step{next: next, name: label{text: "Redis hangs", process: -1, bit: -1}, fault: true})
	}
	if w.lock.fence != 0 {
		next := *w
		next.faults--
		next.lock = lease{}
		all = append(all, step{next: next, name: label{text: "Redis loses the lock", process: -1, bit: -1}, fault: true})
	}
	if !w.down {
		next := *w
		next.faults--
		next.down, next.lock = true, lease{}
		all = append(all, step{next: next, name: label{text: "Redis is down", process: -1, bit: -1}, fault: true})
	}
	return all
}

// unlocked: the holder of the lock knows that its validity is over.
func (m *model) unlocked(w *world) bool {
	for i := range w.process {
		if w.process[i].lease == w.lock && w.process[i].fares.unlocked {
			return true
		}
	}
	return false
}

func (m *model) believed(w *world) bool {
	for i := range w.process {
		if w.process[i].lease == w.lock {
			return true
		}
	}
	return false
}

func (m *model) userSteps(all []step, w *world) []step {
	if m.core.statuses[w.status].finished {
		return all
	}
	if w.cancels > 0 && !w.spec.cancel {
		next := *w
		next.cancels--
		next.spec.cancel = true
		all = append(all, step{next: next, name: label{text: "the user cancels", process: -1, bit: -1}, fault: true})
	}
	if w.terminates > 0 && !w.spec.terminate {
		next := *w
		next.terminates--
		next.spec.terminate = true
		all = append(all, step{next: next, name: label{text: "the user terminates", process: -1, bit: -1}, fault: true})
	}
	if w.decisions > 0 {
		for _, d := range []v1alpha1.ApprovalDecision{v1alpha1.Approve, v1alpha1.Reject} {
			next := *w
			next.decisions--
			next.spec.decided = d
			all = append(all, step{next: next, name: label{text: "the user decides: " + string(d), process: -1, bit: -1}})
		}
	}
	if w.suspends > 0 && !w.spec.suspend {
		next := *w
		next.suspends--
		next.spec.suspend = true
		all = append(all, step{next: next, name: label{text: "the user suspends", process: -1, bit: -1}, fault: true})
	}
	if w.spec.suspend {
		next := *w
		next.spec.suspend = false
		all = append(all, step{next: next, name: label{text: "the user resumes", process: -1, bit: -1}})
	}
	return all
}

// shut says whether the gate admits nobody; of a run that is admitted it is not asked.
func (m *model) shut(w *world, number int32) bool {
	st := m.core.statuses[number].status
	return w.full && (st == nil || !status.Admitted(st))
}

// gateSteps: a slot of the tenant becomes free, and somebody else may take it before the
// run is admitted.
func (m *model) gateSteps(all []step, w *world) []step {
	next := *w
	next.full = !w.full
	switch st := m.core.statuses[w.status].status; {
	case w.full:
		return append(all, step{next: next, name: label{text: "a slot becomes free", process: -1, bit: -1}})
	case m.gated && w.faults > 0 && (st == nil || !status.Admitted(st)):
		next.faults--
		return append(all, step{next: next, name: label{text: "another takes the slot", process: -1, bit: -1}, fault: true})
	default:
		return all
	}
}

// timeSteps: the clock goes to the next moment that matters to the persisted run, once
// nothing is due.
func (m *model) timeSteps(all []step, w *world) []step {
	if m.core.statuses[w.status].finished || w.status == 0 {
		return all
	}
	q := question{
		status: w.status, spec: w.spec, now: w.now, state: LockHeld, forRun: m.forRun, full: m.shut(w, w.status),
		lease: lease{fence: int16(m.core.statuses[w.status].fence) + 1},
	}
	for i := range w.process {
		if p := &w.process[i]; m.forRun && p.lease.fence != 0 && m.current(w.status, p.lease) {
			q.lease, q.fares = p.lease, p.fares
		}
	}
	number := m.core.ask(q)
	v := &m.core.verdicts[number]
	if v.err != nil || v.changed || v.asks || v.wake == 0 {
		return all
	}
	next := *w
	next.now = v.wake
	s := step{name: label{text: "the clock goes on", process: -1, bit: -1}, time: true}
	if !m.caughtUp(w) {
		if w.slow == 0 {
			return all
		}
		next.slow--
		s.fault = true
	}
	s.next = next
	return append(all, s)
}

// caughtUp: neither a process nor a worker could do anything at once.
func (m *model) caughtUp(w *world) bool {
	for i := range m.procs {
		p := &w.process[i]
		if uid, named := m.core.namedKid(p.view); named && (uid == "" || w.kid.state != kidThere) {
			return false
		}
		if p.dead || !p.idle() || p.finals|p.starts|p.doomed != 0 || !p.seen || p.lag || p.view != w.status || p.spec != w.spec {
			return false
		}
		if p.lease.fence != 0 && (!w.holder(p.lease) || m.core.statuses[p.view].unanswered&^p.handled != 0) {
			return false
		}
	}
	return w.jobs|w.working == 0 && w.answered()&^w.acked == 0 && w.said&^w.heard == 0
}
