// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"fmt"
	"maps"
	rand "math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/itemset"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// itemFate is what the oracle knows of an item.
type itemFate struct {
	attempt  int32 // the last one dispatched
	inFlight bool
	failures int32
	done     bool
	failed   bool
	output   string // canonical; "null": none
}

// chance plays a run with steps for items against workers, an object store and an operator that all
// fail now and then, and keeps accounts of its own.
type chance struct {
	t           *testing.T
	g           *rand.Rand
	seed        uint64
	run         *v1alpha1.WorkflowRun
	now         time.Time
	o           objects
	facts       Payloads
	lists       map[string][]any
	mail        []Result
	fates       map[string]map[int]*itemFate
	ids         map[protocol.JobID]Job
	log         []string
	locks       lockKeeper
	conflicting bool // workers contradict themselves about one attempt
	cuts        bool // expressions took nearly all that a pass may, now and then
	calm        bool // nothing fails any more
}

func (c *chance) fail(format string, args ...any) {
	c.t.Helper()
	if len(c.log) > 60 {
		c.log = c.log[len(c.log)-60:]
	}
	status := regexp.MustCompile("[yz]{9,}").ReplaceAllString(string(mustJSON(c.t, c.run.Status)), "~")
	c.t.Fatalf("seed %d: %s\nstatus %s\n%s", c.seed, fmt.Sprintf(format, args...), status, strings.Join(c.log, "\n"))
}

func (c *chance) odds(n int) bool { return !c.calm && c.g.IntN(n) == 0 }

func newChance(t *testing.T, seed uint64, conflicting bool) *chance {
	g := rand.New(rand.NewPCG(seed, 77))
	actions := []v1alpha1.ItemFailureAction{v1alpha1.Collect, v1alpha1.Collect, v1alpha1.FailStep, ""}
	var steps []v1alpha1.Step
	for i := range 1 + g.IntN(3) {
		s := newStep(fmt.Sprint("s", i), forEach("${inputs.list}", int32(1+g.IntN(9)), actions[g.IntN(4)]))
		s.Retry.MaxFailures = int32(1 + g.IntN(3))
		if g.IntN(3) == 0 {
			s.ForEach.Locks = []v1alpha1.LockRequest{mutexOf("m${item % 4}")}
		}
		if g.IntN(3) == 0 { // its own items do not want it, those of others may
			s.Locks = []v1alpha1.LockRequest{mutexOf(fmt.Sprint("m", g.IntN(4)))}
			if s.ForEach.Locks != nil {
				s.ForEach.Locks = []v1alpha1.LockRequest{mutexOf("own-${item}")}
			}
		}
		if g.IntN(3) == 0 {
			s.Retry.OnCodes = []string{"E", "Timeout", "StartTimeout"}
		}
		if g.IntN(2) == 0 {
			s.OnFailure = v1alpha1.FailureContinue
		}
		if i > 0 && g.IntN(2) == 0 {
			s.DependsOn = []string{fmt.Sprint("s", i-1)}
			s.Job.Input = raw(fmt.Sprintf(`{"item":"${item}","n":"${steps.s%d.items}","first":"${steps.s%d.output == null ? 0 : size(steps.s%d.output)}"}`, i-1, i-1, i-1))
		}
		steps = append(steps, s)
	}
	run := newRun(steps...)
	run.Spec.MaxParallelSteps = int32(1 + g.IntN(3))
	if g.IntN(3) == 0 {
		f := newStep("f", forEach("${inputs.list}", 3, v1alpha1.Collect))
		run.Spec.Finally = []v1alpha1.Step{f}
		run.Spec.FinallyTimeoutSeconds = 30000
	}
	n := []int{0, 1, 2, 5, 17, 40, 90}[g.IntN(7)]
	run.Spec.Inputs = raw(`{"list":` + numbers(n) + `}`)
	return &chance{
		t: t, g: g, seed: seed, run: run, now: epoch, o: objects{}, facts: Payloads{}, fates: map[string]map[int]*itemFate{},
		ids: map[protocol.JobID]Job{}, conflicting: conflicting,
	}
}

