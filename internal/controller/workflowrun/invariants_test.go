// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/itemset"
)

// checkStatus returns what is wrong with the status of a run, whatever happened to it before.
func checkStatus(run *v1alpha1.WorkflowRun) []string {
	if run.Unwritten() {
		return nil
	}
	c := &statusCheck{run: run, st: run.Status}
	c.conditions()
	c.writer()
	c.steps()
	return c.wrong
}

type statusCheck struct {
	run   *v1alpha1.WorkflowRun
	st    *v1alpha1.WorkflowRunStatus
	wrong []string
}

func (c *statusCheck) must(ok bool, format string, args ...any) {
	if !ok {
		c.wrong = append(c.wrong, fmt.Sprintf("run %s: ", c.run.Name)+fmt.Sprintf(format, args...))
	}
}

func (c *statusCheck) is(kind string, want metav1.ConditionStatus) {
	if got := meta.FindStatusCondition(c.st.Conditions, kind); got != nil {
		c.must(got.Status == want, "phase %s: condition %s is %s, not %s", c.st.Phase, kind, got.Status, want)
	}
}

func (c *statusCheck) conditions() {
	for _, kind := range []string{
		v1alpha1.ConditionAdmitted, v1alpha1.ConditionRunLockRenewed, v1alpha1.ConditionRunLockAbandoned, v1alpha1.ConditionDeadLettered,
		v1alpha1.ConditionFinished, v1alpha1.ConditionSucceeded, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled,
	} {
		got := meta.FindStatusCondition(c.st.Conditions, kind)
		c.must(got != nil, "condition %s is missing", kind)
		if got != nil {
			c.must(got.Reason != "" && got.ObservedGeneration <= c.run.Generation, "condition %s: %+v", kind, got)
		}
	}
	c.must(len(c.st.Conditions) == 8, "%d conditions", len(c.st.Conditions))
	switch c.st.Phase {
	case v1alpha1.RunSucceeded:
		c.end(metav1.ConditionTrue)
	case v1alpha1.RunFailed, v1alpha1.RunCancelled, v1alpha1.RunTimedOut:
		c.end(metav1.ConditionFalse)
	case v1alpha1.RunPending, v1alpha1.RunQueued, v1alpha1.RunRunning, v1alpha1.RunSuspended:
		c.must(c.st.CompletedAt == nil, "phase %s has completedAt", c.st.Phase)
		c.is(v1alpha1.ConditionFinished, metav1.ConditionUnknown)
		c.is(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown)
		c.is(v1alpha1.ConditionReconciling, metav1.ConditionTrue)
		c.is(v1alpha1.ConditionStalled, metav1.ConditionFalse)
	default:
		c.must(false, "phase %q", c.st.Phase)
	}
}

func (c *statusCheck) end(won metav1.ConditionStatus) {
	lost := metav1.ConditionTrue
	if won == metav1.ConditionTrue {
		lost = metav1.ConditionFalse
	}
	c.must(c.st.CompletedAt != nil, "phase %s without completedAt", c.st.Phase)
	c.is(v1alpha1.ConditionFinished, metav1.ConditionTrue)
	c.is(v1alpha1.ConditionSucceeded, won)
	c.is(v1alpha1.ConditionReconciling, metav1.ConditionFalse)
	c.is(v1alpha1.ConditionStalled, lost)
}

// writer: only the news that the lock cannot be had may be written without a fence.
func (c *statusCheck) writer() {
	if c.st.Fence == nil {
		reason := meta.FindStatusCondition(c.st.Conditions, v1alpha1.ConditionRunLockRenewed)
		c.must(reason != nil && (reason.Reason == v1alpha1.ReasonLockStoreUnavailable || reason.Reason == v1alpha1.ReasonLockBusy), "no fence")
		return
	}
	c.must(*c.st.Fence > 0, "fence %d", *c.st.Fence)
	c.must(c.st.Lock != nil && c.st.Lock.LeaseID != "" && c.st.Lock.LeaseID != "prospect", "lock %+v", c.st.Lock)
	c.must(c.st.Tenant != "", "no tenant")
	if c.st.Parent != nil {
		c.must(c.st.Admission == nil || c.st.Admission.Policy == "", "a child that is counted at the gate of %s", c.run.Name)
	}
}

