// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"fmt"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
)

// aheadCases are runs that may be ahead of their status.
func aheadCases() []modelCase {
	link := func(name string, options ...stepOption) v1alpha1.Step {
		return newStep(name, append([]stepOption{maxFailures(1)}, options...)...)
	}
	one := func() *v1alpha1.WorkflowRun { return newRun(link("a")) }
	two := func() *v1alpha1.WorkflowRun {
		return newRun(link("a"), link("b", after("a"), input(`{"a":"${steps.a.output.by}"}`)))
	}
	three := func() *v1alpha1.WorkflowRun {
		run := two()
		run.Spec.Steps = append(run.Spec.Steps, link("c", after("b")))
		return run
	}
	fork := func() *v1alpha1.WorkflowRun {
		return newRun(link("a"), link("b"), link("c", after("a"), when("!steps.a.output.ok")), link("d", after("a", "c")))
	}
	skips := func() *v1alpha1.WorkflowRun {
		return newRun(link("a"), link("c", after("a"), when("!steps.a.output.ok")), link("d", after("c")))
	}
	goesOn := func() *v1alpha1.WorkflowRun {
		return newRun(link("a", continues), link("b", after("a"), input(`{"a":"${steps.a.phase}"}`)), link("x"))
	}
	cleans := func() *v1alpha1.WorkflowRun {
		run := two()
		run.Spec.Finally = []v1alpha1.Step{link("f")}
		return run
	}
	narrow := func() *v1alpha1.WorkflowRun {
		run := newRun(link("a"), link("b"), link("c", after("b")))
		run.Spec.MaxParallelSteps = 2
		return run
	}
	deadline := func(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
		run.Spec.ActiveDeadlineSeconds = new(int32(500))
		return run
	}
	cases := []modelCase{
		{name: "ahead: one step", run: one(), procs: 1, budgets: world{faults: 2, cancels: 1, slow: 1}},
		{name: "ahead: one step, two processes", run: one(), procs: 2, budgets: world{faults: 1}},
		{name: "ahead: one step, two processes, cancelled", run: one(), procs: 2, budgets: world{cancels: 1}},
		{name: "ahead: chain", run: two(), procs: 1, budgets: world{faults: 2}},
		{name: "ahead: chain of three", run: three(), procs: 1, budgets: world{faults: 1}},
		{name: "ahead: chain, cancelled", run: two(), procs: 1, budgets: world{faults: 1, cancels: 1}},
		{name: "ahead: chain, suspended", run: two(), procs: 1, budgets: world{faults: 1, suspends: 1}},
		{name: "ahead: chain, Started and time-outs", run: two(), procs: 1, budgets: world{started: 1, slow: 1}},
		{name: "ahead: chain, two processes", run: two(), procs: 2, budgets: world{faults: 1}},
		{name: "ahead: chain, two processes, cancelled", run: two(), procs: 2, budgets: world{cancels: 1}},
		{name: "ahead: chain, a stream loses its data", run: two(), procs: 1, budgets: world{faults: 1, losses: 1}},
		{name: "ahead: fork with when", run: fork(), procs: 1, budgets: world{faults: 1}},
		{name: "ahead: two at a time", run: narrow(), procs: 1, budgets: world{faults: 1}},
		{name: "ahead: a failure that does not matter", run: goesOn(), procs: 1, budgets: world{faults: 1, failures: 1}},
		{name: "ahead: chain with a deadline", run: deadline(two()), procs: 1, budgets: world{faults: 1, slow: 1}},
		{name: "ahead: chain with a deadline, two processes", run: deadline(two()), procs: 2, budgets: world{slow: 1}},
		{name: "ahead: a step that is skipped, and a deadline", run: deadline(skips()), procs: 1, budgets: world{faults: 1, slow: 1}},
		{name: "ahead: clean-up and a deadline", run: deadline(cleans()), procs: 1, budgets: world{faults: 1, slow: 1}},
		{name: "ahead: clean-up", run: cleans(), procs: 1, budgets: world{faults: 1, failures: 1}},
	}
	for i := range cases {
		cases[i].lags = true
	}
	return cases
}