// tight makes it a run of steps and items that mostly want one mutex and have few places, which is
// where they may come to wait for each other.
func (c *chance) tight() *chance {
	one := []v1alpha1.LockRequest{mutexOf("m0")}
	c.run.Spec.Steps, c.run.Spec.Finally = nil, nil
	for i := range 2 + c.g.IntN(2) {
		s := newStep(fmt.Sprint("s", i), initialMillis(5000), continues)
		if c.g.IntN(2) == 0 {
			forEach("${inputs.list}", bounds.MaxLockedItems+10, v1alpha1.Collect)(&s)
			s.ForEach.Locks = one
		}
		if s.ForEach == nil || c.g.IntN(2) == 0 {
			s.Locks = one
		}
		if s.ForEach != nil && s.Locks != nil {
			s.ForEach.Locks = []v1alpha1.LockRequest{mutexOf("own-${item}")}
		}
		c.run.Spec.Steps = append(c.run.Spec.Steps, s)
	}
	c.run.Spec.MaxParallelSteps = int32(1 + c.g.IntN(2))
	c.run.Spec.Inputs = raw(`{"list":` + numbers([]int{1, 2, 3, 1, 2, 3, 1, 60}[c.g.IntN(8)]) + `}`)
	return c
}

// apart gives all items locks that no other step wants, and has decisions cut.
func (c *chance) apart() *chance {
	for i := range c.run.Spec.Steps {
		if s := &c.run.Spec.Steps[i]; s.ForEach != nil {
			s.ForEach.Locks = []v1alpha1.LockRequest{mutexOf(s.Name + "-${item}")}
		}
	}
	c.cuts = true
	return c
}

// decide is the loop of the shell, with a store that fails.
func (c *chance) decide(in Input) Decision {
	in.Payloads = maps.Clone(c.facts)
	if c.cuts && c.odds(3) {
		in.Evaluated = &facts.Evaluated{Cost: bounds.MaxDecisionCost - c.g.IntN(20*bounds.CostOfPlace)}
	}
	for n := 0; ; n++ {
		before := in.Run.DeepCopy()
		out := Decide(in)
		if c.g.IntN(10) == 0 {
			if !reflect.DeepEqual(before, in.Run) {
				c.fail("the input was changed: %s", cmp.Diff(before, in.Run))
			}
			if again := Decide(in); !reflect.DeepEqual(out, again) {
				c.fail("not deterministic: %s", cmp.Diff(out, again))
			}
		}
		c.lists, in.Lists = out.Lists, out.Lists
		if c.cuts {
			in.Evaluated = out.Evaluated
		}
		if !out.Needs.Any() {
			c.remember(in.Payloads)
			c.locks.used(c, in.Locks, &out)
			return out
		}
		in.Locks = c.locks.answer(c, in.Locks, out.Needs.Locks)
		if n > 30 {
			c.fail("the shell decides for ever: %+v", out.Needs)
		}
		failed := c.odds(6)
		for _, s := range out.Needs.Store {
			if c.odds(8) {
				failed = true
				continue
			}
			c.o[s.Ref.Name] = slices.Clone(s.Data)
			in.Payloads[s.Ref.Name] = Payload{Data: s.Data}
		}
		for _, ref := range out.Needs.Check {
			in.Payloads[ref.Name] = Payload{Problem: c.o.problem(ref)}
		}
		for _, ref := range out.Needs.Load {
			if c.odds(8) {
				failed = true
				continue
			}
			in.Payloads[ref.Name] = Payload{Data: c.o[ref.Name], Problem: c.o.problem(ref)}
		}
		if failed {
			c.log = append(c.log, "  the object store fails")
			c.remember(in.Payloads)
			return out
		}
	}
}

func (c *chance) remember(all Payloads) {
	c.facts = Payloads{}
	for name, p := range all {
		c.facts[name] = Payload{Problem: p.Problem}
	}
}

