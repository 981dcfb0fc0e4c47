// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	rand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// aheadFacts are what one decision of TestWhatMayLag is made on.
type aheadFacts struct {
	steps   []v1alpha1.Step
	adjust  func(*v1alpha1.WorkflowRun) // before its first write
	first   bool                        // decide on the run before its first write
	results []Result
	input   func(*Input)
	always  func(*Input) // for the first write, too
}

// Each rule of mayLag has a case in which it alone decides.
//
// mutations: without any one of the conditions of ahead.go one of the cases fails.
func TestWhatMayLag(t *testing.T) {
	chain := []v1alpha1.Step{newStep("a", maxFailures(2)), newStep("b", after("a"))}
	succeededA := []Result{succeeded("a", 1, `{"n":1}`)}
	for name, c := range map[string]struct {
		aheadFacts
		want bool
	}{
		"a success has the next step dispatched": {aheadFacts{steps: chain, results: succeededA}, true},
		"a worker says Started":                  {aheadFacts{steps: chain, results: []Result{result("a", 1, protocol.StatusStarted)}}, true},
		"the next step is skipped": {aheadFacts{
			steps: []v1alpha1.Step{newStep("a"), newStep("b", after("a"), when("false")), newStep("c", after("a"))}, results: succeededA,
		}, true},
		"a failure that does not matter": {aheadFacts{
			steps: []v1alpha1.Step{newStep("a", continues, maxFailures(1)), newStep("b", after("a"))}, results: []Result{failed("a", 1, "E", "m")},
		}, true},
		"beside a delay that goes on": {aheadFacts{steps: append(slices.Clone(chain), newStep("d", delay(60))), results: succeededA}, true},
		"a run begins":                {aheadFacts{steps: chain, first: true}, true},
		"a run that others may have":  {aheadFacts{steps: chain, first: true, input: func(in *Input) { in.Checkpoint.Begins = false }}, false},
		"a run with a key begins":     {aheadFacts{steps: chain, first: true, adjust: func(r *v1alpha1.WorkflowRun) { r.Spec.IdempotencyKey = "k" }, input: func(in *Input) { in.Claim.State = ClaimOurs }}, false},
		"a child begins":              {aheadFacts{steps: chain, first: true, input: func(in *Input) { in.Parent = &Parent{Named: true} }}, false},
		"a run that waits for a slot": {aheadFacts{steps: chain, first: true, input: func(in *Input) { in.Gate = Gate{State: GateFull} }}, false},
		"a run is let in later":       {aheadFacts{steps: chain, adjust: func(r *v1alpha1.WorkflowRun) { r.Spec.Suspend = true }, input: func(in *Input) { in.Run.Spec.Suspend = false }}, false},
		"every step is written":       {aheadFacts{steps: chain, results: succeededA, input: func(in *Input) { in.Checkpoint = Checkpoint{} }}, false},
		"nothing changes":             {aheadFacts{steps: chain}, false},
		"a failure is tried again":    {aheadFacts{steps: chain, results: []Result{failed("a", 1, "E", "m")}}, false},
		"a worker asks for a retry":   {aheadFacts{steps: chain, results: []Result{result("a", 1, protocol.StatusRetry)}}, false},
		"a failure that ends the run": {aheadFacts{steps: []v1alpha1.Step{newStep("a", maxFailures(1)), newStep("b")}, results: []Result{failed("a", 1, "E", "m")}}, false},
		"the last step":               {aheadFacts{steps: []v1alpha1.Step{newStep("a")}, results: succeededA}, false},
		"an output in the store":      {aheadFacts{steps: chain, results: []Result{succeeded("a", 1, `"`+strings.Repeat("x", 5000)+`"`)}}, false},
		"an expression that fails":    {aheadFacts{steps: []v1alpha1.Step{newStep("a"), newStep("b", after("a"), continues, input(`{"x":"${inputs.no}"}`))}, results: succeededA}, false},
		"an approval":                 {aheadFacts{steps: []v1alpha1.Step{newStep("a"), newStep("b", after("a"), approval(func(*v1alpha1.Approval) {}))}, results: succeededA}, false},
		"a delay":                     {aheadFacts{steps: []v1alpha1.Step{newStep("a"), newStep("b", after("a"), delay(5))}, results: succeededA}, false},
		"a delay of no time":          {aheadFacts{steps: []v1alpha1.Step{newStep("a"), newStep("b", after("a"), delayUntil(epoch)), newStep("c", after("b"))}, results: succeededA}, false},
		"a child run":                 {aheadFacts{steps: []v1alpha1.Step{newStep("a"), newStep("b", after("a"), childRun(oneJob, ""))}, results: succeededA}, false},
		"items":                       {aheadFacts{steps: []v1alpha1.Step{newStep("a"), newStep("b", after("a"), forEach("${[1, 2]}", 1, v1alpha1.Collect))}, results: succeededA}, false},
		"items under way":             {aheadFacts{steps: append(slices.Clone(chain), newStep("e", forEach("${[1, 2]}", 2, v1alpha1.Collect))), results: succeededA}, false},
		"finally steps":               {aheadFacts{steps: []v1alpha1.Step{newStep("a")}, adjust: func(r *v1alpha1.WorkflowRun) { r.Spec.Finally = []v1alpha1.Step{newStep("f")} }, results: succeededA}, false},
		"a step may wait for a place": {aheadFacts{steps: append(slices.Clone(chain), newStep("x")), adjust: func(r *v1alpha1.WorkflowRun) { r.Spec.MaxParallelSteps = 1 }, results: succeededA}, false},
		"suspended":                   {aheadFacts{steps: chain, results: succeededA, input: func(in *Input) { in.Run.Spec.Suspend = true }}, false},
		"cancelled":                   {aheadFacts{steps: chain, results: succeededA, input: func(in *Input) { in.Run.Spec.Shutdown = v1alpha1.ShutdownCancel }}, false},
		"a lease was lost":            {aheadFacts{steps: chain, results: succeededA, input: func(in *Input) { in.Lock.Lost = v1alpha1.ReasonOwnershipLost }}, false},
		"a lease cannot be renewed":   {aheadFacts{steps: chain, results: succeededA, input: func(in *Input) { in.Lock.RenewalFailures = 1 }}, false},
		"without the lock":            {aheadFacts{steps: chain, results: succeededA, input: func(in *Input) { in.Lock.UnlockedSince = epoch }}, false},
		"begins after a lost lease":   {aheadFacts{steps: chain, first: true, input: func(in *Input) { in.Lock.Lost = v1alpha1.ReasonOwnershipLost }}, false},
		"still without the lock":      {aheadFacts{steps: chain, results: succeededA, always: func(in *Input) { in.Lock.UnlockedSince = epoch }}, false},
		"a finally step after another": {aheadFacts{
			steps: []v1alpha1.Step{newStep("w", delayUntil(epoch))},
			adjust: func(r *v1alpha1.WorkflowRun) {
				r.Spec.Finally = []v1alpha1.Step{newStep("a"), newStep("f", after("a"))}
			},
			results: succeededA,
		}, false},
		"an answer that is rejected": {aheadFacts{
			steps: []v1alpha1.Step{newStep("a", continues, maxFailures(1)), newStep("b", after("a"))}, results: []Result{{ID: job("a", 1), Rejected: "no JSON"}},
		}, false},
		"a time-out that does not matter": {aheadFacts{
			steps: []v1alpha1.Step{newStep("a", continues, maxFailures(1)), newStep("b", after("a"))},
			input: func(in *Input) { in.Now = epoch.Add(time.Hour); in.Answers.AsOf = in.Now },
		}, false},
		"the lock is busy":       {aheadFacts{steps: chain, results: succeededA, input: func(in *Input) { in.Lock = busy() }}, false},
		"NATS is away":           {aheadFacts{steps: chain, results: succeededA, input: func(in *Input) { in.NATSDown = epoch }}, false},
		"NATS is full":           {aheadFacts{steps: chain, results: succeededA, input: func(in *Input) { in.NoRoom = epoch }}, false},
		"a result is put aside":  {aheadFacts{steps: chain, results: succeededA, input: func(in *Input) { in.DeadLetters = []DeadLetter{{ID: job("a", 1), Started: true, Cause: "c"}} }}, false},
		"an object without room": {aheadFacts{steps: chain, results: succeededA, input: func(in *Input) { in.Form = FormShort }}, false},
		"a run that has ended": {aheadFacts{steps: []v1alpha1.Step{newStep("a")}, results: succeededA, input: func(in *Input) {
			in.Run.Status.CompletedAt = in.Run.Status.StartedAt
		}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decideAhead(t, c.aheadFacts); got.MayLag != c.want {
				t.Errorf("may lag: %t", got.MayLag)
			}
		})
	}
}

