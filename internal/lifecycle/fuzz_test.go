package lifecycle

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// FuzzDecide feeds any JSON as spec, status and results, and random runs played for some rounds. Decide must be total,
// deterministic, must not change its input, and must keep its promises about effects.
func FuzzDecide(f *testing.F) {
	spec := mustJSON(f, newRun(newStep("a"), newStep("b", after("a"), when("steps.a.output.x > 1"))).Spec)
	done := decideAt(newRun(newStep("a")), epoch, held(1)).Status
	f.Add(uint64(0), spec, []byte(`{}`), []byte(`[]`))
	f.Add(uint64(1), spec, mustJSON(f, done), []byte(`[{"ID":{"RunUID":"u-1","Step":"a","Item":"-","Attempt":1},"Result":{"status":"Succeeded","output":{"x":2}}}]`))
	f.Add(uint64(2), []byte(`{"steps":[{"name":"a","dependsOn":["b"]},{"name":"b","dependsOn":["a"]}]}`),
		[]byte(`{"steps":[{"name":"a","phase":"Odd","attempt":2147483647,"failures":-5},{"name":"b","phase":"Running"}]}`), []byte(`[{"ID":{"Step":"b"}}]`))
	f.Add(uint64(3), []byte(`{"steps":[{"name":""}],"inputs":null,"shutdown":"Later"}`), []byte(`{"fence":-1,"conditions":[{"type":"Admitted"}]}`), []byte(`[{}]`))
	seeds := uint64(200)
	if raceEnabled {
		seeds = 50
	}
	for seed := uint64(4); seed < seeds; seed++ {
		f.Add(seed, []byte(nil), []byte(nil), []byte(nil))
	}
	f.Fuzz(func(t *testing.T, seed uint64, spec, status, results []byte) {
		g := gamble{rand.New(rand.NewPCG(seed, 1))}
		run := g.run()
		if json.Unmarshal(spec, &run.Spec) != nil {
			run = g.run()
		}
		if len(status) > 0 && json.Unmarshal(status, &run.Status) != nil {
			run.Status = nil
		}
		var given []Result
		if json.Unmarshal(results, &given) != nil {
			given = nil
		}
		now := epoch
		for range 12 {
			in := g.input(run, now, given)
			out := promises(t, in)
			if out.Changed {
				run.Status = readBack(t, &out.Status)
			}
			if g.IntN(8) == 0 {
				run.Spec.Suspend = !run.Spec.Suspend
			}
			if g.IntN(20) == 0 {
				run.Spec.Shutdown = v1alpha1.ShutdownCancel
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
	if !out.Changed && len(out.Dispatch)+len(out.Withdraw) > 0 {
		t.Fatalf("effects without a write: %v %v", out.Dispatch, out.Withdraw)
	}
	if Finished(in.Run) && (out.Changed || !cmp.Equal(out.Status, *in.Run.Status)) {
		t.Fatal("a finished run changed")
	}
	if out.Told && (len(in.DeadLetters) == 0 || reasonOf(&out.Status, v1alpha1.ConditionDeadLettered) != v1alpha1.ReasonDeliveriesExhausted) {
		t.Fatal("dead letters are said to be told, and are not")
	}
	if !out.Wake.IsZero() && !out.Wake.After(in.Now) {
		t.Fatalf("wake at %s, now %s", out.Wake, in.Now)
	}
	if out.Changed && in.Lock.State == LockHeld {
		next := in
		next.Run = in.Run.DeepCopy()
		next.Run.Status, next.Results = &out.Status, nil
		if again := Decide(next); again.Changed {
			t.Fatalf("not settled in one decision:\n%s", cmp.Diff(out.Status, again.Status))
		}
		for _, j := range out.Dispatch {
			if again, err := JobOf(next.Run, j.ID, nil); err != nil || !cmp.Equal(again, j) {
				t.Fatalf("job %v again: %v, %v", j, again, err)
			}
		}
	}
	return out
}

// readBack is the status as the API server gives it back. Strange statuses of the fuzzer may not have a JSON form.
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
		run.Spec.Steps = append(run.Spec.Steps, s)
	}
	run.Spec.MaxParallelSteps = int32(g.IntN(4))
	run.Spec.Suspend = g.IntN(6) == 0
	for _, p := range []**int32{&run.Spec.ActiveDeadlineSeconds, &run.Spec.QueueTimeoutSeconds, &run.Spec.TTLSecondsAfterFinished} {
		if g.IntN(3) == 0 {
			*p = new(int32(g.IntN(5000)))
		}
	}
	return run
}

func (g gamble) input(run *v1alpha1.WorkflowRun, now time.Time, given []Result) Input {
	in := letIn(Input{Run: run, Now: now, Results: given})
	in.Tenant.Allowed, in.Permits.AnyTopic = g.IntN(50) != 0, g.IntN(50) != 0
	if g.IntN(4) == 0 {
		in.Gate = Gate{State: GateState(g.IntN(int(GateRebuilding) + 1)), Used: g.IntN(3), Limit: g.IntN(3), Cause: "refused"}
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
		r.Result.Output = []json.RawMessage{nil, []byte(`{"x":1.0}`), []byte(`{"x":`), []byte(`"text"`), []byte(` null `)}[g.IntN(5)]
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