// persisted is persisted, faster.
func (c *chance) persisted(st *v1alpha1.WorkflowRunStatus) *v1alpha1.WorkflowRunStatus {
	text := mustJSON(c.t, st)
	var generic any
	if err := json.Unmarshal(text, &generic); err != nil {
		c.fail("%v", err)
	}
	var back v1alpha1.WorkflowRunStatus
	if err := json.Unmarshal(mustJSON(c.t, generic), &back); err != nil {
		c.fail("%v", err)
	}
	if !reflect.DeepEqual(mustJSON(c.t, &back), text) {
		c.fail("another status comes back: %s", cmp.Diff(*st, back))
	}
	return &back
}

func (c *chance) fate(id protocol.JobID) *itemFate {
	if c.fates[id.Step] == nil {
		c.fates[id.Step] = map[int]*itemFate{}
	}
	item := -1 // the step is one job
	if c.spec(id.Step).ForEach != nil {
		item = itemOfID(c.t, id)
	}
	if c.fates[id.Step][item] == nil {
		c.fates[id.Step][item] = &itemFate{output: "null"}
	}
	return c.fates[id.Step][item]
}

func (c *chance) spec(step string) *v1alpha1.Step {
	for _, list := range [][]v1alpha1.Step{c.run.Spec.Steps, c.run.Spec.Finally} {
		for i := range list {
			if list[i].Name == step {
				return &list[i]
			}
		}
	}
	c.fail("no step %s", step)
	return nil
}

func (c *chance) failed(id protocol.JobID, code string, final bool) {
	f, s := c.fate(id), c.spec(id.Step)
	f.inFlight = false
	f.failures++
	if final || f.failures >= s.Retry.MaxFailures || (len(s.Retry.OnCodes) > 0 && !slices.Contains(s.Retry.OnCodes, code)) {
		f.done, f.failed = true, true
	}
}

// pass is one pass of the operator over some of the mail.
func (c *chance) pass() Decision {
	c.g.Shuffle(len(c.mail), func(a, b int) { c.mail[a], c.mail[b] = c.mail[b], c.mail[a] })
	n := c.g.IntN(len(c.mail) + 1)
	if c.calm {
		n = len(c.mail)
	}
	results := slices.Clone(c.mail[:n])
	in := letIn(Input{Run: c.run, Now: c.now, Lock: held(1), Results: results, Lists: c.lists})
	out := c.decide(in)
	c.log = append(c.log, fmt.Sprintf("%s pass: %d results, verdicts %v, %d dispatched, withdrawn %v, changed %v wake %s",
		c.now.Format("15:04:05.000"), n, out.Verdicts, len(out.Dispatch), out.Withdraw, out.Changed, out.Wake.Format("15:04:05.000")))
	if !out.Changed && (len(out.Dispatch) > 0 || len(out.Withdraw) > 0 || slices.Contains(out.Verdicts, Applied)) {
		c.fail("effects without a change: %+v", out)
	}
	if id := dispatchedAndWithdrawn(&out); id != "" {
		c.fail("%s is dispatched and withdrawn", id)
	}
	if out.Changed && c.odds(7) {
		c.log = append(c.log, "  the write is refused")
		if c.odds(3) {
			c.facts, c.lists = Payloads{}, nil
		}
		return out
	}
	wasOver := Finished(c.run)
	before := refNames(c.run)
	if out.Changed {
		c.run.Status = c.persisted(&out.Status)
	}
	c.account(results, &out, wasOver)
	now := refNames(c.run)
	for name := range before {
		if !now[name] {
			delete(c.o, name)
		}
	}
	for name := range now {
		if _, ok := c.o[name]; !ok {
			c.fail("status refers to %s, which is gone", name)
		}
	}
	c.dispatched(out.Dispatch)
	c.locks.check(c)
	c.mail = c.left(results, out.Verdicts, c.mail[n:])
	c.check()
	if c.odds(9) {
		c.log = append(c.log, "  crash")
		c.facts, c.lists = Payloads{}, nil
		c.recover()
	}
	return out
}

