// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"fmt"
	"maps"
	rand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// FuzzDecide feeds any JSON as spec, status and results, and random runs played for some
// rounds. Decide must be total, deterministic, must not change its input, and must keep its
// promises about effects.
func FuzzDecide(f *testing.F) {
	spec := mustJSON(f, newRun(newStep("a"), newStep("b", after("a"), when("steps.a.output.x > 1"))).Spec)
	done := decideAt(newRun(newStep("a")), epoch, held(1)).Status
	f.Add(uint64(0), spec, []byte(`{}`), []byte(`[]`))
	f.Add(uint64(1), spec, mustJSON(f, done), []byte(`[{"ID":{"RunUID":"u-1","Step":"a","Item":"-","Attempt":1},"Result":{"status":"Succeeded","output":{"x":2}}}]`))
	f.Add(uint64(2), []byte(`{"steps":[{"name":"a","dependsOn":["b"]},{"name":"b","dependsOn":["a"]}]}`),
		[]byte(`{"steps":[{"name":"a","phase":"Odd","attempt":2147483647,"failures":-5},{"name":"b","phase":"Running"}]}`), []byte(`[{"ID":{"Step":"b"}}]`))
	f.Add(uint64(3), []byte(`{"steps":[{"name":""}],"inputs":null,"shutdown":"Later"}`), []byte(`{"fence":-1,"conditions":[{"type":"Admitted"}]}`), []byte(`[{}]`))
	late := newRun(endsAtOnce(v1alpha1.Collect), newStep("b"), newStep("y", after("x"), input(`{"id":"${steps.x.output[0].id}"}`)))
	for seed := range uint64(4) { // the facts are drawn
		f.Add(seed, mustJSON(f, late.Spec), []byte(nil), []byte(nil))
	}
	for seed := uint64(4); seed < 200; seed++ {
		f.Add(seed, []byte(nil), []byte(nil), []byte(nil))
	}
	f.Fuzz(func(t *testing.T, seed uint64, spec, status, results []byte) {
		g := gamble{rand.New(rand.NewPCG(seed, 1))}
		run := g.run()
		if json.Unmarshal(spec, &run.Spec) != nil {
			run = g.run()
		}
		jobs := seenJobs{}
		if len(status) > 0 && json.Unmarshal(status, &run.Status) != nil {
			run.Status = nil
		}
		var given []Result
		if json.Unmarshal(results, &given) != nil {
			given = nil
		}
		now := epoch
		for range 12 {
			in := g.stored(g.input(run, now, given))
			out := promises(t, in)
			ending(t, in.Run.Status, &out.Status, run.Spec.Shutdown)
			if out.Changed {
				run.Status = readBack(t, &out.Status)
				jobs.check(t, run, &out, in.Payloads)
			}
			if len(spec)+len(status) == 0 {
				movesOn(t, in, &out)
			}
			if g.IntN(8) == 0 {
				run.Spec.Suspend = !run.Spec.Suspend
			}
			if g.IntN(20) == 0 {
				run.Spec.Shutdown = []v1alpha1.ShutdownMode{v1alpha1.ShutdownCancel, v1alpha1.ShutdownCancel, v1alpha1.ShutdownTerminate}[g.IntN(3)]
			}
			now = now.Add(time.Duration(g.IntN(400_000)) * time.Millisecond)
			if !out.Wake.IsZero() && g.IntN(2) == 0 {
				now = out.Wake
			}
			given = nil
		}
	})
}

