// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

var epoch = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func at(second int) *metav1.Time {
	return &metav1.Time{Time: epoch.Add(time.Duration(second) * time.Second)}
}

func micro(second int) *metav1.MicroTime {
	return &metav1.MicroTime{Time: epoch.Add(time.Duration(second) * time.Second)}
}

// story is a run in all states that it has, one for each write: a retry, a fan-out, an approval, a
// child run, and a step that fails when another has already ended the run.
func story() []*v1alpha1.WorkflowRun {
	job := &v1alpha1.Job{Topic: "demo.echo"}
	run := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "nightly-1", UID: "6a1f9f4e-8f0f-4a63-9f0e-2b7c9f1d3a55", CreationTimestamp: *at(2),
			Labels:      map[string]string{v1alpha1.LabelSchedule: "nightly"},
			Annotations: map[string]string{v1alpha1.AnnotationSlot: epoch.Format(time.RFC3339)},
		},
		Spec: v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{
			{Name: "flaky", Job: job, Locks: []v1alpha1.LockRequest{{}}},
			{Name: "fan", Job: job, ForEach: &v1alpha1.ForEach{}, DependsOn: []string{"flaky"}},
			{Name: "sign", Approval: &v1alpha1.Approval{}, DependsOn: []string{"fan"}},
			{Name: "below", Run: &v1alpha1.ChildRun{}, DependsOn: []string{"sign"}},
		}},
	}
	var all []*v1alpha1.WorkflowRun
	write := func(change func(st *v1alpha1.WorkflowRunStatus)) {
		run = run.DeepCopy()
		if run.Status == nil {
			run.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{{Name: "flaky", Phase: "Pending"}, {Name: "fan", Phase: "Pending"}, {Name: "sign", Phase: "Pending"}, {Name: "below", Phase: "Pending"}}}
		}
		change(run.Status)
		all = append(all, run)
	}
	write(func(st *v1alpha1.WorkflowRunStatus) {
		st.Admission = &v1alpha1.AdmissionStatus{QueuedAt: at(2)}
	})
	write(func(st *v1alpha1.WorkflowRunStatus) {
		st.Admission.AdmittedAt = at(3)
		st.Steps[0].Phase, st.Steps[0].Attempt, st.Steps[0].DispatchedAt = v1alpha1.StepDispatched, 1, micro(4)
	})
	write(func(st *v1alpha1.WorkflowRunStatus) {
		st.Steps[0].Phase, st.Steps[0].NextAttemptAt, st.Steps[0].Error = v1alpha1.StepBackingOff, micro(6), &v1alpha1.StepError{Code: "Flaky"}
	})
	write(func(st *v1alpha1.WorkflowRunStatus) {
		st.Steps[0].Phase, st.Steps[0].Attempt, st.Steps[0].DispatchedAt, st.Steps[0].NextAttemptAt = v1alpha1.StepRunning, 2, micro(6), nil
	})
	write(func(st *v1alpha1.WorkflowRunStatus) {
		st.Steps[0].Phase, st.Steps[0].CompletedAt = v1alpha1.StepSucceeded, micro(8)
		st.Steps[1].Phase, st.Steps[1].DispatchedAt, st.Steps[1].StartedAt, st.Steps[1].ForEach = v1alpha1.StepRunning, micro(8), micro(8), &v1alpha1.ForEachStatus{Total: 3, Begun: 3}
	})
	write(func(st *v1alpha1.WorkflowRunStatus) {
		st.Steps[1].Phase, st.Steps[1].CompletedAt, st.Steps[1].ForEach.Succeeded = v1alpha1.StepSucceeded, micro(9), 3
		st.Steps[2].Phase, st.Steps[2].StartedAt = v1alpha1.StepWaiting, micro(9)
	})
	write(func(st *v1alpha1.WorkflowRunStatus) {
		st.Steps[2].Phase, st.Steps[2].CompletedAt, st.Steps[2].Approval = v1alpha1.StepSucceeded, micro(11), &v1alpha1.ApprovalStatus{Decision: v1alpha1.Approve, Approver: "ann"}
		st.Steps[3].Phase, st.Steps[3].StartedAt, st.Steps[3].ChildRun = v1alpha1.StepRunning, micro(11), &v1alpha1.ChildRunStatus{Name: "nightly-1-below"}
	})
	write(func(st *v1alpha1.WorkflowRunStatus) {
		st.Steps[3].Phase, st.Steps[3].CompletedAt = v1alpha1.StepSucceeded, micro(13)
		st.Phase, st.CompletedAt = v1alpha1.RunSucceeded, at(13)
	})
	return all
}

