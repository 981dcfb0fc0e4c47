// SPDX-License-Identifier: Apache-2.0

package book

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// story is the life of one run with one step, written by hand: what was published, and the versions
// of its status.
type story struct {
	plan     []Ending
	attempts map[string]*Attempt
	versions []v1alpha1.StepStatus
}

func published(kind Ending, values ...string) *Attempt {
	a := &Attempt{Kind: kind, Values: map[string]bool{}, Acked: true}
	for _, v := range values {
		a.Values[v] = true
	}
	return a
}

func at(second int) *metav1.MicroTime {
	t := metav1.NewMicroTime(time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC))
	return &t
}

func dispatched(attempt int32) v1alpha1.StepStatus {
	return v1alpha1.StepStatus{Name: "step", Phase: v1alpha1.StepDispatched, Attempt: attempt, JobID: jobNumber(attempt)}
}

func jobNumber(attempt int32) string { return fmt.Sprintf("job-%d", attempt) }

func failed(s v1alpha1.StepStatus, failures int32, value string, next int) v1alpha1.StepStatus {
	s.Phase, s.Failures, s.NextAttemptAt = v1alpha1.StepBackingOff, failures, at(next)
	s.Error = &v1alpha1.StepError{Code: "Planned", Message: value}
	return s
}

func redispatched(s v1alpha1.StepStatus) v1alpha1.StepStatus {
	s.Attempt++
	s.Phase, s.JobID, s.NextAttemptAt = v1alpha1.StepDispatched, jobNumber(s.Attempt), nil
	return s
}

func done(s v1alpha1.StepStatus, value string, second int) v1alpha1.StepStatus {
	s.Phase, s.Error, s.CompletedAt = v1alpha1.StepSucceeded, nil, at(second)
	s.Output = &runtime.RawExtension{Raw: []byte(`{"value":"` + value + `"}`)}
	return s
}

func (s story) account() Account {
	a := Account{Plan: map[string]map[string][]Ending{"run": {"step": s.plan}}, Attempts: s.attempts}
	var was *v1alpha1.WorkflowRun
	for i := range s.versions {
		next := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: "run"}, Status: &v1alpha1.WorkflowRunStatus{
			Phase: v1alpha1.RunSucceeded, Steps: []v1alpha1.StepStatus{s.versions[i]},
		}}
		a.Effects = append(a.Effects, effects(was, next)...)
		was = next
	}
	if was != nil {
		a.Finals = []v1alpha1.WorkflowRun{*was}
	}
	return a
}

