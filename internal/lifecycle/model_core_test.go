// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/itemset"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// perStep is how many attempts of a step the model has room for.
const perStep = 4

// attempts is a set of attempts: bit step*perStep + attempt-1. 4 steps at most.
type attempts uint16

func attemptBit(step int, attempt int32) attempts {
	if attempt < 1 || attempt > perStep {
		return 0
	}
	return 1 << (step*perStep + int(attempt) - 1)
}

// answer is what a worker says at last about an attempt; two bits per attempt in answers.
type answer uint8

const (
	answerNone answer = iota
	answerSucceeded
	answerFailed
	answerRetry
)

type answers uint32

func (a answers) of(bit int) answer { return answer(a >> (2 * bit) & 3) }

func (a answers) with(bit int, v answer) answers { return a | answers(v)<<(2*bit) }

func (a attempts) each(do func(bit int)) {
	for bit := 0; a>>bit != 0; bit++ {
		if a&(1<<bit) != 0 {
			do(bit)
		}
	}
}

// lease is a lease of the model: fence 0 is none. With equal fences the process tells
// two leases apart.
type lease struct {
	fence   int16
	process int8
	raised  int8 // how often its lock was gone and taken again for it, with the next fence
}

// fares is how a lease fares: what Lock says of it beyond who holds it.
type fares struct {
	renewed, failing, unlocked bool
}

// intent is the mutable part of spec.
type intent struct {
	suspend, cancel, terminate bool
	// decided is what the user said of the approval step, if there is one.
	decided v1alpha1.ApprovalDecision
}

// question is an input of Decide, in the terms of the model.
type question struct {
	status  int32
	spec    intent
	now     time.Duration
	state   LockState
	lease   lease
	fares   fares
	forRun  bool
	lost    bool
	full    bool // the tenant's gate admits nobody
	claim   bool // write in any case
	kid     kidFact
	finals  attempts
	starts  attempts
	doomed  attempts
	answers answers       // of finals only
	late    attempts      // of finals only: those that were stored after their time
	asOf    time.Duration // when the stream was asked; 0: it was not
	lags    bool          // the run may be ahead of its status
	begins  bool          // also before its first write
}

// verdict is the decision of Decide, in the terms of the model. The error is a broken promise
// of Decide itself.
type verdict struct {
	err       error
	changed   bool
	next      int32 // status to persist
	dispatch  attempts
	withdraw  attempts
	create    bool
	ackFinal  attempts // finals that may be acknowledged
	ackStart  attempts
	applied   attempts // finals with verdict Applied
	told      bool     // status says what is put aside
	forced    bool     // written without the lock
	timedOut  attempts // that it ended for their time-outs, or a deadline of the run
	unstarted attempts // those of them that it ended because nobody said Started
	asks      bool     // for what the stream has stored
	mayLag    bool     // its effects may come before the write
	dropped   attempts // first attempts of steps that it cancelled, which never began as far as status knows
	finished  bool
	wake      time.Duration
	eventText string
}

// slot is what has attempts: a step, or an item of one.
type slot struct {
	step int
	item int // -1: the step itself
}

// itemsOfModel is how many items a step with forEach has in the model.
const itemsOfModel = 2

func slotsOf(run *v1alpha1.WorkflowRun) []slot {
	var all []slot
	for i, s := range dag.Steps(run) {
		if s.ForEach == nil {
			all = append(all, slot{i, -1})
			continue
		}
		for item := range itemsOfModel {
			all = append(all, slot{i, item})
		}
	}
	return all
}