func (c *chance) account(results []Result, out *Decision, wasOver bool) {
	for k, v := range out.Verdicts {
		r := &results[k]
		id := r.ID
		if v != Applied {
			continue
		}
		if wasOver {
			c.fail("%s applied to a finished run", id)
		}
		f := c.fate(id)
		if r.Rejected == "" && r.Result.Status == protocol.StatusStarted && f.attempt == id.Attempt {
			continue // it does no harm after a success in the same batch
		}
		if f.done || !f.inFlight || f.attempt != id.Attempt {
			c.fail("%s %s applied, but the item is at %+v", id, r.Result.Status, *f)
		}
		switch {
		case r.Rejected != "":
			c.failed(id, facts.CodeResultRejected, false)
		case r.Result.Status == protocol.StatusSucceeded:
			f.done, f.inFlight = true, false
			text := []byte(r.Result.Output)
			if ref := r.Result.OutputRef; ref != nil {
				text = c.o[ref.Name]
			}
			if len(text) > 0 {
				plain, err := bounds.Plain(text, nil)
				if err != nil {
					c.fail("%v", err)
				}
				f.output = string(plain)
			}
		case r.Result.Status == protocol.StatusFailed:
			c.failed(id, r.Result.Error.Code, r.Result.Final)
		case r.Result.Status == protocol.StatusRetry:
			f.inFlight = false
		}
	}
	still := map[string]bool{}
	for i := range c.run.Status.Steps {
		still[c.run.Status.Steps[i].Name] = !status.Ended(c.run.Status.Steps[i].Phase)
	}
	for _, w := range out.Withdraw {
		f := c.fate(w.ID)
		if f.done || !f.inFlight || f.attempt != w.ID.Attempt {
			c.fail("%s withdrawn, but the item is at %+v", w.ID, *f)
		}
		switch {
		case still[w.ID.Step] || c.ranOut(w.ID.Step):
			c.failed(w.ID, facts.CodeTimeout, false)
		case c.listed(w.ID): // the time-out ended the step
			f.inFlight, f.done, f.failed = false, true, true
		default:
			f.inFlight = false
		}
	}
}

// listed says whether status lists an item among those that failed.
func (c *chance) listed(id protocol.JobID) bool {
	for i := range c.run.Status.Steps {
		if s := &c.run.Status.Steps[i]; s.Name == id.Step && s.ForEach == nil {
			return s.Phase == v1alpha1.StepFailed
		} else if s.Name == id.Step {
			set, err := itemset.Parse(s.ForEach.FailedItems)
			return err == nil && set.Contains(itemOfID(c.t, id))
		}
	}
	return false
}

// ranOut says whether a step ended with its items, not by being cancelled.
func (c *chance) ranOut(step string) bool {
	for i := range c.run.Status.Steps {
		if s := &c.run.Status.Steps[i]; s.Name == step && s.Phase == v1alpha1.StepSucceeded {
			return true
		}
	}
	return false
}

func (c *chance) dispatched(jobs []Job) {
	for _, j := range jobs {
		if _, twice := c.ids[j.ID]; twice {
			c.fail("%s dispatched twice", j.ID)
		}
		c.ids[j.ID] = j
		f := c.fate(j.ID)
		if f.done || f.inFlight || j.ID.Attempt <= f.attempt {
			c.fail("%s dispatched, but the item is at %+v", j.ID, *f)
		}
		if f.attempt == 0 && j.ID.Attempt != 1 {
			c.fail("%s is the first attempt", j.ID)
		}
		f.attempt, f.inFlight = j.ID.Attempt, true
		if c.spec(j.ID.Step).ForEach != nil && !strings.Contains(string(j.Input), fmt.Sprintf(`"item":%s`, j.ID.Item)) {
			c.fail("%s has input %s", j.ID, j.Input)
		}
		c.answers(j.ID)
	}
}

// answers are what a worker will say of an attempt, or nothing.
func (c *chance) answers(id protocol.JobID) {
	r := Result{ID: id, PublishedAt: c.now.Add(time.Duration(c.g.IntN(3000)) * time.Millisecond)}
	for range c.g.IntN(3) {
		started := r
		started.Result.Status = protocol.StatusStarted
		c.mail = append(c.mail, started)
	}
	finals := 1
	if c.conflicting && c.g.IntN(5) == 0 {
		finals = 2
	}
	if c.odds(25) {
		finals = 0 // it hangs
	}
	for range finals {
		c.mail = append(c.mail, c.final(r))
	}
}