func decideAhead(t *testing.T, c aheadFacts) Decision {
	t.Helper()
	run := newRun(c.steps...)
	if c.adjust != nil {
		c.adjust(run)
	}
	o := objects{}
	ahead := Checkpoint{Coalesced: true, Begins: true}
	if !c.first {
		in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Checkpoint: ahead})
		if c.always != nil {
			c.always(&in)
		}
		out := o.decide(in)
		run.Status = persisted(t, &out.Status)
	}
	in := letIn(Input{Run: run, Now: epoch.Add(time.Second), Lock: held(1), Results: c.results, Checkpoint: ahead})
	for _, change := range []func(*Input){c.always, c.input} {
		if change != nil {
			change(&in)
		}
	}
	return o.decide(in)
}

// The job of a run that begins ahead leaves the queue with the deadline of its run, which status
// does not have yet; so do the jobs after it.
//
// mutation: dag.AttemptDeadline that does not look at the run's deadline makes this fail.
func TestJobsAheadEndWithTheirRun(t *testing.T) {
	const active = 30
	steps := []v1alpha1.Step{newStep("a"), newStep("b", after("a"))}
	limit := func(run *v1alpha1.WorkflowRun) { run.Spec.ActiveDeadlineSeconds = new(int32(active)) }
	first := decideAhead(t, aheadFacts{steps: steps, adjust: limit, first: true})
	begun := first.Status.Admission.AdmittedAt.Time
	second := decideAhead(t, aheadFacts{steps: steps, adjust: limit, results: []Result{succeeded("a", 1, `{"n":1}`)}, input: func(in *Input) {
		in.Run.Status = &first.Status // it is kept, and not written
	}})
	for _, d := range []Decision{first, second} {
		if !d.MayLag || len(d.Dispatch) != 1 {
			t.Fatalf("may lag: %t, %d jobs", d.MayLag, len(d.Dispatch))
		}
		if got, want := d.Dispatch[0].Deadline, begun.Add(active*time.Second); !got.Equal(want) {
			t.Errorf("job %s: deadline %s, want %s", d.Dispatch[0].ID, got, want)
		}
	}
}