// told are the spans of a story, each as its writer sends it.
func told(t *testing.T, all []*v1alpha1.WorkflowRun) map[SpanID]Span {
	t.Helper()
	spans := map[SpanID]Span{}
	var was *v1alpha1.WorkflowRun
	for _, now := range all {
		for _, s := range Ended(was, now, 100) {
			if before, twice := spans[s.ID]; twice {
				t.Errorf("twice: %s and %s", before.Name, s.Name)
			}
			spans[s.ID] = s
		}
		was = now
	}
	return spans
}

// drawn are spans as a tree, with their seconds.
func drawn(spans map[SpanID]Span, parent SpanID, indent string) (lines []string) {
	var here []Span
	for _, s := range spans {
		if s.Parent == parent {
			here = append(here, s)
		}
	}
	for len(here) > 0 {
		first := 0
		for i := range here {
			if here[i].Start.Before(here[first].Start) || (here[i].Start.Equal(here[first].Start) && here[i].Name < here[first].Name) {
				first = i
			}
		}
		s := here[first]
		here = append(here[:first], here[first+1:]...)
		line := indent + s.Name + " " + s.Start.Format("5") + "-" + s.End.Format("5")
		if s.Failed {
			line += " failed " + s.Problem
		}
		lines = append(append(lines, line), drawn(spans, s.ID, indent+"  ")...)
	}
	return lines
}

const wholeStory = `schedule nightly 0-2
  run 2-13
    wait for admission 2-3
    flaky 3-8
      wait for locks 3-4
      attempt 4-6 failed Flaky
      attempt 6-8
    fan 8-9
      items 8-9
    sign 9-11
      approval 9-11
    below 11-13
      child run 11-13`

// mutations: no span of an attempt that is followed by another, or an attempt whose parent is the
// run, makes this fail.
func TestATraceIsOneTree(t *testing.T) {
	spans := told(t, story())
	got := drawn(spans, SpanID{}, "")
	if diff := cmp.Diff(strings.Split(wholeStory, "\n"), got); diff != "" {
		t.Error(diff)
	}
	if len(got) != len(spans) {
		t.Errorf("%d of %d spans hang together", len(got), len(spans))
	}
}

// mutation: ids that are drawn at random make this fail.
func TestSpansThatAreMadeAgainAreTheSame(t *testing.T) {
	all := story()
	spans := told(t, all)
	for i, run := range all {
		for _, s := range Ended(nil, run, 100) {
			if diff := cmp.Diff(spans[s.ID], s); diff != "" {
				t.Errorf("write %d: %s: %s", i, s.Name, diff)
			}
		}
	}
	for crash := range all { // the process dies before it sends what this write ended; the next one finds the run
		again := map[SpanID]Span{}
		for i, now := range all {
			var was *v1alpha1.WorkflowRun
			if i > 0 && i != crash {
				was = all[i-1]
			}
			for _, s := range Ended(was, now, 100) {
				again[s.ID] = s
			}
		}
		if diff := cmp.Diff(spans, again); diff != "" {
			t.Errorf("crash after write %d: %s", crash, diff)
		}
	}
}

func size(s *Span) int {
	n := len(s.Name) + len(s.Problem)
	for _, a := range s.Attributes {
		n += len(a.Key) + len(a.Text)
	}
	return n
}

// mutations: texts as long as users have them, or a span of a slot that is no time,
// makes this fail.
func TestTextsOfUsersDoNotFillTheQueueOfAllTenants(t *testing.T) {
	t.Parallel()
	const large = 200 << 10
	for name, slot := range map[string]string{
		"no time":            strings.Repeat("é", large/2),
		"a time of any size": epoch.Format("2006-01-02T15:04:05") + "." + strings.Repeat("0", large) + "Z",
	} {
		all := story()
		run := all[len(all)-1]
		run.Annotations[v1alpha1.AnnotationSlot] = slot
		run.Labels[v1alpha1.LabelSchedule] = "nightly"
		run.Status.Tenant = strings.Repeat("é", large/2)
		var schedules []Span
		for _, s := range Ended(nil, run, 100) {
			if n := size(&s); n >= 1024 {
				t.Errorf("%s: span %.20q has %d bytes", name, s.Name, n)
			}
			if strings.HasPrefix(s.Name, "schedule") {
				schedules = append(schedules, s)
			}
		}
		if want := strings.HasSuffix(slot, "Z"); (len(schedules) == 1) != want {
			t.Errorf("%s: spans of a schedule: %v", name, schedules)
		}
	}
}

