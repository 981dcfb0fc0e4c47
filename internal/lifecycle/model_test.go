// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// TestModel explores every interleaving of the shipped Decide with a shell that follows the
// contract in doc.go, up to a budget of faults: crashes anywhere between persist and the last
// effect, stale reads, a second process that believes that it owns the run, results delivered twice
// or late, lost leases (with Redis' data), Redis down or hung, leases kept for the run that cannot
// be renewed, work that goes on without the lock, dying workers, a tenant at its limit, and a user
// who cancels, suspends and resumes. Safety is checked on every edge, and that every state can
// still reach an end without further faults.
//
// Mutations that were tried, and the check that caught each:
//
//	an older attempt's result is applied        "an attempt ended with neither answer nor withdrawal"
//	an answered attempt's result is applied     "a result said to be applied has no effect"
//	attempt+1 forgotten                         "an attempt dispatched again"
//	starts while suspended                      "dispatch by a suspended or ended run"
//	no limit of parallel steps                  "3 attempts in flight"
//	fence of Lock though it is not held         "a write that should pass was refused"
//	results applied without the lock            "results or starts without the lock"
//	time-out, or end, without withdrawal        "an attempt ended with neither answer nor withdrawal"
//	Retry counts as a failure                   "Retry counted as a failure"
//	a finished run is decided like others       "a finished run changed"
//	shutdown or deadlines before results        "an answer at hand was not applied"
//	Wake ignores backing-off steps              "stuck: nothing in flight, nothing to wait for"
//	times not truncated                         "status changes in a round trip"
//	jitter not from the job id                  FuzzDecide, "not the same twice"
//	expressions see every step                  TestJobOfRendersTheSameBytes
//	dispatch kept when an expression fails      FuzzDecide, "job again"
//	admitted though the gate is full            "admitted against the gate"
//	starts though it is not admitted            "dispatch by a run that was not admitted"
//	a failing renewal is always news            "written twice"
//	a loss is not told while the lock is busy   "a lost lease was not told"
//	a loss is not worth a write                 "a lost lease was not told at once"
//	clean-up ends with a failed expression      "could have started"
//	starts go on after the run failed           "dispatch by a suspended or ended run"
//	shell acks before it persists (ackEarly)    "lost: attempts are in flight, but with nobody"
//	shell recovers without RESULTS (noLookup)   "I2: a worker runs an attempt again"
//	another child of the name is waited for     "stuck: nothing in flight, nothing to wait for"
//	a failure ends the run before child runs    "cancelled, though its child was seen to have ended"
//	a child's uid is not confirmed              "stuck: nothing in flight, nothing to wait for"
//	shell never creates a child again (noBirth) "stuck: nothing in flight, nothing to wait for"
//	attempts time out without the question      "J7: timed out, though an answer was stored in time"
//	deadlines do without the question           "J7: timed out, though an answer was stored in time"
//	the forced deadline leaves results out      "J7: timed out, though an answer was stored in time"
//	the question is whose answer nobody reads (blindQuestion) "J7: timed out, though an answer was stored in time"
//	attempts ahead are not caught up with       "J7: timed out, though an answer was stored in time"
//	a deadline asks only if some are in flight  "J7: timed out, though an answer was stored in time"
//	Started that was found is left out          "J7: timed out before its start, though Started was stored in time"
//	shell recovers before it wrote (noClaim)    "I2: a worker runs an attempt again", with two processes only
//	no fence messages (noFence)                 "I2: a worker runs an attempt again", with two processes only
//	fences only what it recovers (noBar)        "I2: a worker runs an attempt again", with two processes and two lost locks
//	put aside before status says so (buryEarly) "lost: attempts are in flight, but with nobody"
func TestModel(t *testing.T) {
	states, edges := 0, 0
	begin := time.Now()
	for _, c := range modelCases() {
		t.Run(c.name, func(t *testing.T) {
			x := explore(t, c.model())
			t.Logf("%d states, %d edges, %d questions to Decide, %d statuses", len(x.worlds), x.edges, len(x.model.core.asked), len(x.model.core.statuses))
			x.liveness(t)
			states += len(x.worlds)
			edges += x.edges
		})
	}
	figure := fmt.Sprintf("lifecycle model: %d states, %d edges in %s", states, edges, time.Since(begin).Round(time.Millisecond))
	t.Log(figure)
	fmt.Println(figure)
}

type modelCase struct {
	name    string
	run     *v1alpha1.WorkflowRun
	procs   int
	budgets world // only its budgets are used

	gated, forRun, continues, parks, lags bool // see model
}

