// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

var epoch = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// newRun is a run with the defaults of the schema.
func newRun(steps ...v1alpha1.Step) *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{
			Name: "report", Namespace: "team-a", UID: "u-1", Generation: 1, CreationTimestamp: metav1.Time{Time: epoch},
		},
		Spec: v1alpha1.WorkflowRunSpec{WorkloadClass: "default", MaxParallelSteps: 20, Steps: steps},
	}
}

type stepOption func(*v1alpha1.Step)

// newStep is a step with topic "t.<name>".
func newStep(name string, options ...stepOption) v1alpha1.Step {
	s := v1alpha1.Step{
		Name: name, Job: &v1alpha1.Job{Topic: "t." + name}, TimeoutSeconds: 60, StartTimeoutSeconds: 600,
		Retry: v1alpha1.Retry{MaxFailures: 3},
	}
	for _, o := range options {
		o(&s)
	}
	return s
}

func after(names ...string) stepOption {
	return func(s *v1alpha1.Step) { s.DependsOn = names }
}

func when(src string) stepOption {
	return func(s *v1alpha1.Step) { s.When = src }
}

func input(raw string) stepOption {
	return func(s *v1alpha1.Step) { s.Job.Input = &runtime.RawExtension{Raw: []byte(raw)} }
}

func approval(adjust func(*v1alpha1.Approval)) stepOption {
	return func(s *v1alpha1.Step) {
		s.Job, s.Approval = nil, &v1alpha1.Approval{OnTimeout: v1alpha1.Reject}
		adjust(s.Approval)
	}
}

func delay(n int32) stepOption {
	return func(s *v1alpha1.Step) { s.Job, s.Delay = nil, &v1alpha1.Delay{Seconds: &n} }
}

func delayUntil(at time.Time) stepOption {
	return func(s *v1alpha1.Step) { s.Job, s.Delay = nil, &v1alpha1.Delay{Until: &metav1.Time{Time: at}} }
}

func continues(s *v1alpha1.Step) { s.OnFailure = v1alpha1.FailureContinue }

func retryOn(codes ...string) stepOption {
	return func(s *v1alpha1.Step) { s.Retry.OnCodes = codes }
}

func raw(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

func maxFailures(n int32) stepOption {
	return func(s *v1alpha1.Step) { s.Retry.MaxFailures = n }
}

func initialMillis(n int64) stepOption {
	return func(s *v1alpha1.Step) { s.Retry.Backoff.InitialMillis = &n }
}

func held(fence int64) Lock {
	return Lock{State: LockHeld, LeaseID: fmt.Sprintf("lease-%d", fence), Holder: "operator-0", Fence: fence, AcquiredAt: epoch}
}

func unavailable() Lock {
	return Lock{State: LockUnavailable, LeaseID: "forced", Holder: "operator-0", Message: "dial tcp: connection refused"}
}

func busy() Lock {
	return Lock{State: LockBusy, LeaseID: "forced", Holder: "operator-0", Message: "operator-1"}
}

func job(step string, attempt int32) protocol.JobID {
	return protocol.JobID{RunUID: "u-1", Step: step, Item: protocol.NoItem, Attempt: attempt}
}

func result(step string, attempt int32, status protocol.ResultStatus) Result {
	return Result{ID: job(step, attempt), Result: protocol.Result{Status: status}}
}

func succeeded(step string, attempt int32, output string) Result {
	r := result(step, attempt, protocol.StatusSucceeded)
	r.Result.Output = json.RawMessage(output)
	return r
}

func failed(step string, attempt int32, code, message string) Result {
	r := result(step, attempt, protocol.StatusFailed)
	r.Result.Error = &protocol.ResultError{Code: code, Message: message}
	return r
}

// story plays facts against Decide and the API server (a JSON round trip), and writes
// down what happens.
type story struct {
	t      *testing.T
	run    *v1alpha1.WorkflowRun
	now    time.Time
	lock   Lock
	dead   []DeadLetter // not told yet
	said   []Signal
	kids   map[string]Child
	parent *Parent
	out    strings.Builder
}

func newStory(t *testing.T, run *v1alpha1.WorkflowRun) *story {
	t.Helper()
	return &story{t: t, run: run, now: epoch, lock: held(1)}
}

// decide lets d pass, hands the results to Decide and persists what it says.
func (s *story) decide(d time.Duration, fact string, results ...Result) Decision {
	s.t.Helper()
	s.now = s.now.Add(d)
	for i := range results {
		if results[i].PublishedAt.IsZero() {
			results[i].PublishedAt = s.now
		}
	}
	before := stored(s.run)
	out := Decide(letIn(Input{Run: s.run, Now: s.now, Results: results, Lock: s.lock, DeadLetters: s.dead, Signals: s.said, Children: s.kids, Parent: s.parent}))
	if out.Changed {
		s.run.Status = persisted(s.t, &out.Status)
	}
	if out.Told {
		s.dead = nil
	}
	s.write(fact, results, &before, &out)
	return out
}

// persisted is a status as it comes back from the API server. It must be the one that was written.
func persisted(t testing.TB, st *v1alpha1.WorkflowRunStatus) *v1alpha1.WorkflowRunStatus {
	t.Helper()
	raw, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var back v1alpha1.WorkflowRunStatus
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*st, back); diff != "" {
		t.Fatalf("status changes in a round trip through JSON (-written +read):\n%s", diff)
	}
	return &back
}