// Status says that a run may be ahead of it, for good, and by how much the last write was late.
//
// mutation: noteCheckpoint that drops what status has when the policy is another makes this fail.
func TestStatusSaysThatItMayLag(t *testing.T) {
	run := newRun(newStep("a"), newStep("b", after("a")), newStep("c", after("b")))
	write := func(c Checkpoint, results ...Result) *v1alpha1.WorkflowRunStatus {
		t.Helper()
		out := decideLagging(run, c, results...)
		if !out.Changed {
			t.Fatal("nothing was written")
		}
		run.Status = persisted(t, &out.Status)
		return run.Status
	}
	if st := write(Checkpoint{}); st.Checkpoint != nil || st.MinWriterVersion != v1alpha1.OldestVersion {
		t.Errorf("every step: %v, %d", st.Checkpoint, st.MinWriterVersion)
	}
	if out := decideLagging(run, Checkpoint{Coalesced: true}); out.Changed {
		t.Error("an edit of the policy was worth a write")
	}
	st := write(Checkpoint{Coalesced: true, Since: epoch.Add(-40 * time.Millisecond)}, succeeded("a", 1, "1"))
	want := &v1alpha1.CheckpointStatus{Mode: v1alpha1.CheckpointCoalesced, LagMillis: 40}
	if diff := cmp.Diff(want, st.Checkpoint); diff != "" || st.MinWriterVersion != v1alpha1.AheadVersion {
		t.Errorf("coalesced: %d, %s", st.MinWriterVersion, diff)
	}
	st = write(Checkpoint{}, succeeded("b", 1, "1"))
	want = &v1alpha1.CheckpointStatus{Mode: v1alpha1.CheckpointEveryStep}
	if diff := cmp.Diff(want, st.Checkpoint); diff != "" || st.MinWriterVersion != v1alpha1.AheadVersion {
		t.Errorf("every step again: %d, %s", st.MinWriterVersion, diff)
	}
}

func decideLagging(run *v1alpha1.WorkflowRun, c Checkpoint, results ...Result) Decision {
	return objects{}.decide(letIn(Input{Run: run, Now: epoch, Lock: held(1), Checkpoint: c, Results: results}))
}