func (c modelCase) model() *model {
	m := &model{core: newCore(c.run), procs: c.procs, start: c.budgets, gated: c.gated, forRun: c.forRun, continues: c.continues, parks: c.parks, lags: c.lags}
	m.start.full, m.start.process[0].own = c.gated, c.lags
	return m
}

func modelCases() []modelCase {
	deadline := func(run *v1alpha1.WorkflowRun, s int32) *v1alpha1.WorkflowRun {
		run.Spec.ActiveDeadlineSeconds = &s
		return run
	}
	limit := func(run *v1alpha1.WorkflowRun, n int32) *v1alpha1.WorkflowRun {
		run.Spec.MaxParallelSteps = n
		return run
	}
	single := func() *v1alpha1.WorkflowRun { return newRun(newStep("a", maxFailures(2))) }
	chain := func() *v1alpha1.WorkflowRun {
		return newRun(newStep("a", maxFailures(2)), newStep("b", after("a"), maxFailures(1), input(`{"a":"${steps.a.output.by}"}`)))
	}
	diamond := func() *v1alpha1.WorkflowRun {
		return newRun(newStep("a", maxFailures(1)), newStep("b", after("a"), maxFailures(1)),
			newStep("c", after("a"), maxFailures(1), when("!steps.a.output.ok")), newStep("d", after("b", "c"), maxFailures(1)))
	}
	wide := func() *v1alpha1.WorkflowRun {
		return limit(newRun(newStep("a", maxFailures(1)), newStep("b", maxFailures(1)), newStep("c", maxFailures(1))), 2)
	}
	waits := func() *v1alpha1.WorkflowRun {
		return newRun(newStep("d", delay(30)), newStep("ok", after("d"), approval(func(a *v1alpha1.Approval) { a.TimeoutSeconds = new(int32(900)) })),
			newStep("b", after("d"), maxFailures(1)))
	}
	cleans := func() *v1alpha1.WorkflowRun {
		run := newRun(newStep("a", maxFailures(1)))
		run.Spec.Finally = []v1alpha1.Step{
			newStep("f", maxFailures(1), input(`{"end":"${run.phase}"}`)), newStep("g", after("f"), maxFailures(1)),
			newStep("h", input(`{"x":"${inputs.nothing}"}`)),
		} // its expression fails
		run.Spec.FinallyTimeoutSeconds = 650
		return run
	}
	cleansOnce := func() *v1alpha1.WorkflowRun {
		run := cleans()
		run.Spec.Finally = run.Spec.Finally[:1]
		return run
	}
	each := func(parallel int32, onFailure v1alpha1.ItemFailureAction, options ...stepOption) *v1alpha1.WorkflowRun {
		return newRun(newStep("e", append(options, forEach("${['x', 'y']}", parallel, onFailure))...),
			newStep("z", after("e"), maxFailures(1), input(`{"of":"${steps.e.output}"}`)))
	}
	goesOn := func() *v1alpha1.WorkflowRun {
		return newRun(newStep("a", maxFailures(1), continues), newStep("b", after("a"), maxFailures(1), input(`{"a":"${steps.a.phase}"}`)))
	}
	withChild := func() *v1alpha1.WorkflowRun {
		return newRun(newStep("sub", childRun(oneJob, "")), newStep("b", after("sub"), maxFailures(1), input(`{"a":"${steps.sub.output.by}"}`)))
	}
	besideAJob := func() *v1alpha1.WorkflowRun {
		run := newRun(newStep("sub", childRun(oneJob, "")), newStep("b", maxFailures(1)))
		run.Spec.Finally = []v1alpha1.Step{newStep("f", maxFailures(1), when(`steps.sub.phase == "Succeeded"`))}
		return run
	}
	cases := []modelCase{
		{name: "items", run: each(2, v1alpha1.Collect, maxFailures(1)), procs: 1, budgets: world{faults: 3}},
		{name: "items, one at a time, retried", run: each(1, v1alpha1.Collect, maxFailures(2)), procs: 1, budgets: world{faults: 1, failures: 2, retries: 1}},
		{name: "items, one fails for all", run: each(2, v1alpha1.FailStep, maxFailures(1)), procs: 1, budgets: world{faults: 1, failures: 1, cancels: 1}},
		{name: "items, Started", run: each(2, v1alpha1.Collect, maxFailures(1)), procs: 1, budgets: world{started: 1, slow: 1}},
		{name: "items, suspended", run: each(1, v1alpha1.Collect, maxFailures(2)), procs: 1, budgets: world{suspends: 1, failures: 1}},
		{name: "items, two processes", run: each(2, v1alpha1.FailStep, maxFailures(1)), procs: 2, budgets: world{cancels: 1}},
		{name: "a child run", run: withChild(), procs: 1, budgets: world{faults: 2, cancels: 1}},
		{name: "a child run beside a job, with a clean-up", run: besideAJob(), procs: 1, budgets: world{faults: 1, failures: 1}},
		{name: "a child run, two processes", run: newRun(newStep("sub", childRun(oneJob, ""))), procs: 2, budgets: world{faults: 2}},
		{name: "approval and delay", run: waits(), procs: 1, budgets: world{faults: 3, decisions: 1, slow: 1}},
		{name: "approval and delay, suspended and cancelled", run: waits(), procs: 1, budgets: world{faults: 1, decisions: 1, cancels: 1, suspends: 1}},
		{name: "approval and delay, two processes", run: waits(), procs: 2, budgets: world{faults: 1, decisions: 1}},
		{name: "clean-up", run: cleans(), procs: 1, budgets: world{faults: 1, cancels: 1, failures: 1}},
		{name: "clean-up, terminated", run: cleans(), procs: 1, budgets: world{cancels: 1, terminates: 1, failures: 1, slow: 1}},
		{name: "clean-up, two processes", run: cleansOnce(), procs: 2, budgets: world{faults: 1}},
		{name: "clean-up, two processes, cancelled", run: cleansOnce(), procs: 2, budgets: world{cancels: 1}},
		{name: "a failure that does not matter", run: goesOn(), procs: 1, budgets: world{faults: 3, failures: 2}},
		{name: "one step", run: single(), procs: 1, budgets: world{faults: 2, cancels: 1, slow: 1}},
		{name: "one step, Started", run: single(), procs: 1, budgets: world{faults: 1, cancels: 1, started: 1, slow: 1}},
		{name: "one step, retried", run: single(), procs: 1, budgets: world{faults: 1, failures: 1, retries: 1, slow: 1}},
		{name: "one step, suspended and resumed", run: single(), procs: 1, budgets: world{faults: 1, suspends: 1, failures: 1, slow: 1}},
		{name: "one step, two processes", run: single(), procs: 2, budgets: world{faults: 1, slow: 1}},
		{name: "one step, two processes, lock lost twice", run: single(), procs: 2, budgets: world{faults: 2}},
		{name: "chain, two processes", run: chain(), procs: 2, budgets: world{faults: 1}},
		{name: "chain", run: chain(), procs: 1, budgets: world{faults: 1, cancels: 1, failures: 1}},
		{name: "chain with a deadline", run: deadline(chain(), 700), procs: 1, budgets: world{faults: 1, slow: 2}},
		{name: "diamond with when", run: diamond(), procs: 1, budgets: world{faults: 2, cancels: 1}},
		{name: "parallel limit", run: wide(), procs: 1, budgets: world{faults: 1, cancels: 1}},
		{name: "lock kept for the run", run: single(), procs: 1, forRun: true, budgets: world{faults: 2, failures: 1, cancels: 1}},
		{name: "lock kept for the run, two processes", run: single(), procs: 2, forRun: true, budgets: world{faults: 1}},
		{name: "going on without the lock", run: chain(), procs: 1, forRun: true, continues: true, budgets: world{faults: 2}},
		{name: "going on without the lock, two processes", run: single(), procs: 2, forRun: true, continues: true, budgets: world{faults: 1}},
		{name: "at the tenant's limit", run: single(), procs: 1, gated: true, budgets: world{faults: 2, cancels: 1, suspends: 1}},
		{name: "at the tenant's limit, two processes", run: single(), procs: 2, gated: true, budgets: world{faults: 1}},
		{name: "dead letters", run: single(), procs: 1, budgets: world{faults: 2, refusals: 2, redrives: 1, slow: 1}},
		{name: "dead letters, two processes", run: newRun(newStep("a", maxFailures(1))), procs: 2, budgets: world{faults: 1, refusals: 1, redrives: 1}},
		{name: "dead letters of items", run: each(2, v1alpha1.Collect, maxFailures(1)), procs: 1, budgets: world{faults: 1, refusals: 1, redrives: 1}},
		{name: "answers stored and not delivered", run: single(), procs: 1, parks: true, budgets: world{faults: 1, started: 1, slow: 1}},
		{name: "answers stored and not delivered, two processes", run: deadline(single(), 700), procs: 2, budgets: world{faults: 1, slow: 1}},
		{name: "answers stored and not delivered, without the lock", run: deadline(goesOn(), 500), procs: 1, parks: true, budgets: world{faults: 1, failures: 1, slow: 1}},
		{name: "answers stored and not delivered, to items", run: each(2, v1alpha1.Collect, maxFailures(2)), procs: 1, parks: true, budgets: world{faults: 1, slow: 1}},
		{name: "answers stored and not delivered, in the clean-up", run: cleansOnce(), procs: 1, parks: true, budgets: world{faults: 1, slow: 1}},
		{name: "parallel limit, suspended", run: wide(), procs: 1, budgets: world{suspends: 1, failures: 1}},
	}
	cases = append(cases, aheadCases()...)
	return cases
}