// stored is the status that the API server had when the process read or wrote it last.
func (p *process) stored() int32 {
	if p.lag {
		return p.base
	}
	return p.view
}

// mayRunAhead: the core says that the write may come later, and this lease wrote the run before, so
// that no other writes it unnoticed. A run that was never written may be begun so by the process
// under which it was created.
func (m *model) mayRunAhead(p *process, v *verdict) bool {
	k := &m.core.statuses[p.view]
	claimed := k.leaseID == leaseID(p.lease) && k.fence == int64(p.lease.fence)
	begins := p.view == 0 && p.own
	return m.lags && v.changed && v.mayLag && p.asOf == 0 && (claimed || begins)
}

// runAhead: the decision is kept, and not written; what it dispatches goes out. Results wait.
func (m *model) runAhead(w *world, i int, number int32) step {
	next := *w
	v, p := &m.core.verdicts[number], &next.process[i]
	p.base, p.lag = p.stored(), true
	p.view = v.next
	if p.base == 0 {
		p.wrote = p.lease.fence
	}
	p.publish = m.plain(p, v.dispatch)
	p.ahead |= v.dispatch
	m.keep(p, v)
	p.handled &= m.core.statuses[p.view].inFlight
	return step{next: next, name: label{text: "p%d decides and runs ahead ( " + v.eventText + ")", process: i, bit: -1}}
}

// plain are the jobs that are published without a look: by a process that knows that no other can
// have published them. The others are recovered.
func (m *model) plain(p *process, dispatch attempts) attempts {
	if m.lags && !p.own && !m.plainTaker {
		return 0
	}
	return dispatch
}

// keep keeps results whose effect is not written; they are not acknowledged.
func (m *model) keep(p *process, v *verdict) {
	finals, starts := v.ackFinal&p.finals, v.ackStart&p.starts
	p.finals, p.starts = p.finals&^finals, p.starts&^starts
	if m.ackAhead {
		p.ackFinal, p.ackStart = finals, starts
		return
	}
	p.held, p.heldStarts = p.held|finals, p.heldStarts|starts
}

// hold: a duplicate of what is not written waits, too.
func (m *model) hold(w *world, i int, v *verdict) step {
	next := *w
	p := &next.process[i]
	if m.settleAgain {
		p.ackFinal, p.ackStart = v.ackFinal&p.finals, v.ackStart&p.starts
		p.finals, p.starts = p.finals&^v.ackFinal, p.starts&^v.ackStart
	} else {
		m.keep(p, v)
	}
	return step{next: next, name: label{text: "p%d keeps a duplicate", process: i, bit: -1}}
}

// checkpoint writes what was decided and not written; then it may be acknowledged.
func (m *model) checkpoint(w *world, i int) step {
	next := *w
	p := &next.process[i]
	if p.base != w.status || p.spec != w.spec || m.refuse(w, &verdict{next: p.view}) != nil {
		if !m.current(w.status, p.lease) {
			next.drop(i)
			m.dropAhead(&next, i)
		}
		p.seen, p.barred = false, false
		return step{next: next, name: label{text: "p%d's checkpoint is refused", process: i, bit: -1}}
	}
	next.status = p.view
	m.covered(p)
	s := step{next: next, name: label{text: "p%d writes a checkpoint", process: i, bit: -1}}
	s.err = m.invariants(w, &next, &verdict{})
	return s
}

// covered: all that was ahead is written.
func (m *model) covered(p *process) {
	p.ackFinal, p.ackStart = p.ackFinal|p.held, p.ackStart|p.heldStarts
	p.held, p.heldStarts, p.lag, p.base, p.ahead = 0, 0, false, 0, 0
}