// Whoever has the same results begins the same jobs with the same inputs, whatever order and
// batches the results come in; and no more than maxParallelSteps are with workers, though two
// processes began them that do not know of each other.
//
// mutation: hasRoomForAll that is always true makes this fail.
func TestReplaysBeginTheSame(t *testing.T) {
	began := 0
	for seed := range uint64(2000) {
		g := rand.New(rand.NewPCG(seed, 1))
		run := randomDAG(g)
		if seed%2 == 0 { // which of three steps gets one of two places is a matter of who is first
			run = newRun(newStep("s1"), newStep("s2"), newStep("c1", after("s2")), newStep("c2", after("s2")), newStep("d1", after("s1")), newStep("e1", after("c1", "c2", "d1")))
			run.Spec.MaxParallelSteps = 2
		}
		w := &workersOfReplays{run: run, inputs: map[string]string{}, answered: map[string]bool{}}
		for range 6 {
			if err := w.play(t, g); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		began += len(w.inputs)
	}
	if began < 1000 {
		t.Errorf("only %d jobs began", began)
	}
}

// workersOfReplays is what is with workers, whoever began it.
type workersOfReplays struct {
	run      *v1alpha1.WorkflowRun
	inputs   map[string]string // of jobs that were begun
	answered map[string]bool
}

// play is a process that runs ahead of a status which is never written, until the core wants a
// write, or the process dies.
func (w *workersOfReplays) play(t *testing.T, g *rand.Rand) error {
	run, ahead := w.run.DeepCopy(), Checkpoint{Coalesced: true, Begins: true}
	applied := map[string]bool{}
	for out := decideLagging(run, ahead); g.IntN(3) > 0; {
		if out.Changed {
			if !out.MayLag {
				return nil
			}
			run.Status = persisted(t, &out.Status)
		}
		if err := w.begin(out.Dispatch); err != nil {
			return err
		}
		batch := w.answers(g, applied)
		out = decideLagging(run, ahead, batch...)
		for k, v := range out.Verdicts {
			applied[batch[k].ID.String()] = v != Ahead
		}
	}
	return nil
}

func (w *workersOfReplays) begin(jobs []Job) error {
	for _, j := range jobs {
		was, known := w.inputs[j.ID.String()]
		if known && was != string(j.Input) {
			return fmt.Errorf("job %s has input %s, then %s", j.ID, was, j.Input)
		}
		w.inputs[j.ID.String()] = string(j.Input)
	}
	if busy := len(w.inputs) - len(w.answered); busy > dag.Parallel(w.run) {
		return fmt.Errorf("%d steps are with workers, and %d may be", busy, dag.Parallel(w.run))
	}
	return nil
}

// answers are some of those that a process has not applied yet, old and new, in any order.
func (w *workersOfReplays) answers(g *rand.Rand, applied map[string]bool) (batch []Result) {
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(w.inputs)), func(id string) bool { return applied[id] })
	g.Shuffle(len(ids), func(a, b int) { ids[a], ids[b] = ids[b], ids[a] })
	for _, id := range ids[:min(len(ids), 1+g.IntN(2))] {
		w.answered[id] = true
		jobID, _ := protocol.ParseJobID(id)
		batch = append(batch, answerTo(jobID))
	}
	return batch
}

// answerTo is what the worker of a job says: the same to everybody.
func answerTo(id protocol.JobID) Result {
	if id.Step[len(id.Step)-1]%3 == 0 {
		r := failed(id.Step, id.Attempt, "E", "m")
		r.Result.Final = true
		return r
	}
	return succeeded(id.Step, id.Attempt, fmt.Sprintf("%q", id.Step))
}

// randomDAG is a run with conditions, failures that do not matter, and few places at times.
func randomDAG(g *rand.Rand) *v1alpha1.WorkflowRun {
	var steps []v1alpha1.Step
	for i := range 3 + g.IntN(8) {
		options := []stepOption{continues, maxFailures(1)}
		name := fmt.Sprintf("s%d", i)
		var of []string
		for j := range i {
			if i > 1 && g.IntN(i) == 0 {
				of = append(of, fmt.Sprintf("s%d", j))
			}
		}
		if len(of) > 0 {
			options = append(options, after(of...), input(fmt.Sprintf(`{"of":"${steps.%s.phase}"}`, of[0])))
			if g.IntN(4) == 0 {
				options = append(options, when(fmt.Sprintf("steps.%s.phase == 'Succeeded'", of[0])))
			}
		}
		steps = append(steps, newStep(name, options...))
	}
	run := newRun(steps...)
	run.Spec.MaxParallelSteps = int32(2 + g.IntN(3))
	return run
}

// An end that another process writes takes back what it never knew: first attempts of jobs that
// status has cancelled, and nothing that was cancelled before.
func TestNeverBegun(t *testing.T) {
	run := newRun(newStep("a"), newStep("b", after("a")), newStep("d", after("a"), delay(5)), newStep("e", after("a"), forEach("${[1]}", 1, v1alpha1.Collect)))
	run.Spec.Finally = []v1alpha1.Step{newStep("f")}
	advance(t, run, epoch)
	before := run.DeepCopy()
	run.Spec.Shutdown = v1alpha1.ShutdownCancel
	advance(t, run, epoch)
	got := NeverBegun(before, run)
	if len(got) != 1 || got[0].ID != job("b", 1) || got[0].Topic != "t.b" || !got[0].Deadline.After(epoch) {
		t.Errorf("cancelled: %v", got)
	}
	if again := NeverBegun(run, run); len(again) != 0 {
		t.Errorf("cancelled before: %v", again)
	}
	bare := run.DeepCopy()
	bare.Status.Steps = nil
	if got := NeverBegun(before, bare); len(got) != 0 {
		t.Errorf("without steps: %v", got)
	}
}