// promises decides twice and checks what holds for any input.
func promises(t *testing.T, in Input) Decision {
	t.Helper()
	before := in.Run.DeepCopy()
	out := Decide(in)
	if diff := cmp.Diff(before, in.Run); diff != "" {
		t.Fatalf("the input changed:\n%s", diff)
	}
	if diff := cmp.Diff(out, Decide(in)); diff != "" {
		t.Fatalf("not the same twice:\n%s", diff)
	}
	if len(out.Verdicts) != len(in.Results) {
		t.Fatalf("%d verdicts for %d results", len(out.Verdicts), len(in.Results))
	}
	if !out.Changed && len(out.Dispatch)+len(out.Withdraw)+len(out.Create) > 0 {
		t.Fatalf("effects without a write: %v %v", out.Dispatch, out.Withdraw)
	}
	if id := dispatchedAndWithdrawn(&out); id != "" {
		t.Fatalf("%s is dispatched and withdrawn", id)
	}
	if Finished(in.Run) && (out.Changed || !cmp.Equal(out.Status, *in.Run.Status)) {
		t.Fatal("a finished run changed")
	}
	if n := out.Needs.Store; len(n) > 1 && slices.ContainsFunc(n[1:], func(s StoredOutput) bool { return s.Ref == n[0].Ref }) {
		t.Fatalf("%s is to be stored twice", n[0].Ref.Name)
	}
	// Of a run that ended nothing is written any more: what comes for it may be put aside at once.
	if out.Told && !Finished(in.Run) && (len(in.DeadLetters) == 0 || status.ReasonOf(&out.Status, v1alpha1.ConditionDeadLettered) != v1alpha1.ReasonDeliveriesExhausted) {
		t.Fatal("dead letters are said to be told, and are not")
	}
	if !out.Wake.IsZero() && !out.Wake.After(in.Now) {
		t.Fatalf("wake at %s, now %s", out.Wake, in.Now)
	}
	if out.Changed && in.Lock.State == LockHeld {
		next := in
		if out.Told {
			next.DeadLetters = nil // they are put aside
		}
		next.Run = in.Run.DeepCopy()
		next.Run.Status, next.Results = &out.Status, nil
		if again := Decide(next); again.Changed {
			t.Fatalf("not settled in one decision:\n%s", cmp.Diff(out.Status, again.Status))
		}
		for _, c := range out.Create {
			if again, err := render.ChildOf(next.Run, c.Step, in.Payloads, nil); err != nil || !cmp.Equal(again, c) {
				t.Fatalf("child %v again: %v, %v", c, again, err)
			}
		}
		for _, j := range out.Dispatch {
			if again, err := JobOf(next.Run, j.ID, in.Payloads); err != nil || !cmp.Equal(again, j) {
				t.Fatalf("job %v again: %v, %v", j, again, err)
			}
		}
	}
	return out
}

// dispatchedAndWithdrawn is an attempt that a decision both dispatches and withdraws; "": none.
func dispatchedAndWithdrawn(out *Decision) string {
	for _, w := range out.Withdraw {
		if slices.ContainsFunc(out.Dispatch, func(j Job) bool { return j.ID == w.ID }) {
			return w.ID.String()
		}
	}
	return ""
}

// seenJobs are the jobs of a run as they were first rendered, and the outputs they
// were rendered with.
type seenJobs map[protocol.JobID]struct {
	job      Job
	payloads Payloads
}

// check makes sure that what is in flight is rendered as it was at first, and that nothing
// else was dispatched.
func (all seenJobs) check(t *testing.T, run *v1alpha1.WorkflowRun, out *Decision, payloads Payloads) {
	t.Helper()
	for _, j := range out.Dispatch {
		if _, twice := all[j.ID]; twice {
			t.Fatalf("%s is dispatched twice", j.ID)
		}
		if !slices.Contains(InFlight(run), j.ID) {
			t.Fatalf("%s is dispatched and not in flight", j.ID)
		}
		all[j.ID] = struct {
			job      Job
			payloads Payloads
		}{j, payloads}
	}
	for _, id := range InFlight(run) {
		first, known := all[id]
		if !known {
			continue // of a status that the fuzzer made
		}
		if again, err := JobOf(run, id, first.payloads); err != nil || !cmp.Equal(again, first.job) {
			t.Fatalf("job %s is another one now: %v\n%s", id, err, cmp.Diff(first.job, again))
		}
	}
}

// ending checks that an announced end stands.
func ending(t *testing.T, before, after *v1alpha1.WorkflowRunStatus, shutdown v1alpha1.ShutdownMode) {
	t.Helper()
	if before == nil || before.Ending == nil || before.CompletedAt != nil {
		return
	}
	if !cmp.Equal(before.Ending, after.Ending) {
		t.Fatalf("another end:\n%s", cmp.Diff(before.Ending, after.Ending))
	}
	switch e := after.Ending.Phase; {
	case after.CompletedAt == nil, after.Phase == e, e == v1alpha1.RunSucceeded && after.Phase == v1alpha1.RunFailed:
	case status.ReasonOf(after, v1alpha1.ConditionSucceeded) == v1alpha1.ReasonInvalidSpec: // of a status that the fuzzer made
	case after.Phase != v1alpha1.RunCancelled || shutdown != v1alpha1.ShutdownTerminate:
		t.Fatalf("ended as %s, announced as %s", after.Phase, e)
	}
}

