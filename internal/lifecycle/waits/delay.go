// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// delay waits for a time, and succeeds then. Status has that time from the beginning.
var delay = Kind{
	Field: "delay", Phase: v1alpha1.StepDelayed, Reason: v1alpha1.ReasonDelayed, Finally: true,

	Is:      func(step *v1alpha1.Step) bool { return step.Delay != nil },
	Problem: delayProblem,
	Bytes:   func(*v1alpha1.Step) int { return 0 },

	Begin: func(step *v1alpha1.Step, s *v1alpha1.StepStatus, now time.Time) {
		s.DelayedUntil = bounds.Micro(now.Add(bounds.Seconds(bounds.ValueOr(step.Delay.Seconds, 0))))
		if step.Delay.Until != nil {
			s.DelayedUntil = bounds.Micro(bounds.Writable(step.Delay.Until.Time)) // it may have begun before YearProblem was
		}
	},
	End: func(_ *v1alpha1.Step, s *v1alpha1.StepStatus) time.Time {
		if s.DelayedUntil == nil {
			return time.Time{}
		}
		return s.DelayedUntil.Time
	},
	TimeOut: func(_ *v1alpha1.Step, s *v1alpha1.StepStatus, _ time.Time) Outcome {
		return Outcome{Event: Event{"StepSucceeded", fmt.Sprintf("Step %s: its time has come", s.Name)}}
	},

	Began: func(_ *v1alpha1.Step, s *v1alpha1.StepStatus) Event {
		return Event{"StepDelayed", fmt.Sprintf("Step %s waits until %s", s.Name, bounds.TimeText(s.DelayedUntil))}
	},
	Text: func(s *v1alpha1.StepStatus, at func(*metav1.MicroTime) string) string {
		return "is delayed until " + at(s.DelayedUntil)
	},
	Means: "waits until a delay is over",
	Doing: "delayed",
	Then:  func(*v1alpha1.Step) string { return "goes on" },
	Over:  func(step *v1alpha1.Step) string { return fmt.Sprintf("the delay %s is over", step.Name) },
}

func delayProblem(step *v1alpha1.Step, created metav1.Time) (at, problem string) {
	switch d := step.Delay; {
	case (d.Seconds == nil) == (d.Until == nil):
		return "", "a delay needs exactly one of seconds and until"
	case d.Seconds != nil && *d.Seconds < 1:
		return ".seconds", fmt.Sprintf("%d is not positive", *d.Seconds)
	case d.Until != nil:
		return ".until", untilProblem(d.Until.Time, created.Time)
	}
	return "", ""
}

func untilProblem(until, created time.Time) string {
	if problem := bounds.YearProblem(until); problem != "" {
		return problem
	}
	if until.Before(created) {
		return fmt.Sprintf("%s is before the creation of the run at %s", until.UTC().Format(time.RFC3339), created.UTC().Format(time.RFC3339))
	}
	return ""
}