// maxWorlds bounds a case.
const maxWorlds = 1_000_000

// explorer holds the graph.
type explorer struct {
	model  *model
	worlds []world
	number map[world]int32
	parent []int32
	how    []label
	edges  int
	// edges without faults, reversed: what liveness needs
	from, to []int32
}

func explore(t *testing.T, m *model) *explorer {
	t.Helper()
	x := &explorer{model: m, number: map[world]int32{}}
	x.add(m.start, -1, label{text: "start", bit: -1})
	for at := int32(0); int(at) < len(x.worlds); at++ {
		if len(x.worlds) > maxWorlds {
			fail(t, x, at, "the space has no bound, or the budgets are too large")
		}
		w := x.worlds[at]
		steps := m.steps(&w)
		for k := range steps {
			s := &steps[k]
			if s.err != nil {
				fail(t, x, at, fmt.Sprintf("%s: %v", s.name.words(m.core), s.err))
			}
			x.edges++
			next := x.add(s.next, at, s.name)
			if !s.fault {
				x.from, x.to = append(x.from, at), append(x.to, next)
			}
		}
		if err := m.quiescent(&w, steps); err != nil {
			fail(t, x, at, err.Error())
		}
	}
	return x
}

func (x *explorer) add(w world, parent int32, how label) int32 {
	if i, ok := x.number[w]; ok {
		return i
	}
	i := int32(len(x.worlds))
	x.number[w] = i
	x.worlds = append(x.worlds, w)
	x.parent = append(x.parent, parent)
	x.how = append(x.how, how)
	return i
}

