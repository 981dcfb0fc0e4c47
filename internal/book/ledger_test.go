// SPDX-License-Identifier: Apache-2.0

package book

import (
	"slices"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// A worker ended after its result was stored and before it knew that. The operator applied the
// result and took the job back, so no other worker answered.
//
// mutation: stored that counts what was confirmed only makes the first case fail, one that counts
// all attempts the second.
func TestAnAttemptIsAnsweredOnceItsResultHasAnEffect(t *testing.T) {
	for name, c := range map[string]struct {
		applied bool
		want    int
	}{"its result was applied": {true, 2}, "its result came nowhere": {false, 1}} {
		t.Run(name, func(t *testing.T) {
			p := MakePlan(1, Size{Runs: 2, Steps: 1})
			l := New()
			for _, job := range []string{"first", "second"} {
				l.take(job, Succeeds, 1)
				l.offer(job, job+"#1")
			}
			l.confirm("first", false)
			ended := func(job string) *v1alpha1.WorkflowRun {
				s := done(v1alpha1.StepStatus{Name: StepName(0), Attempt: 1, JobID: job}, job+"#1", 1)
				return &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{s}}}
			}
			l.See(nil, ended("first"))
			if c.applied {
				l.See(nil, ended("second"))
			}
			if got := l.Figures().Answered; got != c.want {
				t.Errorf("%d are answered, want %d", got, c.want)
			}
			tells := slices.ContainsFunc(l.Verdict(p, nil), func(s string) bool { return strings.HasSuffix(s, "were answered, 2 were planned") })
			if tells == c.applied {
				t.Errorf("it tells of a missing one: %v", tells)
			}
		})
	}
}