// movesOn checks that a run which nothing holds up has a step that does something, or ended.
func movesOn(t *testing.T, in Input, out *Decision) {
	t.Helper()
	run := in.Run.DeepCopy()
	run.Status = &out.Status
	suspended := run.Spec.Suspend || (in.Parent != nil && in.Parent.Suspended)
	if in.Lock.State != LockHeld || Finished(run) || !Admitted(run) || suspended || out.Needs.Any() {
		return
	}
	for i := range out.Status.Steps {
		if p := out.Status.Steps[i].Phase; p != v1alpha1.StepPending && !status.Ended(p) {
			return
		}
	}
	t.Fatalf("nothing goes on, and nothing will: %s", mustJSON(t, out.Status))
}

// readBack is the status as the API server gives it back. Strange statuses of the fuzzer may not
// have a JSON form.
func readBack(t *testing.T, st *v1alpha1.WorkflowRunStatus) *v1alpha1.WorkflowRunStatus {
	t.Helper()
	raw, err := json.Marshal(st)
	if err != nil {
		return st
	}
	var back v1alpha1.WorkflowRunStatus
	if json.Unmarshal(raw, &back) != nil {
		return st
	}
	return &back
}

// gamble makes random runs and facts.
type gamble struct{ *rand.Rand }

func (g gamble) run() *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{
		Name: "r", Namespace: "team-a", UID: types.UID("u-1"), Generation: 1, CreationTimestamp: metav1.Time{Time: epoch},
	}}
	for i := range g.IntN(8) {
		s := newStep(fmt.Sprint("s", i), maxFailures(int32(g.IntN(4))), initialMillis(int64(g.IntN(5000))))
		for j := range i {
			if g.IntN(3) == 0 {
				s.DependsOn = append(s.DependsOn, fmt.Sprint("s", j))
			}
		}
		if len(s.DependsOn) > 0 && g.IntN(2) == 0 {
			s.When = []string{"false", "true", fmt.Sprintf("steps.%s.phase == 'Skipped'", s.DependsOn[0]), "steps.x.output == 1"}[g.IntN(4)]
			s.Job.Input = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"v":"${steps.%s.output}"}`, s.DependsOn[0])}
		}
		run.Spec.Steps = append(run.Spec.Steps, g.kind(s))
	}
	for i := range g.IntN(4) {
		run.Spec.Finally = append(run.Spec.Finally, g.cleaning(i))
	}
	if g.IntN(4) == 0 {
		run.Spec.Outputs = raw([]string{`{}`, `{"s":"${steps.s0.output}","o":"${steps.s0.?output.?x}"}`, `{"x":"${steps.s0.output.x}"}`, `[]`}[g.IntN(4)])
	}
	run.Spec.FinallyTimeoutSeconds = int32(g.IntN(900))
	run.Spec.MaxParallelSteps = int32(g.IntN(4))
	run.Spec.Suspend = g.IntN(6) == 0
	for _, p := range []**int32{&run.Spec.ActiveDeadlineSeconds, &run.Spec.QueueTimeoutSeconds, &run.Spec.TTLSecondsAfterFinished} {
		if g.IntN(3) == 0 {
			*p = new(int32(g.IntN(5000)))
		}
	}
	return run
}

// kind makes a step now and then one that needs no worker, one that may fail, or one that is
// picky about retries.
func (g gamble) kind(s v1alpha1.Step) v1alpha1.Step {
	if g.IntN(4) == 0 {
		s.OnFailure = v1alpha1.FailureContinue
	}
	if g.IntN(4) == 0 {
		s.Retry.OnCodes = []string{"E", facts.CodeTimeout}
	}
	switch g.IntN(10) {
	case 8, 9:
		s.ForEach = &v1alpha1.ForEach{
			Items: []string{
				"${[1, 'two', null]}", "${[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}", "${[]}", "${inputs.nothing}", "${['<a>', {'b': 2.5}]}", "${'x'}",
				"${['" + strings.Repeat("é", 300) + "', 2]}", "${[1].map(x, inputs.?list.orValue([x, x]))}",
			}[g.IntN(8)],
			MaxParallel: int32(g.IntN(5)), OnItemFailure: []v1alpha1.ItemFailureAction{v1alpha1.FailStep, v1alpha1.Collect, ""}[g.IntN(3)],
		}
		s.Job.Input = raw([]string{`{}`, `{"i":"${item}"}`, `{"i":"${item + 1}"}`}[g.IntN(3)])
	case 0:
		delay(int32(1 + g.IntN(900)))(&s)
	case 1:
		delayUntil(epoch.Add(time.Duration(g.IntN(3000)) * time.Second))(&s)
	case 2, 3:
		approval(func(a *v1alpha1.Approval) {
			a.Message, a.OnTimeout = "sure?", []v1alpha1.ApprovalDecision{v1alpha1.Approve, v1alpha1.Reject, ""}[g.IntN(3)]
			if g.IntN(2) == 0 {
				a.TimeoutSeconds = new(int32(1 + g.IntN(900)))
			}
		})(&s)
	case 4:
		inputs := ""
		if len(s.DependsOn) > 0 {
			inputs = fmt.Sprintf(`{"v":"${steps.%s.output}"}`, s.DependsOn[0])
		}
		childRun([]string{oneJob, oneJob, oneJob, `{"steps":[]}`}[g.IntN(4)], inputs)(&s)
	}
	return s
}

// cleaning is step i of spec.finally.
func (g gamble) cleaning(i int) v1alpha1.Step {
	f := newStep(fmt.Sprint("f", i), maxFailures(int32(g.IntN(3))))
	if i > 0 && g.IntN(2) == 0 {
		f.DependsOn = []string{fmt.Sprint("f", i-1)}
	}
	switch g.IntN(6) {
	case 0:
		f.When = `run.phase == "Failed"`
	case 1:
		input(`{"x":"${inputs.nothing}"}`)(&f)
	case 2:
		input(`{"s":"${steps.s0}","run":"${run}"}`)(&f)
	case 3:
		delay(int32(1 + g.IntN(600)))(&f)
	}
	if g.IntN(4) == 0 {
		f.OnFailure = v1alpha1.FailureContinue
	}
	return f
}

// decisions are approvals of some steps, with what only approvers would write.
func (g gamble) decisions(now time.Time) []Signal {
	var all []Signal
	for i := range 8 {
		if g.IntN(6) != 0 {
			continue
		}
		all = append(all, Signal{
			Name: fmt.Sprint("d", i), Step: fmt.Sprint("s", i), Approver: "ann\x1b", Comment: strings.Repeat("é\n", g.IntN(600)),
			Decision: []v1alpha1.ApprovalDecision{v1alpha1.Approve, v1alpha1.Approve, v1alpha1.Reject, "Odd"}[g.IntN(4)],
			Output:   []json.RawMessage{nil, []byte(`{"x":1.0}`), []byte(`{"x":`), []byte(`null`), []byte(`{"x":"` + strings.Repeat("o", 5000) + `"}`)}[g.IntN(5)],
			At:       now.Add(time.Duration(g.IntN(9)-4) * time.Second),
		})
	}
	return all
}

// children are what may be seen of child runs.
func (g gamble) children(run *v1alpha1.WorkflowRun) map[string]Child {
	all := map[string]Child{}
	for _, s := range Children(run) {
		uid := s.ChildRun.UID
		if uid == "" || g.IntN(9) == 0 {
			uid = fmt.Sprint("u-", g.IntN(3))
		}
		c := Child{State: ChildState(g.IntN(int(ChildPostponed) + 1)), UID: uid, Finished: g.IntN(2) == 0, Cause: "no\x00"}
		c.Phase = []v1alpha1.RunPhase{v1alpha1.RunSucceeded, v1alpha1.RunSucceeded, v1alpha1.RunFailed, v1alpha1.RunTimedOut, "Odd"}[g.IntN(5)]
		c.Output = []json.RawMessage{nil, []byte(`{"x":1.0}`), []byte(`{"x":`), []byte(`{"x":"` + strings.Repeat("o", 5000) + `"}`)}[g.IntN(4)]
		if g.IntN(6) == 0 {
			c.OutputRef = &v1alpha1.OutputReference{Name: "u-9/outputs/-/1/x", Digest: "sha256:x", Size: int64(g.IntN(9000))}
		}
		all[s.ChildRun.Name] = c
	}
	return all
}

func (g gamble) crews() map[string]Workers {
	all := map[string]Workers{}
	for i := range 8 {
		all[fmt.Sprint("t.s", i)] = Workers{State: WorkersState(g.IntN(6)), Since: epoch}
		all[fmt.Sprint("t.f", i)] = Workers{State: WorkersState(g.IntN(6)), Since: epoch}
	}
	return all
}

// stored is what an object store has that can now and then not be asked, and has now and
// then lost something.
func (g gamble) stored(in Input) Input {
	for range 4 {
		n := Decide(in).Needs
		if !n.Outputs() || g.IntN(4) == 0 {
			return in
		}
		all := Payloads{}
		maps.Copy(all, in.Payloads)
		for _, s := range n.Store {
			all[s.Ref.Name] = Payload{Data: s.Data}
			if g.IntN(20) == 0 {
				all[s.Ref.Name] = Payload{Problem: "it is gone"}
			}
		}
		for _, ref := range append(n.Check, n.Load...) {
			all[ref.Name] = Payload{Problem: "it is gone"}
		}
		in.Payloads = all
	}
	return in
}

func (g gamble) input(run *v1alpha1.WorkflowRun, now time.Time, given []Result) Input {
	in := letIn(Input{Run: run, Now: now, Results: given, Workers: g.crews()})
	if run.Status != nil { // nobody decides about a run that nobody has seen
		in.Signals = g.decisions(now)
	}
	in.Tenant.Allowed, in.Permits.AnyTopic = g.IntN(50) != 0, g.IntN(50) != 0
	if g.IntN(4) == 0 {
		in.Gate = Gate{State: GateState(g.IntN(int(GateNoPolicy) + 1)), Used: g.IntN(3), Limit: g.IntN(3), Cause: "refused"}
	}
	in.Children = g.children(run)
	if g.IntN(6) == 0 {
		in.Parent = &Parent{
			Claim: v1alpha1.ParentStatus{Name: "p", UID: "u-p"}, Tenant: "team-a", Named: g.IntN(4) != 0, Suspended: g.IntN(4) == 0,
			Terminated: g.IntN(40) == 0, Over: []string{"", "", "", "is gone"}[g.IntN(4)],
		}
	}
	fence := int64(0)
	if run.Status != nil && run.Status.Fence != nil {
		fence = *run.Status.Fence
	}
	in.Lock = []Lock{held(fence + 1), held(fence + 1), held(fence + 1), busy(), unavailable()}[g.IntN(5)]
	if g.IntN(9) == 0 {
		in.Lock.Lost = []string{v1alpha1.ReasonOwnershipLost, "not a reason"}[g.IntN(2)]
	}
	in.MaxRetryAfter = time.Duration(g.IntN(4)) * time.Second
	for n := range g.IntN(12) / 9 * g.IntN(9) {
		in.DeadLetters = append(in.DeadLetters, DeadLetter{ID: job(fmt.Sprint("s", n), int32(n)), Failures: n, Cause: strings.Repeat("refused\n", n*n)})
	}
	in.Lock.ForRun, in.Lock.Renewed = g.IntN(2) == 0, g.IntN(2) == 0
	if g.IntN(4) == 0 {
		in.Lock.RenewalFailures, in.Lock.RenewalCause = int32(g.IntN(5)-1), "i/o timeout"
	}
	if g.IntN(8) == 0 {
		in.Lock.UnlockedSince = now
	}
	for _, id := range InFlight(run) {
		if g.IntN(3) == 0 {
			continue
		}
		r := Result{ID: id, PublishedAt: now.Add(time.Duration(g.IntN(9)-4) * time.Second)}
		r.Result.Status = []protocol.ResultStatus{
			protocol.StatusStarted, protocol.StatusSucceeded, protocol.StatusSucceeded, protocol.StatusFailed, protocol.StatusRetry, "Odd",
		}[g.IntN(6)]
		r.Result.Output = []json.RawMessage{
			nil, []byte(`{"x":1.0}`), []byte(`{"x":`), []byte(`"text"`), []byte(` null `), []byte(`{"x":"` + strings.Repeat("o", 5000) + `"}`),
		}[g.IntN(6)]
		r.Result.Error = []*protocol.ResultError{nil, {Code: "E", Message: "\x00no"}, {Code: "F"}}[g.IntN(3)]
		r.Result.Final = g.IntN(5) == 0
		r.Result.RetryAfterMillis = int64(g.IntN(9000)) - 100
		r.ID.Attempt += int32(g.IntN(12) / 10)
		if g.IntN(9) == 0 {
			r.Rejected = "unusable"
		}
		in.Results = append(in.Results, r)
		if g.IntN(4) == 0 {
			in.Results = append(in.Results, r)
		}
	}
	return in
}