// statusOf is a slot as if it were a step. The attempt of an item that is over is not known any
// more: the highest.
func (at slot) statusOf(steps []v1alpha1.StepStatus) v1alpha1.StepStatus {
	if at.step >= len(steps) {
		return v1alpha1.StepStatus{}
	}
	s := steps[at.step]
	if at.item < 0 {
		return s
	}
	over := v1alpha1.StepStatus{Name: s.Name, Phase: s.Phase, Attempt: perStep}
	switch {
	case s.ForEach == nil:
		return v1alpha1.StepStatus{Name: s.Name, Phase: s.Phase}
	case s.Phase == v1alpha1.StepSucceeded:
		over.Output = itemOf(s.Output.Raw, at.item)
		if over.Output == nil {
			over.Phase = v1alpha1.StepFailed
		}
		return over
	case status.Ended(s.Phase):
		return over
	}
	for _, g := range fanout.Groups(s.ForEach) {
		if g.Set.Contains(at.item) {
			return v1alpha1.StepStatus{Name: s.Name, Phase: g.Phase, Attempt: g.Attempt, Failures: g.Failures}
		}
	}
	if at.item >= int(s.ForEach.Begun) {
		return v1alpha1.StepStatus{Name: s.Name, Phase: v1alpha1.StepPending}
	}
	over.Phase = v1alpha1.StepSucceeded
	if failed, _ := itemset.Parse(s.ForEach.FailedItems); failed.Contains(at.item) {
		over.Phase = v1alpha1.StepFailed
	} else if list, err := fanout.ListOf([][]byte{s.ForEach.Outputs.Raw}, itemsOfModel, nil); err == nil {
		over.Output = itemOf(list, at.item)
	}
	return over
}

func itemOf(list []byte, item int) *runtime.RawExtension {
	var all []json.RawMessage
	if json.Unmarshal(list, &all) != nil || item >= len(all) || string(all[item]) == "null" {
		return nil
	}
	return &runtime.RawExtension{Raw: all[item]}
}

// known is a persisted status.
type known struct {
	status   *v1alpha1.WorkflowRunStatus // nil: never written
	inFlight attempts
	// unanswered are those of them whose job or answer has to be with NATS.
	unanswered attempts
	finished   bool
	fence      int64
	leaseID    string
	steps      []v1alpha1.StepStatus
	slots      []v1alpha1.StepStatus
	jobs       map[int]string // rendered jobs of the attempts in flight
	inputs     map[int]string // their inputs
}

// core asks the shipped Decide, each question once.
type core struct {
	spec     *v1alpha1.WorkflowRun
	plan     dag.Plan
	slots    []slot
	statuses []known
	byText   map[string]int32
	verdicts []verdict
	asked    map[question]int32
	texts    map[string]int8 // inputs of jobs, numbered
}

func newCore(run *v1alpha1.WorkflowRun) *core {
	c := &core{
		spec: run, plan: dag.Of(run), slots: slotsOf(run),
		statuses: []known{{}}, byText: map[string]int32{}, verdicts: []verdict{{}}, asked: map[question]int32{},
	}
	return c
}

func (c *core) run(status int32, spec intent) *v1alpha1.WorkflowRun {
	run := *c.spec
	run.Spec.Suspend = spec.suspend
	switch {
	case spec.terminate:
		run.Spec.Shutdown = v1alpha1.ShutdownTerminate
	case spec.cancel:
		run.Spec.Shutdown = v1alpha1.ShutdownCancel
	}
	run.Status = c.statuses[status].status
	return &run
}

func (c *core) id(bit int) protocol.JobID {
	at := c.slots[bit/perStep]
	id := job(dag.Steps(c.spec)[at.step].Name, int32(bit%perStep)+1)
	if at.item >= 0 {
		id.Item = fmt.Sprint(at.item)
	}
	return id
}

// number is the first bit of the slot of a job.
func (c *core) number(id protocol.JobID) int {
	return slices.IndexFunc(c.slots, func(at slot) bool {
		return dag.Steps(c.spec)[at.step].Name == id.Step && (at.item < 0 || fmt.Sprint(at.item) == id.Item)
	})
}

func (c *core) bit(id protocol.JobID) attempts { return attemptBit(c.number(id), id.Attempt) }

// outputOf tells in the status which attempt gave an output.
func (c *core) outputOf(bit int) string { return fmt.Sprintf(`{"by":%q,"ok":true}`, c.id(bit)) }

func (c *core) results(q *question) []Result {
	var all []Result
	at := epoch.Add(q.now)
	q.starts.each(func(bit int) {
		all = append(all, Result{ID: c.id(bit), Result: protocol.Result{Status: protocol.StatusStarted}, PublishedAt: at})
	})
	q.finals.each(func(bit int) {
		r := Result{ID: c.id(bit), PublishedAt: epoch}
		if q.late>>bit&1 != 0 {
			r.PublishedAt = at
		}
		switch q.answers.of(bit) {
		case answerSucceeded:
			r.Result = protocol.Result{Status: protocol.StatusSucceeded, Output: json.RawMessage(c.outputOf(bit))}
		case answerRetry:
			r.Result = protocol.Result{Status: protocol.StatusRetry, RetryAfterMillis: 700}
		default:
			r.Result = protocol.Result{Status: protocol.StatusFailed, Error: &protocol.ResultError{Code: "E"}}
		}
		all = append(all, r)
	})
	return all
}

