// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
)

// Values of fields that are absent in objects which did not pass an API server.
const (
	defaultTimeoutSeconds = 3600
	defaultParallel       = 20
)

// Kind is what a step is: the name of its field, as "approval" of a step that waits for one.
type Kind string

// Kinds of steps; those that wait without a worker are in package waits.
const (
	KindJob Kind = "job"
	KindRun Kind = "run" // a child run
)

// step is one step with its state and its place in the DAG.
type step struct {
	spec    *v1alpha1.Step
	finally bool // of spec.finally
	status  v1alpha1.StepStatus
	deps    []int    // steps that it depends on, in spec order
	unknown []string // names that it depends on and that are no step
}

// stepsOf gives each step of spec, then of finally, its status: the one it has, else Pending.
func stepsOf(run *v1alpha1.WorkflowRun) []step {
	index := map[string]int{}
	all := make([]step, len(run.Spec.Steps)+len(run.Spec.Finally))
	for i := range all {
		finally := i >= len(run.Spec.Steps)
		var s *v1alpha1.Step
		if finally {
			s = &run.Spec.Finally[i-len(run.Spec.Steps)]
		} else {
			s = &run.Spec.Steps[i]
		}
		all[i] = step{spec: s, finally: finally, status: v1alpha1.StepStatus{Name: s.Name, Phase: v1alpha1.StepPending}}
		if _, taken := index[s.Name]; !taken {
			index[s.Name] = i
		}
	}
	for i := range statusOf(run).Steps {
		s := &run.Status.Steps[i]
		if at, ok := index[s.Name]; ok {
			all[at].status = *s
		}
	}
	for i := range all {
		all[i].link(index, len(all))
	}
	return all
}

func (s *step) link(index map[string]int, steps int) {
	depends := map[int]bool{}
	for _, name := range s.spec.DependsOn {
		if at, ok := index[name]; ok {
			depends[at] = true
		} else {
			s.unknown = append(s.unknown, Printable(name, maxErrorChars))
		}
	}
	for at := range steps {
		if depends[at] {
			s.deps = append(s.deps, at)
		}
	}
}

