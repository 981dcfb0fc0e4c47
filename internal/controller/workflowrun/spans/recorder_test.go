// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/traces"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// sent is a sender.
type sent struct{ spans []traces.Span }

func (s *sent) Send(spans []traces.Span) { s.spans = append(s.spans, spans...) }

// mutation: Job, or another call, that makes what it says before it looks whether there are traces
// makes this fail.
func TestWithoutTracesNothingIsAllocated(t *testing.T) {
	var none *Recorder
	run := ended(time.Now())
	id := protocol.JobID{RunUID: "u", Step: "a", Item: protocol.NoItem, Attempt: 1}
	if n := testing.AllocsPerRun(100, func() {
		none.Wrote(run, run)
		none.Found(run)
		none.Again(run)
		if none.Job(run, id)+none.Child(run, "a") != "" {
			t.Error("there is a place in a trace")
		}
	}); n != 0 {
		t.Errorf("%f allocations", n)
	}
}

// ended is a run that took a minute.
func ended(end time.Time) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{}
	run.UID, run.CreationTimestamp = "u", metav1.NewTime(end.Add(-time.Minute))
	run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunSucceeded, CompletedAt: &metav1.Time{Time: end}}
	return run
}

// Whoever takes a run over sends what may not have been sent: not what this process wrote itself,
// and not what is long over.
//
// mutations: Found without wrote, or Again without its look at the times, makes this fail.
func TestWhatIsSentAgain(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	clk := clocktesting.NewFakePassiveClock(now)
	mine := ended(now)
	mine.Status.Lock = &v1alpha1.RunLockStatus{Holder: "me", AcquiredAt: &metav1.Time{Time: now}}
	earlier := ended(now) // by a process of the same name that died
	earlier.Status.Lock = &v1alpha1.RunLockStatus{Holder: "me", AcquiredAt: &metav1.Time{Time: now.Add(-time.Hour)}}
	under := ended(now)
	under.Status.CompletedAt = nil
	under.Status.Admission = &v1alpha1.AdmissionStatus{
		QueuedAt: &metav1.Time{Time: now.Add(-time.Hour)}, AdmittedAt: &metav1.Time{Time: now.Add(-50 * time.Minute)},
	}
	for name, c := range map[string]struct {
		run  *v1alpha1.WorkflowRun
		want int
	}{
		"of another process": {ended(now), 1}, "of this process": {mine, 0}, "of an earlier one": {earlier, 1},
		"over for less than two minutes": {ended(now.Add(-119 * time.Second)), 1}, // as docs/tracing.md says
		"over for more":                  {ended(now.Add(-121 * time.Second)), 0},
		"long over":                      {ended(now.Add(-2 * horizon)), 0}, "under way since long": {under, 0}, "not begun": {&v1alpha1.WorkflowRun{}, 0},
	} {
		to := &sent{}
		New(to, 100, clk, "me").Found(c.run)
		if len(to.spans) != c.want {
			t.Errorf("%s: %d spans", name, len(to.spans))
		}
	}
}