// TestTheJudgeFindsPlantedDefects shows that the judge can say no, each time for its reason.
func TestTheJudgeFindsPlantedDefects(t *testing.T) {
	first := dispatched(1)
	backedOff := failed(first, 1, "a", 10)
	second := redispatched(backedOff)
	end := done(second, "b", 20)
	good := map[string]*Attempt{"job-1": published(fails, "a", "a2"), "job-2": published(Succeeds, "b", "b2")}
	for name, c := range map[string]struct {
		versions []v1alpha1.StepStatus
		attempts map[string]*Attempt
		want     []string // parts of what it says, in order; empty: nothing
	}{
		"nothing is wrong with a failure and a success": {
			versions: []v1alpha1.StepStatus{first, backedOff, second, end},
		},
		"nothing is wrong with a copy that came first": {
			versions: []v1alpha1.StepStatus{first, failed(first, 1, "a2", 10), redispatched(failed(first, 1, "a2", 10)), done(second, "b2", 20)},
		},
		"an attempt may end and the next one begin in one write": {
			versions: []v1alpha1.StepStatus{first, second, end},
		},
		"a result that was confirmed and never applied is lost": {
			versions: []v1alpha1.StepStatus{first, backedOff, second},
			want:     []string{"lost: job job-2", "Dispatched, attempt 2, 1 failures; planned are Succeeded", `value "a" of job job-2`},
		},
		"a copy that replaces the output is a second effect": {
			versions: []v1alpha1.StepStatus{first, backedOff, second, end, done(second, "b2", 20)},
			want:     []string{"2 times: job job-2"},
		},
		"the same result once more shows in the time of the end": {
			versions: []v1alpha1.StepStatus{first, backedOff, second, end, done(second, "b", 21)},
			want:     []string{"2 times: job job-2"},
		},
		"the same failure once more shows in the wait": {
			versions: []v1alpha1.StepStatus{first, backedOff, failed(first, 1, "a", 11), second, end},
			want:     []string{`job job-1 was answered "Failed" and ended as "Retry"`, "2 times: job job-1"},
		},
		"a wait that a wrong clock made too long may be shortened": {
			versions: []v1alpha1.StepStatus{first, failed(first, 1, "a", 3600), backedOff, second, end},
		},
		"a wait that is gone without an attempt is not": {
			versions: []v1alpha1.StepStatus{first, backedOff, func() v1alpha1.StepStatus {
				s := backedOff
				s.NextAttemptAt = nil
				return s
			}(), second, end},
			want: []string{`job job-1 was answered "Failed" and ended as "Retry"`, "2 times: job job-1"},
		},
		"a failure that counts twice": {
			versions: []v1alpha1.StepStatus{first, failed(first, 2, "a", 10), redispatched(failed(first, 2, "a", 10)), func() v1alpha1.StepStatus {
				s := end
				s.Failures = 2
				return s
			}()},
			want: []string{`ended as "2 failures at once"`, "Succeeded, attempt 2, 2 failures; planned are Succeeded, 2, 1"},
		},
		"the late failure of the first attempt ends the second": {
			versions: []v1alpha1.StepStatus{first, backedOff, second, failed(second, 2, "a2", 30), redispatched(failed(second, 2, "a2", 30)), func() v1alpha1.StepStatus {
				s := done(dispatched(3), "c", 40)
				s.Failures = 2
				return s
			}()},
			want: []string{
				`job job-2 has the value "a2", which was never published for it`, "job job-3 ended (Succeeded, \"c\") though nobody published a result",
				"Succeeded, attempt 3, 2 failures; planned are Succeeded, 2, 1", `value "c" of job job-3`,
			},
		},
		"a success that nobody sent": {
			versions: []v1alpha1.StepStatus{first, backedOff, second, end},
			attempts: map[string]*Attempt{"job-1": published(fails, "a")},
			want:     []string{`job job-2 ended (Succeeded, "b") though nobody published a result`, `value "b" of job job-2`},
		},
		"a failure taken for a success": {
			versions: []v1alpha1.StepStatus{first, done(first, "a", 10)},
			attempts: map[string]*Attempt{"job-1": published(fails, "a")},
			want:     []string{`job job-1 was answered "Failed" and ended as "Succeeded"`, "Succeeded, attempt 1, 0 failures; planned are Succeeded, 2, 1"},
		},
		"a loss that is hidden by doing the job once more": {
			versions: []v1alpha1.StepStatus{first, backedOff, second, end},
			attempts: map[string]*Attempt{"job-1": published(fails, "a"), "job-2": func() *Attempt {
				a := published(Succeeds, "a lost one", "b")
				a.Dispatches = map[uint64]bool{7: true, 9: true}
				return a
			}()},
			want: []string{"dispatched 2 times: job job-2"},
		},
		"a run that is gone": {
			versions: nil,
			attempts: map[string]*Attempt{"job-1": published(fails, "a")},
			want:     []string{"lost: job job-1", "0 runs, 1 were planned"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.attempts == nil {
				c.attempts = good
			}
			wrong := Judge(story{plan: []Ending{fails, Succeeds}, attempts: c.attempts, versions: c.versions}.account())
			if len(wrong) != len(c.want) {
				t.Fatalf("%d problems, want %d:\n%s", len(wrong), len(c.want), strings.Join(wrong, "\n"))
			}
			for i, part := range c.want {
				if !strings.Contains(wrong[i], part) {
					t.Errorf("problem %q does not say %q", wrong[i], part)
				}
			}
		})
	}
}
