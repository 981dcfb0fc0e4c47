// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Children names the child runs that a run's steps have under way.
func Children(run *v1alpha1.WorkflowRun) []string {
	var names []string
	for i := range statusOf(run).Steps {
		if s := &run.Status.Steps[i]; s.ChildRun != nil && inFlight(s.Phase) {
			names = append(names, s.ChildRun.Name)
		}
	}
	return names
}

// HasChildren says whether child runs of a run were made.
func HasChildren(run *v1alpha1.WorkflowRun) bool {
	return slices.ContainsFunc(statusOf(run).Steps, func(s v1alpha1.StepStatus) bool { return s.ChildRun != nil })
}

// family are the child runs of a run, by UID: what others may have of their names is no child.
type family map[string]*v1alpha1.WorkflowRun

func familyOf(children []v1alpha1.WorkflowRun) family {
	f := make(family, len(children))
	for i := range children {
		f[string(children[i].UID)] = &children[i]
	}
	return f
}

// child tells of the child run of a step, with its state if that is known; "" for other steps.
func (f family) child(s *step) string {
	ref := s.status.ChildRun
	if ref == nil {
		return ""
	}
	text := "child run " + Printable(ref.Name, maxErrorChars)
	child, known := f[ref.UID]
	switch {
	case !inFlight(s.status.Phase):
		return text
	case ref.UID == "":
		return text + ", about to be created"
	case !known:
		return text
	}
	st := statusOf(child)
	if st.Phase == "" {
		return text + ": " + string(v1alpha1.RunPending)
	}
	return fmt.Sprintf("%s: %s %s", text, st.Phase, st.Progress)
}

// childFact tells what a step waits for that is a child run, and how to go on.
func (v *viewer) childFact(s *step, f *Fact) {
	f.Text, f.Since = "runs as "+v.family.child(s), microTime(s.status.StartedAt)
	if ref := s.status.ChildRun; ref.UID != "" {
		v.advise("to see what a child run waits for: kubectl syncopate why " + ref.Name + " -n " + v.run.Namespace)
	} else if c := v.condition(v1alpha1.ConditionSucceeded); c != nil {
		if _, why, told := strings.Cut(c.Message, ref.Name+" since "); told {
			_, why, _ = strings.Cut(why, ", which ")
			why, _, _ = strings.Cut(why, ";")
			f.Text = join(f.Text, why)
			if why != "" {
				v.advise("to have the creation of child runs tried at once: kubectl annotate wfr " + v.run.Name + " -n " + v.run.Namespace + ` retry="$(date)" --overwrite`)
			}
		}
	}
}

// suspended says whether the run is, by itself or with its parent.
func suspended(run *v1alpha1.WorkflowRun) bool {
	return run.Spec.Suspend || (statusOf(run).Parent != nil && statusOf(run).Phase == v1alpha1.RunSuspended)
}

// parent tells whose child the run is.
func (v *viewer) parent() {
	p := v.st.Parent
	if p == nil {
		return
	}
	text := "child of run " + p.Name
	if p.Root != "" && v.admitted() {
		text += "; uses the slot of run " + p.Root
	}
	v.add(Fact{About: "parent", Text: text})
}

// suspender is why a suspended run is.
func suspender(run *v1alpha1.WorkflowRun) string {
	if run.Spec.Suspend {
		return "spec.suspend is set"
	}
	return "the parent run " + statusOf(run).Parent.Name + " is suspended"
}

// suspendedByParent says whether the run is suspended because its parent is.
func (v *viewer) suspendedByParent() bool {
	return !v.run.Spec.Suspend && suspended(v.run) && v.answer.Reason == v1alpha1.ReasonSuspended
}