// afterWrite is what a write means for what was ahead, and for what others may have had ahead.
func (m *model) afterWrite(p *process, v *verdict) {
	if !m.lags {
		return
	}
	p.withdraw |= m.mayBeLeft(p, v)
	p.publish = m.plain(p, p.publish)
	if v.changed {
		m.covered(p)
		p.own = p.own && !v.forced
	}
}

// mayBeLeft are the first attempts of steps that an end cancels, and that another process may have
// dispatched ahead.
func (m *model) mayBeLeft(p *process, v *verdict) attempts {
	if !m.lags || p.own || m.leaveJobs || !v.changed {
		return 0
	}
	return v.dropped | v.withdraw&^p.handled
}

// overdue says whether the time of an attempt is over, by what is stored or by what is ahead of it.
func (m *model) overdue(w *world, bit int) bool {
	for i := range w.process {
		if p := &w.process[i]; p.lag && m.core.overdue(p.view, bit, w.now) {
			return true
		}
	}
	return m.core.overdue(w.status, bit, w.now)
}

// dropped are the first attempts of steps which are cancelled, and of which status has none.
func (c *core) dropped(st *v1alpha1.WorkflowRunStatus) (all attempts) {
	for i, at := range c.slots {
		if at.step < len(st.Steps) && at.item < 0 && c.isJob(at.step) && st.Steps[at.step].Phase == v1alpha1.StepCancelled && st.Steps[at.step].Attempt == 0 {
			all |= attemptBit(i, 1)
		}
	}
	return all
}

// readAhead: what was decided on the status that is still stored stands, also if the spec changed.
func (m *model) readAhead(w *world, i int) {
	p := &w.process[i]
	if p.lag && p.base == w.status {
		return
	}
	m.dropAhead(w, i)
	k := &m.core.statuses[w.status]
	if k.leaseID != fmt.Sprintf("p%d-%d", i, p.wrote) {
		p.own = p.own && w.status == 0
	}
	p.view = w.status
	if k.finished && !m.leaveJobs {
		p.withdraw |= p.ahead // by an end of another, which did not know of them
	}
	p.ahead = 0
}

// dropAhead forgets what was decided and not written: its results are to be applied anew, to
// what is stored. What it dispatched may be under way, so the process looks before it publishes
// from now on.
func (m *model) dropAhead(w *world, i int) {
	p := &w.process[i]
	if !p.lag {
		return
	}
	p.finals, p.starts = p.finals|p.held&^w.acked, p.starts|p.heldStarts
	p.held, p.heldStarts, p.lag, p.own = 0, 0, false, false
	p.view, p.base, p.seen = p.base, 0, false
}

// mayBeAhead are attempts in flight by what is decided and not written, and those answered of which
// no status says so, whoever had them ahead.
func (m *model) mayBeAhead(w *world) (all attempts) {
	if m.lags {
		all = w.answered() &^ w.acked
	}
	for i := range w.process {
		if p := &w.process[i]; p.lag {
			all |= m.core.statuses[p.view].inFlight
		}
	}
	return all
}

// store notes what was published for an attempt: J5, it is never anything else.
func (m *model) store(w *world, view int32, bit attempts) error {
	if !m.lags {
		return nil
	}
	n := m.bitOf(bit)
	text := m.core.text(view, n)
	if w.stored[n] != 0 && w.stored[n] != text {
		return errors.New("J5: a replay gives another input")
	}
	w.stored[n] = text
	return nil
}

func (m *model) bitOf(bit attempts) (n int) {
	bit.each(func(k int) { n = k })
	return n
}

// text is the number of the input of a job in flight, apart from its deadline.
func (c *core) text(number int32, bit int) int8 {
	input := c.statuses[number].inputs[bit]
	if n, ok := c.texts[input]; ok {
		return n
	}
	if c.texts == nil {
		c.texts = map[string]int8{}
	}
	c.texts[input] = int8(len(c.texts) + 1)
	return c.texts[input]
}