func (q *question) lock() Lock {
	l := Lock{State: q.state, Holder: fmt.Sprint("p", q.lease.process), Message: "m"}
	if q.state == LockHeld {
		l.LeaseID, l.Fence = leaseID(q.lease), int64(q.lease.fence)
		l.ForRun, l.Renewed = q.forRun, q.fares.renewed
		if q.fares.failing {
			l.RenewalFailures, l.RenewalCause = 1, "i/o timeout"
		}
		if q.fares.unlocked {
			l.UnlockedSince = epoch
		}
	} else {
		l.LeaseID, l.Fence = fmt.Sprint("forced-", q.lease.process), 1 // garbage that must be ignored
	}
	if q.lost {
		l.Lost = v1alpha1.ReasonOwnershipLost
	}
	return l
}

func leaseID(l lease) string { return fmt.Sprintf("p%d-%d", l.process, l.fence-int16(l.raised)) }

// ask is Decide, checked and remembered; the answer is an index into verdicts.
func (c *core) ask(q question) int32 {
	if i, ok := c.asked[q]; ok {
		return i
	}
	run := c.run(q.status, q.spec)
	before := run.DeepCopy()
	results := c.results(&q)
	out := Decide(c.input(&q, run, results))
	out.Changed = out.Changed || q.claim
	v := verdict{changed: out.Changed, forced: q.state != LockHeld}
	for _, e := range out.Events {
		v.eventText += e.Reason + " "
	}
	if !out.Wake.IsZero() {
		v.wake = out.Wake.Sub(epoch)
	}
	c.sort(&v, results, out.Verdicts)
	for _, j := range out.Dispatch {
		v.dispatch |= c.bit(j.ID)
	}
	for _, w := range out.Withdraw {
		v.withdraw |= c.bit(w.ID)
	}
	v.create, v.told, v.asks, v.mayLag = len(out.Create) > 0, out.Told, out.Needs.Answers, out.MayLag
	v.next = q.status
	v.finished = c.statuses[q.status].finished
	if out.Changed {
		v.next, v.err = c.intern(q, &out)
		v.finished = c.statuses[v.next].finished
	}
	if v.dropped = c.dropped(&out.Status); run.Status != nil {
		v.dropped &^= c.dropped(run.Status)
	}
	v.timedOut, v.unstarted = c.timeouts(&q, &v)
	v.err = errors.Join(v.err, c.check(&q, &v, &out), c.settled(&q, &v))
	if !reflect.DeepEqual(before, run) { // cmp takes a fifth of the time of all explorations
		v.err = errors.Join(v.err, fmt.Errorf("input changed: %s", cmp.Diff(before, run)))
	}
	c.verdicts = append(c.verdicts, v)
	c.asked[q] = int32(len(c.verdicts) - 1)
	return c.asked[q]
}

func (c *core) input(q *question, run *v1alpha1.WorkflowRun, results []Result) Input {
	in := letIn(Input{Run: run, Now: epoch.Add(q.now), Results: results, Lock: q.lock()})
	if q.spec.decided != "" {
		in.Signals = []Signal{{Name: "x", Step: "ok", Decision: q.spec.decided, Approver: "ann", At: epoch}}
	}
	in.Checkpoint = Checkpoint{Coalesced: q.lags, Begins: q.begins}
	in.Children = q.kid.children(run)
	q.doomed.each(func(bit int) {
		in.DeadLetters = append(in.DeadLetters, DeadLetter{ID: c.id(bit), Failures: 1, Cause: "refused"})
	})
	if in.Answers = (Answers{}); q.asOf != 0 {
		in.Answers.AsOf = epoch.Add(q.asOf)
	}
	if q.full {
		in.Gate = Gate{State: GateFull, Used: 2, Limit: 2, Position: 1, Waiting: 1}
	}
	return in
}