func (c *chance) final(r Result) Result {
	switch n := c.g.IntN(20); {
	case n < 2:
		r.Result = protocol.Result{Status: protocol.StatusFailed, Error: &protocol.ResultError{Code: []string{"E", "F"}[n], Message: "no"}, Final: c.g.IntN(5) == 0}
	case n < 4:
		r.Result = protocol.Result{Status: protocol.StatusRetry, RetryAfterMillis: int64(c.g.IntN(4000))}
	case n == 4:
		r.Rejected, r.Result.Status = "unusable", protocol.StatusSucceeded
	case n < 8:
		r.Result.Status = protocol.StatusSucceeded
	case n < 10:
		text := fmt.Sprintf(` {"b": %q, "a": [1.0, "<&>", null]} `, strings.Repeat("z", c.g.IntN(6000)))
		ref := protocol.NewOutputRef(r.ID, []byte(text))
		c.o[ref.Name] = []byte(text)
		r.Result = protocol.Result{Status: protocol.StatusSucceeded, OutputRef: &ref}
	default:
		r.Result = protocol.Result{Status: protocol.StatusSucceeded, Output: json.RawMessage(fmt.Sprintf(`{"of":%q,"pad":%q,"x":1.50,"y":{"b":1,"a":"é<"}}`, r.ID, strings.Repeat("y", c.g.IntN(900))))}
	}
	return r
}

// left is the mail after a pass: some of what was acknowledged comes again.
func (c *chance) left(results []Result, verdicts []Verdict, mail []Result) []Result {
	mail = slices.Clone(mail)
	for k, v := range verdicts {
		switch v {
		case Waiting:
			mail = append(mail, results[k])
		case Ahead:
			c.fail("%s is ahead", results[k].ID)
		default:
			if c.odds(12) {
				mail = append(mail, results[k])
			}
		}
	}
	return mail
}

// check compares the accounts with status.
func (c *chance) check() {
	for i := range c.run.Status.Steps {
		s := &c.run.Status.Steps[i]
		f := s.ForEach
		if f == nil {
			continue
		}
		var succeeded, failed, inFlight int
		for item, fate := range c.fates[s.Name] {
			if item >= int(f.Begun) {
				c.fail("item %d of %s is not begun", item, s.Name)
			}
			switch {
			case fate.failed:
				failed++
			case fate.done:
				succeeded++
			case fate.inFlight:
				inFlight++
			}
		}
		if !status.Ended(s.Phase) {
			n := 0
			for _, g := range fanout.Groups(f) {
				n += g.Set.Len()
			}
			if int(f.Begun) != n+int(f.Succeeded+f.Failed) {
				c.fail("step %s: %d begun, %d under way, %d+%d over", s.Name, f.Begun, n, f.Succeeded, f.Failed)
			}
			got := 0
			for _, id := range InFlight(c.run) {
				if id.Step == s.Name {
					got++
				}
			}
			if got != inFlight {
				c.fail("step %s: %d in flight, oracle %d", s.Name, got, inFlight)
			}
			if n > int(c.spec(s.Name).ForEach.MaxParallel) {
				c.fail("step %s: %d under way", s.Name, n)
			}
		}
		if int(f.Succeeded) != succeeded || int(f.Failed) != failed {
			c.fail("step %s: %d succeeded and %d failed, oracle %d and %d", s.Name, f.Succeeded, f.Failed, succeeded, failed)
		}
		if s.Phase == v1alpha1.StepSucceeded {
			c.output(s)
		}
	}
}