func statusOf(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRunStatus {
	if run.Status == nil {
		return &v1alpha1.WorkflowRunStatus{}
	}
	return run.Status
}

func inFlight(p v1alpha1.StepPhase) bool {
	return p == v1alpha1.StepDispatched || p == v1alpha1.StepRunning
}

// passed says whether the steps that depend on this one may go on.
func (s *step) passed() bool {
	switch s.status.Phase {
	case v1alpha1.StepSucceeded, v1alpha1.StepSkipped:
		return true
	case v1alpha1.StepFailed:
		return s.spec.OnFailure == v1alpha1.FailureContinue
	default:
		return false
	}
}

func (s *step) kind() Kind {
	if k := waits.Of(s.spec); k != nil {
		return Kind(k.Field)
	}
	if s.spec.Run != nil {
		return KindRun
	}
	return KindJob
}

// takesPlace says whether the step is one of those that maxParallelSteps bounds.
func (s *step) takesPlace() bool { return s.kind() == KindJob || s.kind() == KindRun }

func (s *step) topic() string {
	if s.spec.Job == nil {
		return ""
	}
	return s.spec.Job.Topic
}

// timeout is when the attempt in flight fails, and the code with which; nil: none is in flight.
func (s *step) timeout() (at *time.Time, code string) {
	switch {
	case s.status.ChildRun != nil, s.status.ForEach != nil: // bounded by its own deadline, or item by item
		return nil, ""
	case s.status.Phase == v1alpha1.StepRunning && s.status.StartedAt != nil:
		return utc(s.status.StartedAt.Add(seconds(s.spec.TimeoutSeconds))), "Timeout"
	case inFlight(s.status.Phase) && s.status.DispatchedAt != nil:
		return utc(s.status.DispatchedAt.Add(seconds(s.spec.StartTimeoutSeconds))), "StartTimeout"
	default:
		return nil, ""
	}
}

func seconds(n int32) time.Duration {
	if n <= 0 {
		n = defaultTimeoutSeconds
	}
	return time.Duration(n) * time.Second
}

// waitsFor is the steps that a pending step waits for.
func (s *step) waitsFor(all []step) []string {
	var open []string
	for _, i := range s.deps {
		if !all[i].passed() {
			open = append(open, all[i].spec.Name)
		}
	}
	return open
}

// began is when the last attempt began, as far as is known: workers need not say so.
func (s *step) began() *time.Time {
	if s.status.StartedAt != nil {
		return microTime(s.status.StartedAt)
	}
	if s.status.Phase == v1alpha1.StepDispatched {
		return nil
	}
	return microTime(s.status.DispatchedAt)
}

// took is how long the last attempt worked, or works so far.
func (s *step) took(now time.Time) *time.Duration {
	from := s.began()
	if from == nil || s.status.Phase == v1alpha1.StepBackingOff {
		return nil
	}
	end := now
	if s.status.CompletedAt != nil {
		end = s.status.CompletedAt.Time
	}
	d := max(0, end.Sub(*from))
	return &d
}

func errorText(e *v1alpha1.StepError, n int) string {
	switch {
	case e == nil:
		return ""
	case e.Message == "":
		return Printable(e.Code, n)
	default:
		return Printable(e.Code+": "+e.Message, n)
	}
}

func failures(n int32) string {
	if n == 1 {
		return "1 failure"
	}
	return fmt.Sprintf("%d failures", n)
}

// pending says why a step has not begun; "" if it never will.
func (s *step) pending(run *v1alpha1.WorkflowRun, all []step, now time.Time) string {
	if statusOf(run).CompletedAt != nil {
		return ""
	}
	switch open := s.waitsFor(all); {
	case len(s.unknown) > 0:
		return "depends on " + names(s.unknown) + ", which is no step"
	case s.finally && statusOf(run).Ending == nil:
		return "runs when all other steps are over"
	case len(open) > 0:
		return "waits for " + names(open)
	case suspended(run):
		return suspender(run)
	case statusOf(run).Admission == nil || run.Status.Admission.AdmittedAt == nil:
		return "the run is not admitted"
	default:
		return s.toBegin(run, now)
	}
}

// toBegin says what a step waits for that may begin.
func (s *step) toBegin(run *v1alpha1.WorkflowRun, now time.Time) string {
	switch w := s.status.LockWait; {
	case w != nil:
		return "waits for lock " + Printable(w.Lock, maxErrorChars) + " since " + when(w.StartedAt.Time, now)
	case !s.wantsPlace():
		return "begins as soon as possible"
	default:
		return forPlace(run)
	}
}

func forPlace(run *v1alpha1.WorkflowRun) string {
	return fmt.Sprintf("waits for a place (maxParallelSteps %d)", parallel(run))
}

// wantsPlace says whether a step needs a place, and has none: one that holds locks has.
func (s *step) wantsPlace() bool { return s.takesPlace() && !dag.HasPlace(s.spec, &s.status) }

// lacksPlace says whether there is no place for a step that needs one.
func (s *step) lacksPlace(run *v1alpha1.WorkflowRun, all []step) bool {
	return s.wantsPlace() && active(all) >= parallel(run)
}

// active is how many steps have a place.
func active(all []step) (n int) {
	for i := range all {
		if dag.HasPlace(all[i].spec, &all[i].status) {
			n++
		}
	}
	return n
}

func parallel(run *v1alpha1.WorkflowRun) int {
	if run.Spec.MaxParallelSteps <= 0 {
		return defaultParallel
	}
	return int(run.Spec.MaxParallelSteps)
}

// also names the dependencies but the last one in spec order.
func (s *step) also(all []step) []string {
	var others []string
	for _, i := range s.deps[:max(0, len(s.deps)-1)] {
		others = append(others, all[i].spec.Name)
	}
	return others
}

func join(parts ...string) string {
	var said []string
	for _, p := range parts {
		if p != "" {
			said = append(said, p)
		}
	}
	return strings.Join(said, "; ")
}