// settled: whatever is said of the lock is said once. What a decision wrote, the same facts do
// not change again.
func (c *core) settled(q *question, v *verdict) error {
	if !v.changed || v.finished {
		return nil
	}
	again := Decide(c.input(q, c.run(v.next, q.spec), nil))
	if again.Changed {
		return fmt.Errorf("written twice: %s", cmp.Diff(*c.statuses[v.next].status, again.Status))
	}
	return nil
}

// sort tells which of the results may be acknowledged once the decision is persisted.
func (c *core) sort(v *verdict, results []Result, verdicts []Verdict) {
	for i, r := range results {
		if verdicts[i] != Applied && verdicts[i] != Duplicate && verdicts[i] != Stale {
			continue
		}
		switch bit := c.bit(r.ID); {
		case r.Result.Status == protocol.StatusStarted:
			v.ackStart |= bit
		case verdicts[i] == Applied:
			v.ackFinal |= bit
			v.applied |= bit
		default:
			v.ackFinal |= bit
		}
	}
}

// intern gives a status its number, after a round trip through JSON as the API server makes one.
func (c *core) intern(q question, out *Decision) (int32, error) {
	raw, err := json.Marshal(out.Status)
	if err != nil {
		return 0, err
	}
	if i, ok := c.byText[string(raw)]; ok {
		return i, nil
	}
	var back v1alpha1.WorkflowRunStatus
	if err := json.Unmarshal(raw, &back); err != nil {
		return 0, err
	}
	k := known{status: &back, finished: back.CompletedAt != nil, steps: back.Steps, jobs: map[int]string{}, inputs: map[int]string{}}
	if back.Fence != nil {
		k.fence, k.leaseID = *back.Fence, back.Lock.LeaseID
	}
	for _, at := range c.slots {
		k.slots = append(k.slots, at.statusOf(back.Steps))
	}
	c.statuses = append(c.statuses, k)
	number := int32(len(c.statuses) - 1)
	c.byText[string(raw)] = number
	err = c.jobs(number, q, out)
	if diff := cmp.Diff(out.Status, back); diff != "" {
		err = errors.Join(err, fmt.Errorf("status changes in a round trip: %s", diff))
	}
	return number, err
}

// jobs renders all attempts in flight from the persisted status, as after a crash, and compares
// with what was rendered before.
func (c *core) jobs(number int32, q question, out *Decision) error {
	k, old := &c.statuses[number], &c.statuses[q.status]
	run := c.run(number, q.spec)
	unanswered := Unanswered(run)
	for _, id := range InFlight(run) {
		bit := c.number(id)*perStep + int(id.Attempt) - 1
		k.inFlight |= c.bit(id)
		if slices.Contains(unanswered, id) {
			k.unanswered |= c.bit(id)
		}
		j, err := JobOf(run, id, nil)
		if err != nil {
			return fmt.Errorf("recover: %w", err)
		}
		k.jobs[bit] = fmt.Sprintf("%s %s %s %s", j.ID, j.Topic, j.Input, j.Deadline)
		k.inputs[bit] = fmt.Sprintf("%s %s %s", j.ID, j.Topic, j.Input)
		if was, ok := old.jobs[bit]; ok && was != k.jobs[bit] {
			return fmt.Errorf("job changed: %s, then %s", was, k.jobs[bit])
		}
	}
	for _, j := range out.Dispatch {
		bit := c.number(j.ID)*perStep + int(j.ID.Attempt) - 1
		if text := fmt.Sprintf("%s %s %s %s", j.ID, j.Topic, j.Input, j.Deadline); text != k.jobs[bit] {
			return fmt.Errorf("recovered job differs: %s, now %s", text, k.jobs[bit])
		}
	}
	return nil
}

