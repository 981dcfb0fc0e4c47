// SPDX-License-Identifier: Apache-2.0

package waits

import (
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// Kind is one kind of step that waits. All functions but Answer and Begin are there.
type Kind struct {
	Field  string             // of the step: "approval"
	Phase  v1alpha1.StepPhase // of a step that waits
	Reason string             // of Succeeded=Unknown while nothing but such steps goes on
	// Outside says that somebody or something has to act: that is named before attempts
	// that back off.
	Outside bool
	// Finally says whether spec.finally may have such steps.
	Finally bool

	// Is says whether a step is of the kind.
	Is func(*v1alpha1.Step) bool
	// Problem is what is wrong with the field, which ends in at; "": nothing.
	Problem func(step *v1alpha1.Step, created metav1.Time) (at, problem string)
	// Bytes is how much free text the field has.
	Bytes func(*v1alpha1.Step) int

	// Begin notes in status what End needs beside startedAt. Nil: nothing.
	Begin func(step *v1alpha1.Step, s *v1alpha1.StepStatus, now time.Time)
	// End is when the wait is over though no signal came; zero: never. It takes any
	// step and status.
	End func(*v1alpha1.Step, *v1alpha1.StepStatus) time.Time
	// Answer is what a signal makes of the step. Nil: no signal concerns it.
	Answer func(*v1alpha1.StepStatus, facts.Signal) Outcome
	// TimeOut is what becomes of a step when End has come.
	TimeOut func(step *v1alpha1.Step, s *v1alpha1.StepStatus, end time.Time) Outcome

	// Began is the event of a step that begins to wait.
	Began func(*v1alpha1.Step, *v1alpha1.StepStatus) Event
	// Text says what the step does and since or until when; it goes on after the step's name.
	Text func(s *v1alpha1.StepStatus, at func(*metav1.MicroTime) string) string
	// Means is what Reason means; it goes on after "the run".
	Means string
	// Doing is what a step does, in the words of kubectl syncopate: "waits for an approval".
	Doing string
	// Then and Over say what End brings; Over has the step's name.
	Then, Over func(*v1alpha1.Step) string
}

// Outcome is how a wait ended: failed with Error, else succeeded with Output.
type Outcome struct {
	Output   json.RawMessage          // nil: none
	Error    *v1alpha1.StepError      // nil: it succeeded
	Approval *v1alpha1.ApprovalStatus // of an approval
	Event    Event                    // of a success; a failure has that of failed steps
}

// Event is what people are told of one transition, which is as it should be.
type Event struct{ Reason, Message string }

// All are the kinds in the order in which texts name their fields.
var All = []*Kind{&approval, &delay}

// Of is the kind of a step; nil: it is none that waits.
func Of(step *v1alpha1.Step) *Kind {
	return first(func(k *Kind) bool { return k.Is(step) })
}

// In is the kind whose steps wait in a phase; nil: nothing that waits has it.
func In(phase v1alpha1.StepPhase) *Kind {
	for _, k := range All {
		if k.Phase == phase {
			return k
		}
	}
	return nil
}

// For is the kind of a reason of Succeeded=Unknown; nil: it is that of no kind.
func For(reason string) *Kind {
	return first(func(k *Kind) bool { return k.Reason == reason })
}

// First is the first kind that steps wait in, given how many steps are in each phase; nil: in none.
func First(in map[v1alpha1.StepPhase]int, outside bool) *Kind {
	return first(func(k *Kind) bool { return k.Outside == outside && in[k.Phase] > 0 })
}

func first(is func(*Kind) bool) *Kind {
	if i := slices.IndexFunc(All, is); i >= 0 {
		return All[i]
	}
	return nil
}

// Fields names the fields of all kinds, or of those that spec.finally may have.
func Fields(finally bool) []string {
	var names []string
	for _, k := range All {
		if k.Finally || !finally {
			names = append(names, k.Field)
		}
	}
	return names
}

// StepEnd is when a step that waits for something is not to wait any longer; zero: it does not
// wait, or for ever.
func StepEnd(step *v1alpha1.Step, s *v1alpha1.StepStatus) time.Time {
	if k := In(s.Phase); k != nil {
		return k.End(step, s)
	}
	return status.AttemptEnd(step, s)
}

// after is a number of seconds after the step began; zero: there is no bound, or it did not begin.
func after(s *v1alpha1.StepStatus, seconds *int32) time.Time {
	if seconds == nil || s.StartedAt == nil {
		return time.Time{}
	}
	return s.StartedAt.Add(bounds.Seconds(*seconds))
}