func (x *explorer) path(at int32) []string {
	var lines []string
	for ; at >= 0; at = x.parent[at] {
		lines = append(lines, x.how[at].words(x.model.core))
	}
	slices.Reverse(lines)
	return lines
}

// quiescent: where nothing but time can go on, every attempt in flight is somewhere, and every
// result is settled. Without this a lost job would hide behind its time-out.
func (m *model) quiescent(w *world, steps []step) error {
	for i := range steps {
		if !steps[i].fault && !steps[i].time {
			return nil
		}
	}
	k := &m.core.statuses[w.status]
	if lost := k.unanswered &^ w.jobs &^ w.working; lost != 0 {
		return fmt.Errorf("lost: attempts %b are in flight, but with nobody", lost)
	}
	if left := w.answered() &^ w.acked; left != 0 {
		return fmt.Errorf("left: results %b are never acknowledged", left)
	}
	if !k.finished && k.inFlight == 0 && m.idleForever(steps) {
		return fmt.Errorf("stuck: nothing in flight, nothing to wait for")
	}
	return nil
}

func (m *model) idleForever(steps []step) bool {
	for i := range steps {
		if steps[i].time {
			return false
		}
	}
	return true
}

// liveness: from every state an end is reachable with no more faults, and with all
// results acknowledged.
func (x *explorer) liveness(t *testing.T) {
	t.Helper()
	offsets := make([]int32, len(x.worlds)+1)
	for _, to := range x.to {
		offsets[to+1]++
	}
	for i := range x.worlds {
		offsets[i+1] += offsets[i]
	}
	into := make([]int32, len(x.to))
	fill := slices.Clone(offsets)
	for k, to := range x.to {
		into[fill[to]] = x.from[k]
		fill[to]++
	}
	good := make([]bool, len(x.worlds))
	var queue []int32
	for i := range x.worlds {
		w := &x.worlds[i]
		if x.model.core.statuses[w.status].finished && w.answered()&^w.acked == 0 {
			good[i] = true
			queue = append(queue, int32(i))
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, from := range into[offsets[queue[0]]:offsets[queue[0]+1]] {
			if !good[from] {
				good[from] = true
				queue = append(queue, from)
			}
		}
	}
	for i := range good {
		if !good[i] {
			fail(t, x, int32(i), "liveness: no end can be reached")
		}
	}
}