// check holds a decision against the rules, by comparing the two statuses and without
// trusting the verdicts.
func (c *core) check(q *question, v *verdict, out *Decision) error {
	old, next := &c.statuses[q.status], &c.statuses[v.next]
	switch {
	case !out.Wake.IsZero() && !out.Wake.After(epoch.Add(q.now)):
		return errors.New("wake in the past")
	case !v.changed && (v.dispatch|v.withdraw|v.applied != 0 || v.create):
		return errors.New("effects without a write")
	case old.finished && v.changed:
		return errors.New("a finished run changed")
	case v.dispatch != 0 && (q.spec.suspend || q.spec.terminate || (q.spec.cancel && next.status.Ending == nil) || next.finished):
		return errors.New("dispatch by a suspended or ended run")
	case v.dispatch != 0 && !status.Admitted(next.status):
		return errors.New("dispatch by a run that was not admitted")
	case q.full && v.changed && status.Admitted(next.status) && (old.status == nil || !status.Admitted(old.status)):
		return errors.New("admitted against the gate")
	case v.withdraw&^old.inFlight != 0:
		return errors.New("withdrawn, but never dispatched")
	case q.state != LockHeld && v.dispatch != 0, q.state != LockHeld && v.applied|v.ackFinal != 0 && !old.finished && !next.finished && !begins(old, next):
		return errors.New("results or starts without the lock")
	case q.state == LockHeld && v.changed && next.fence != int64(q.lease.fence):
		return errors.New("the write does not carry the fence of its lease")
	case q.state != LockHeld && v.changed && !next.finished && !begins(old, next) && (next.fence != old.fence || next.leaseID != old.leaseID):
		return errors.New("an unlocked write touched fence or lease")
	case q.state == LockBusy && v.changed && !next.finished && !begins(old, next) && !onlyTheLoss(old.status, next.status):
		return errors.New("a write while another has the lock changed more than RunLockAbandoned and RunLockRenewed")
	case q.lost && v.changed && !next.finished && !report.Abandoned(next.status):
		return errors.New("a lost lease was not told")
	case q.lost && !v.changed && old.status != nil && !old.finished && !report.Abandoned(old.status):
		return errors.New("a lost lease was not told at once")
	}
	if err := checkEnding(q, old, next); err != nil {
		return err
	}
	if v.told && next.unanswered&q.doomed != 0 {
		return errors.New("to be put aside, but status does not say so")
	}
	return c.checkSteps(q, v, old, next)
}

// begins says whether the end of the run is announced by a write.
func begins(old, next *known) bool {
	return next.status.Ending != nil && (old.status == nil || old.status.Ending == nil)
}

// checkEnding: the announced end stands, finally steps begin after it, and it comes as announced,
// unless the clean-up failed or was terminated.
func checkEnding(q *question, old, next *known) error {
	if old.status == nil || old.status.Ending == nil {
		return nil
	}
	e := old.status.Ending
	switch {
	case next.status.Ending == nil || !cmp.Equal(e, next.status.Ending):
		return errors.New("the announced end changed")
	case next.finished && !q.spec.terminate && next.status.Phase != e.Phase && (e.Phase != v1alpha1.RunSucceeded || next.status.Phase != v1alpha1.RunFailed):
		return fmt.Errorf("announced %s, ended as %s", e.Phase, next.status.Phase)
	}
	return nil
}

func onlyTheLoss(old, next *v1alpha1.WorkflowRunStatus) bool {
	if old == nil {
		return false
	}
	a, b := old.DeepCopy(), next.DeepCopy()
	for _, st := range []*v1alpha1.WorkflowRunStatus{a, b} {
		st.Conditions = slices.DeleteFunc(st.Conditions, func(c metav1.Condition) bool {
			return c.Type == v1alpha1.ConditionRunLockAbandoned || c.Type == v1alpha1.ConditionRunLockRenewed
		})
	}
	return cmp.Equal(a, b)
}

func (c *core) checkSteps(q *question, v *verdict, old, next *known) error {
	active := 0
	for i := range next.steps {
		if status.InFlight(next.steps[i].Phase) {
			active++
		}
	}
	for i, at := range c.slots {
		was, now := at.statusOf(old.steps), at.statusOf(next.steps)
		if at.item >= 0 && status.Ended(now.Phase) {
			now.Attempt = was.Attempt
			if status.Ended(was.Phase) {
				was.Phase, was.Output = now.Phase, now.Output // its step ended
			}
		}
		if err := c.checkStep(i, q, v, &was, &now, next.status); err != nil {
			return fmt.Errorf("%s: %w", c.id(i*perStep), err)
		}
	}
	if active > dag.Parallel(c.spec) {
		return fmt.Errorf("%d attempts in flight", active)
	}
	if v.dispatch&v.withdraw != 0 {
		return errors.New("a job is withdrawn by the decision that dispatches it")
	}
	if q.state == LockHeld && v.changed && !v.asks && !next.finished && !q.spec.suspend && status.Admitted(next.status) {
		return c.checkProgress(next, active)
	}
	return nil
}