func (c *statusCheck) steps() {
	if len(c.st.Steps) == 0 {
		return
	}
	phases := map[string]v1alpha1.StepPhase{}
	for i := range c.st.Steps {
		phases[c.st.Steps[i].Name] = c.st.Steps[i].Phase
	}
	passed, active := 0, 0
	spec := append(slices.Clone(c.run.Spec.Steps), c.run.Spec.Finally...)
	goesOn := map[string]bool{}
	for i := range spec {
		goesOn[spec[i].Name] = spec[i].OnFailure == v1alpha1.FailureContinue
	}
	for i := range c.st.Steps {
		s := &c.st.Steps[i]
		c.must(i < len(c.run.Spec.Steps) || s.Attempt == 0 || c.st.Ending != nil, "finally step %s began before the end was announced", s.Name)
		c.step(s)
		if isInFlight(s.Phase) {
			active++
		}
		if isEnded(s.Phase) && s.Phase != v1alpha1.StepCancelled {
			passed++
		}
		for _, dep := range spec[i].DependsOn {
			ready := phases[dep] == v1alpha1.StepSucceeded || phases[dep] == v1alpha1.StepSkipped || (phases[dep] == v1alpha1.StepFailed && goesOn[dep])
			c.must(s.Attempt == 0 || ready, "step %s began before %s (%s)", s.Name, dep, phases[dep])
		}
	}
	c.must(c.st.Progress == fmt.Sprintf("%d/%d", passed, len(spec)), "progress %s, want %d", c.st.Progress, passed)
	c.must(active <= int(c.run.Spec.MaxParallelSteps), "%d steps in flight", active)
}

// items: each is in one group at most, and all are accounted for.
func (c *statusCheck) items(s *v1alpha1.StepStatus) {
	f := s.ForEach
	if f == nil {
		return
	}
	all := itemset.Set{}
	for _, g := range f.Groups {
		set, err := itemset.Parse(g.Items)
		c.must(err == nil, "step %s: items %q: %v", s.Name, g.Items, err)
		before := all.Len()
		all = all.Union(set)
		c.must(all.Len() == before+set.Len(), "step %s: items %s are in two groups", s.Name, g.Items)
	}
	over := int(f.Succeeded + f.Failed)
	c.must(all.Len()+over == int(f.Begun) || (isEnded(s.Phase) && over <= int(f.Begun)), "step %s: items %+v", s.Name, f)
	c.must(!isEnded(s.Phase) || (f.Groups == nil && f.OutputRefs == nil && f.Outputs == nil), "step %s: is over, items %+v", s.Name, f)
}

func (c *statusCheck) step(s *v1alpha1.StepStatus) {
	id := ""
	if s.Attempt > 0 {
		id = fmt.Sprintf("%s/%s/-/%d", c.run.UID, s.Name, s.Attempt)
	}
	c.must(s.JobID == id, "step %s: job id %q, want %q", s.Name, s.JobID, id)
	c.must(isEnded(s.Phase) || c.st.CompletedAt == nil, "step %s is %s in a finished run", s.Name, s.Phase)
	c.must(s.ChildRun == nil || (s.Attempt == 0 && s.StartedAt != nil), "step %s: child run, %+v", s.Name, s)
	c.must(!isInFlight(s.Phase) || s.ForEach != nil || s.ChildRun != nil || (s.Attempt > 0 && s.DispatchedAt != nil), "step %s: in flight, %+v", s.Name, s)
	c.must((s.Phase == v1alpha1.StepBackingOff) == (s.NextAttemptAt != nil), "step %s: %s, next attempt at %v", s.Name, s.Phase, s.NextAttemptAt)
	c.must(isEnded(s.Phase) == (s.CompletedAt != nil), "step %s: %s, completed at %v", s.Name, s.Phase, s.CompletedAt)
	c.items(s)
	c.must(s.Output == nil || s.Phase == v1alpha1.StepSucceeded, "step %s: %s with an output", s.Name, s.Phase)
}