// Creation, admission and the end of a run are stored in whole seconds, what steps
// do in microseconds.
//
// mutations: a wait that begins with the second of the admission, and a run that ends with the
// second of its end, make it fail.
func TestNoWaitIsToldWithinASecond(t *testing.T) {
	for _, c := range []struct {
		dispatched, waited time.Duration
	}{
		{3400 * time.Millisecond, 0},                        // in the second of its admission
		{7 * time.Second, 3*time.Second + time.Microsecond}, // long after
		{2*time.Second + time.Millisecond, 0},               // by a clock that is behind
	} {
		run := story()[0].DeepCopy()
		run.CreationTimestamp = *at(2)
		run.Status.Steps = []v1alpha1.StepStatus{{
			Name: "flaky", Phase: v1alpha1.StepSucceeded, Attempt: 1, DispatchedAt: &metav1.MicroTime{Time: epoch.Add(c.dispatched)},
			CompletedAt: &metav1.MicroTime{Time: epoch.Add(9600 * time.Millisecond)},
		}}
		run.Status.Admission.AdmittedAt, run.Status.CompletedAt, run.Status.Phase = at(3), at(9), v1alpha1.RunSucceeded
		for _, s := range Ended(nil, run, 100) {
			switch s.Name {
			case "wait for locks":
				if got := s.End.Sub(s.Start); got != c.waited {
					t.Errorf("dispatched after %s: waited %s, want %s", c.dispatched, got, c.waited)
				}
			case "run", "flaky":
				if got := s.End.Sub(epoch); got != 9600*time.Millisecond {
					t.Errorf("%s ends after %s", s.Name, got)
				}
				if s.Start.Sub(epoch) > c.dispatched {
					t.Errorf("%s begins after its attempt, at %s", s.Name, s.Start.Sub(epoch))
				}
			}
		}
	}
}

// mutation: a trace of its own for a run with an annotation makes this fail.
func TestARunIsBelowTheSpanThatItsAnnotationNames(t *testing.T) {
	parent := story()[7]
	child := story()[7]
	child.UID, child.Labels = "b", nil
	child.Annotations = map[string]string{v1alpha1.AnnotationTraceparent: OfChild(parent, "below", 100).String()}
	for _, s := range Ended(nil, child, 100) {
		if s.Trace != Of(parent, 100).Trace {
			t.Errorf("%s is in another trace", s.Name)
		}
		if s.Name == "run" && s.Parent != OfChild(parent, "below", 100).Span {
			t.Errorf("the run is below %x", s.Parent)
		}
	}
	off := Of(parent, 100)
	off.Sampled = false
	child.Annotations[v1alpha1.AnnotationTraceparent] = off.String()
	if n := len(Ended(nil, child, 100)); n != 0 {
		t.Errorf("%d spans of a trace that is not collected", n)
	}
}

// mutation: a traceparent with a zero id that is taken makes this fail.
func TestTraceparentsAreReadStrictly(t *testing.T) {
	const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	if c, ok := Parse(good); !ok || c.String() != good {
		t.Errorf("%v %v", c, ok)
	}
	for _, text := range []string{
		"01" + good[2:], "01" + good[2:] + "-more",
	} {
		if _, ok := Parse(text); !ok {
			t.Errorf("%s: refused", text)
		}
	}
	for _, text := range []string{
		"", "00", good + "-", good + "x", "ff" + good[2:], strings.ToUpper(good), good[:54] + "g", "01" + good[2:] + "x",
		"00-" + strings.Repeat("0", 32) + good[35:], good[:36] + strings.Repeat("0", 16) + "-01", strings.ReplaceAll(good, "-", "_"),
	} {
		if _, ok := Parse(text); ok {
			t.Errorf("%q: taken", text)
		}
	}
}

// mutation: a percent that is ignored makes this fail.
func TestOfManyTracesAPartIsCollected(t *testing.T) {
	run := &v1alpha1.WorkflowRun{}
	counts := map[int]int{}
	for i := range 2000 {
		run.UID = types.UID(strconv.Itoa(i))
		for _, percent := range []int{0, 25, 100} {
			if Of(run, percent).Sampled {
				counts[percent]++
			}
		}
	}
	if counts[0] != 0 || counts[100] != 2000 || counts[25] < 400 || counts[25] > 600 {
		t.Errorf("%v", counts)
	}
}