func clockText(at time.Time) string { return at.UTC().Format("15:04:05.999Z") }

// line leaves no space at the end of a line, since editors take them away.
func (s *story) line(format string, args ...any) {
	s.out.WriteString(strings.TrimRight(fmt.Sprintf("    "+format, args...), " ") + "\n")
}

func (s *story) write(fact string, results []Result, before *v1alpha1.WorkflowRunStatus, out *Decision) {
	s.out.WriteString(strings.TrimRight(clockText(s.now)+"  "+fact, " ") + "\n")
	for i, v := range out.Verdicts {
		s.line("result %s %s: %s", results[i].ID, results[i].Result.Status, v)
	}
	if out.Changed {
		s.changes(before, &out.Status)
	} else {
		s.line("no write")
	}
	for _, j := range out.Dispatch {
		s.line("dispatch %s to %s, until %s: %s", j.ID, j.Topic, clockText(j.Deadline), j.Input)
	}
	for _, c := range out.Create {
		s.line("create %s for step %s, inputs %s", c.Name, c.Step, bounds.Raw(c.Spec.Inputs))
	}
	for _, w := range out.Withdraw {
		s.line("withdraw %s from %s", w.ID, w.Topic)
	}
	for _, e := range out.Events {
		kind := "event"
		if e.Detail {
			kind = "step event"
		}
		s.line("%s %s %s: %s", kind, e.Type, e.Reason, e.Message)
	}
	if out.Delete {
		s.line("delete")
	}
	if !out.Wake.IsZero() {
		s.line("wake at %s", clockText(out.Wake))
	}
	s.out.WriteString("\n")
}

func fenceText(f *int64) string {
	if f == nil {
		return "none"
	}
	return fmt.Sprint(*f)
}

func (s *story) changes(before, after *v1alpha1.WorkflowRunStatus) {
	s.line("run: %s %s, fence %s", after.Phase, after.Progress, fenceText(after.Fence))
	for i := range after.Steps {
		now, was := after.Steps[i], v1alpha1.StepStatus{}
		if i < len(before.Steps) {
			was = before.Steps[i]
		}
		if cmp.Equal(was, now) {
			continue
		}
		s.line("step %s: %s -> %s%s", now.Name, orNone(string(was.Phase)), now.Phase, stepDetail(&now))
	}
	if e := after.Ending; e != nil && before.Ending == nil {
		s.line("ending: %s/%s since %s", e.Phase, e.Reason, clockText(e.AnnouncedAt.Time))
	}
	if after.Outputs != nil && before.Outputs == nil {
		s.line("outputs: %s", after.Outputs.Raw)
	}
	for _, c := range after.Conditions {
		if was := status.Condition(before, c.Type); was == nil || was.Status != c.Status || was.Reason != c.Reason || was.Message != c.Message {
			s.line("condition %s=%s/%s since %s: %s", c.Type, c.Status, c.Reason, clockText(c.LastTransitionTime.Time), c.Message)
		}
	}
}

func stepDetail(st *v1alpha1.StepStatus) string {
	var b strings.Builder
	if st.Attempt > 0 {
		fmt.Fprintf(&b, ", attempt %d", st.Attempt)
	}
	if st.Failures > 0 {
		fmt.Fprintf(&b, ", failures %d", st.Failures)
	}
	if st.DeadLetter != "" {
		fmt.Fprintf(&b, ", dead letter %s", st.DeadLetter)
	}
	if st.DelayedUntil != nil {
		fmt.Fprintf(&b, ", until %s", clockText(st.DelayedUntil.Time))
	}
	if a := st.Approval; a != nil {
		fmt.Fprintf(&b, ", %s by %q at %s: %q", a.Decision, a.Approver, clockText(a.DecidedAt.Time), a.Comment)
	}
	if c := st.ChildRun; c != nil {
		fmt.Fprintf(&b, ", child %s uid %s", c.Name, orNone(c.UID))
	}
	if st.NextAttemptAt != nil {
		fmt.Fprintf(&b, ", next at %s", clockText(st.NextAttemptAt.Time))
	}
	if f := st.ForEach; f != nil {
		fmt.Fprintf(&b, ", items %d begun, %d succeeded, %d failed (%s) of %d", f.Begun, f.Succeeded, f.Failed, f.FailedItems, f.Total)
		for _, g := range f.Groups {
			fmt.Fprintf(&b, "; %s %s attempt %d, failures %d", g.Items, g.Phase, g.Attempt, g.Failures)
			if g.NextAttemptAt != nil {
				fmt.Fprintf(&b, ", next at %s", clockText(g.NextAttemptAt.Time))
			}
		}
		if f.Outputs != nil {
			fmt.Fprintf(&b, "; holds %s", f.Outputs.Raw)
		}
	}
	if st.Output != nil {
		fmt.Fprintf(&b, ", output %s", st.Output.Raw)
	}
	if st.Error != nil {
		fmt.Fprintf(&b, ", error %s", report.ErrorText(st.Error))
	}
	return b.String()
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