func (c *chance) output(s *v1alpha1.StepStatus) {
	var want []string
	for item := range int(s.ForEach.Total) {
		fate := c.fates[s.Name][item]
		if fate == nil || !fate.done {
			c.fail("step %s succeeded without item %d", s.Name, item)
		}
		want = append(want, fate.output)
	}
	got, text := textOf(s.Output), "["+strings.Join(want, ",")+"]"
	if s.OutputRef != nil {
		got = string(c.o[s.OutputRef.Name])
	} else {
		text = string(bounds.InStatus([]byte(text)))
	}
	if got != text {
		c.fail("step %s has output\n%s\nwant\n%s", s.Name, got, text)
	}
}

// recover renders all jobs again with nothing but status, as after a crash.
func (c *chance) recover() {
	payloads := Payloads{}
	r := render.New(c.run, payloads, nil)
	for _, id := range InFlight(c.run) {
		for _, ref := range r.Needs(id) {
			payloads[ref.Name] = Payload{Data: c.o[ref.Name], Problem: c.o.problem(ref)}
		}
		j, err := r.Job(id)
		if err != nil {
			c.fail("%v", err)
		}
		if string(j.Input) != string(c.ids[id].Input) || !slices.Equal(j.Locks, c.ids[id].Locks) || j.Topic != c.ids[id].Topic {
			c.fail("%s rendered again: %s, was %s", id, j.Input, c.ids[id].Input)
		}
	}
}

func (c *chance) play() {
	defer func() {
		if r := recover(); r != nil {
			c.fail("panic: %v", r)
		}
	}()
	cancelAt, suspended := -1, false
	if c.g.IntN(6) == 0 {
		cancelAt = c.g.IntN(40)
	}
	for round := range 40 {
		c.now = c.now.Add(time.Duration(c.g.IntN(4000)) * time.Millisecond)
		if round == cancelAt {
			c.run.Spec.Shutdown = []v1alpha1.ShutdownMode{v1alpha1.ShutdownCancel, v1alpha1.ShutdownTerminate}[c.g.IntN(2)]
		}
		if c.g.IntN(15) == 0 {
			suspended = !suspended
			c.run.Spec.Suspend = suspended
		}
		c.pass()
	}
	c.calm, c.run.Spec.Suspend = true, false
	inLine := 0 // passes in which nothing came, and nothing is to come but locks
	for round := 0; !Finished(c.run); round++ {
		if round > 4000 || inLine > 10 {
			c.fail("not over")
		}
		out := c.pass()
		if Finished(c.run) {
			break
		}
		again := Decide(letIn(Input{Run: c.run, Now: c.now, Lock: held(1), Lists: c.lists, Payloads: c.facts}))
		if len(c.mail) == 0 && again.Changed && !again.Needs.Any() && out.Wake.Sub(c.now) > bounds.MinWake {
			c.fail("changed again: %s", cmp.Diff(c.run.Status, &again.Status))
		}
		if len(c.mail) == 0 {
			if out.Wake.IsZero() {
				if inLine++; c.locks.awaited(c) {
					continue // it is woken
				}
				c.fail("stuck: nothing is to come")
			}
			c.now = out.Wake
		}
		inLine = 0
	}
	c.pass() // what comes after the end
}

// Each item ends once, its attempts grow, ids are unique, counts add up, the output is that of the
// workers, and nothing is stuck.
func TestItemsByChance(t *testing.T) {
	for name, conflicting := range map[string]bool{"workers that say one thing of an attempt": false, "workers that contradict themselves": true} {
		t.Run(name, func(t *testing.T) {
			deadline := time.Now().Add(1500 * time.Millisecond)
			seed := uint64(0)
			for ; time.Now().Before(deadline); seed++ {
				newChance(t, seed, conflicting).play()
			}
			t.Logf("%d runs", seed)
		})
	}
}

// The same, of steps and items that want the same lock.
//
// mutations: a HasPlace without locks, an itemRoom without a least, or without what it keeps,
// mayPrepare that leaves out who has an answer, and locked that passes over all items as something
// is left, make this fail.
func TestStepsAndItemsThatWantOneLockByChance(t *testing.T) {
	for seed := range uint64(200) {
		newChance(t, seed, false).tight().play()
		newChance(t, seed, false).tight().apart().play()
	}
}