// aheadRules are checked wherever a run may be ahead of its status.
func (m *model) aheadRules(w *world) error {
	k := &m.core.statuses[w.status]
	var stored attempts
	parallel := 0
	for bit, text := range w.stored {
		if text == 0 {
			continue
		}
		stored |= 1 << bit
		if k.inFlight>>bit&1 != 0 && m.core.text(w.status, bit) != text {
			return errors.New("J5: status has another input than was published")
		}
		if w.jobs>>bit&1 != 0 && w.answers.of(bit) == answerNone {
			parallel++
		}
	}
	switch {
	case parallel > dag.Parallel(m.core.spec):
		return fmt.Errorf("J6: %d steps are with workers", parallel)
	case w.lossy || k.finished || k.status != nil && k.status.Ending != nil:
		return nil
	}
	if unknown := stored &^ m.begun(w.status) &^ m.follows(w); unknown != 0 {
		return fmt.Errorf("J2: jobs %b are stored, and follow from nothing", unknown)
	}
	return nil
}

// begun are all attempts that a status has, under way or over.
func (m *model) begun(number int32) (all attempts) {
	k := &m.core.statuses[number]
	for i := range k.slots {
		for n := int32(1); n <= min(k.slots[i].Attempt, perStep); n++ {
			all |= attemptBit(i, n)
		}
	}
	return all
}

// consequence names a status with results that are not acknowledged.
type consequence struct {
	status  int32
	finals  attempts
	answers answers
}

// follows are the attempts that whoever has the status and the results not acknowledged begins.
func (m *model) follows(w *world) attempts {
	q := question{status: w.status, state: LockHeld, lags: true, begins: true}
	(w.answered() &^ w.acked).each(func(bit int) {
		goesOn := dag.Steps(m.core.spec)[m.core.slots[bit/perStep].step].OnFailure == v1alpha1.FailureContinue
		if a := w.answers.of(bit); a == answerSucceeded || (a == answerFailed && goesOn) { // another ends the run, or nothing follows
			q.finals, q.answers = q.finals|1<<bit, q.answers.with(bit, a)
		}
	})
	key := consequence{q.status, q.finals, q.answers}
	if all, ok := m.consequences[key]; ok {
		return all
	}
	q.lease = lease{fence: int16(m.core.statuses[w.status].fence) + 1, process: 2}
	all := attempts(0)
	for range 2 * len(m.core.slots) {
		v := m.core.verdicts[m.core.ask(q)]
		all |= v.dispatch | v.applied
		if !v.changed || m.core.statuses[v.next].finished {
			break
		}
		q.status = v.next
	}
	if m.consequences == nil {
		m.consequences = map[consequence]attempts{}
	}
	m.consequences[key] = all
	return all
}

// lossSteps: a stream loses its data. A job that a worker has then may be given to a second one,
// and a step whose answer was not in status runs again.
func (m *model) lossSteps(all []step, w *world) []step {
	if w.losses == 0 || m.core.statuses[w.status].finished {
		return all
	}
	lose := func(text string, do func(next *world)) {
		next := *w
		next.losses--
		next.lossy = true
		do(&next)
		for i := range next.process { // the bus notices
			next.process[i].handled = 0
			next.process[i].looking, next.process[i].checking, next.process[i].absent = 0, 0, 0
		}
		all = append(all, step{next: next, name: label{text: text, process: -1, bit: -1}, fault: true})
	}
	lose("JOBS loses its data", func(next *world) {
		next.excused |= next.ran
		next.jobs, next.fenced, next.fences = 0, 0, [16]int8{}
	})
	lost := w.answered() &^ w.acked
	lose("RESULTS loses its data", func(next *world) {
		next.excused |= lost
		next.lost |= lost
		next.working &^= lost
		next.jobs &^= lost
	})
	return all
}