// checkProgress: what could start by a decision did.
func (c *core) checkProgress(next *known, active int) error {
	for i := range next.steps {
		ready := next.steps[i].Phase == v1alpha1.StepPending && c.plan.IsFinally(i) == (next.status.Ending != nil)
		for _, j := range c.plan.Deps[i] {
			ready = ready && c.plan.Lets(j, next.steps[j].Phase)
		}
		if ready && (!dag.TakesPlace(&c.plan.Steps[i]) || active < dag.Parallel(c.spec)) {
			return fmt.Errorf("step %s could have started", next.steps[i].Name)
		}
		if f := next.steps[i].ForEach; f != nil && !status.Ended(next.steps[i].Phase) {
			it := fanout.Read(i, &c.plan.Steps[i], protocol.JobID{}, f.DeepCopy())
			if it.Done() || (f.Begun < f.Total && it.UnderWay() < int(c.plan.Steps[i].ForEach.MaxParallel)) {
				return fmt.Errorf("items of step %s could have gone on", next.steps[i].Name)
			}
		}
	}
	return nil
}

func (c *core) isJob(step int) bool { return dag.Steps(c.spec)[step].Job != nil }

func (c *core) checkStep(i int, q *question, v *verdict, was, now *v1alpha1.StepStatus, next *v1alpha1.WorkflowRunStatus) error {
	if c.plan.Steps[c.slots[i].step].Run != nil {
		return checkKid(q, was, now)
	}
	if caught := attemptBit(i, was.Attempt+1); q.lags && was.Phase == v1alpha1.StepPending && now.Attempt > was.Attempt && v.applied&caught != 0 {
		begun := *was // ahead of this status, by another
		begun.Phase, begun.Attempt = v1alpha1.StepDispatched, was.Attempt+1
		was = &begun
	}
	last := attemptBit(i, was.Attempt)
	answered := status.InFlight(was.Phase) && (!status.InFlight(now.Phase) || now.Attempt != was.Attempt)
	switch {
	case now.Attempt != was.Attempt && now.Attempt != was.Attempt+1:
		return fmt.Errorf("attempt %d after %d", now.Attempt, was.Attempt)
	case now.Attempt > perStep:
		return errors.New("more attempts than the model has room for")
	case now.Attempt > was.Attempt && v.dispatch&attemptBit(i, now.Attempt) == 0:
		return errors.New("a new attempt without its job")
	case now.Attempt == was.Attempt && v.dispatch&attemptBit(i, now.Attempt) != 0 && was.Attempt > 0:
		return errors.New("an attempt dispatched again")
	case now.Failures > was.Failures+1:
		return errors.New("more than one failure at once")
	case status.Ended(was.Phase) && !cmp.Equal(was, now):
		return errors.New("an ended step changed")
	case v.applied&last != 0 && !answered:
		return errors.New("a result said to be applied has no effect")
	case answered && v.applied&last == 0 && v.withdraw&last == 0:
		return errors.New("an attempt ended with neither answer nor withdrawal")
	case answered && q.finals&last != 0 && v.applied&last == 0 && q.state == LockHeld:
		return errors.New("an answer at hand was not applied")
	case v.applied&^q.finals != 0:
		return errors.New("applied what was not there")
	}
	if c.slots[i].step >= len(c.spec.Spec.Steps) && now.Attempt > 0 && next.Ending == nil {
		return errors.New("a finally step began before the end was announced")
	}
	if c.isJob(c.slots[i].step) && now.Phase == v1alpha1.StepSucceeded && was.Phase != now.Phase {
		if by := fmt.Sprintf("%q", c.id(i*perStep+int(was.Attempt)-1)); !strings.Contains(string(now.Output.Raw), by) {
			return fmt.Errorf("output of another attempt: %s", now.Output.Raw)
		}
		if v.applied&last == 0 {
			return errors.New("succeeded with no result")
		}
	}
	// A worker's wish is no failure.
	if v.applied&last != 0 && q.answers.of(i*perStep+int(was.Attempt)-1) == answerRetry && now.Failures != was.Failures {
		return errors.New("Retry counted as a failure")
	}
	return nil
}

// fail ends the test with the way that led to the fault.
func fail(t *testing.T, x *explorer, state int32, what string) {
	t.Helper()
	t.Fatalf("%s\n%s", what, strings.Join(x.path(state), "\n"))
}
