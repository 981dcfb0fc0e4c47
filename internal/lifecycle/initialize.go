// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
)

// asCreated is the run as it is validated. What a child waits for may have come since its root was
// validated, and what a run with startFrom waits for since that other run was: its own creation is
// no bound. Neither is that of one of many runs that a template has: the time is that of all.
func asCreated(d *draft) *v1alpha1.WorkflowRun {
	if d.in.Parent == nil && d.run.Spec.StartFrom == nil && !ofTemplate(d.run) {
		return d.run
	}
	run := *d.run
	run.CreationTimestamp = metav1.Time{}
	return &run
}

// ofTemplate says whether the run has its steps of a Workflow or of a Schedule. Whoever names a
// Schedule as the owner of a run that he made himself gains no more than a Workflow gives him.
func ofTemplate(run *v1alpha1.WorkflowRun) bool {
	owner := metav1.GetControllerOf(run)
	return run.Spec.WorkflowRef != nil ||
		owner != nil && owner.APIVersion == v1alpha1.GroupVersion.String() && owner.Kind == "Schedule"
}

// unpermitted ends a run that may not run in its namespace; it says whether it did.
func unpermitted(d *draft) bool {
	if (d.run.Status == nil || d.run.Status.Tenant == "") && !d.in.Tenant.Allowed {
		endRun(d, report.TenantNotAllowed(d.run, d.in.Tenant.Name))
		return true
	}
	if class := d.run.Spec.WorkloadClass; !d.in.Permits.Class(class) {
		endRun(d, report.ClassNotAllowed(d.run))
		return true
	}
	for i := range d.plan.Steps {
		if job := d.plan.Steps[i].Job; job != nil && !d.in.Permits.Topic(job.Topic) {
			endRun(d, report.TopicNotAllowed(d.run, &d.plan, i))
			return true
		}
	}
	return false
}

// initialize refuses a run that may not or cannot run, before anything is dispatched. The spec is
// immutable, so this happens once: afterwards status has the steps.
func initialize(d *draft) {
	if d.initialized {
		return
	}
	if unpermitted(d) || d.in.Template.Missing != "" {
		return
	}
	if known := d.in.Evaluated; known != nil && known.Valid {
		return
	}
	if d.in.Glance {
		d.unread = true
		return
	}
	problems, whole := problemsOf(d)
	switch {
	case !whole:
		d.unread = true
	case len(problems) > 0:
		endRun(d, report.InvalidSpec(problems))
	default:
		d.view.Done.Fresh.Valid = true
	}
}

// decideUnread leaves a run as it is whose spec takes longer to look at than this decision may. No
// status may be written: one that has the steps says that they were validated.
func decideUnread(in Input) Decision {
	return Decision{
		Status: stored(in.Run), Verdicts: verdicts(in.Results, Waiting), Evaluated: in.Evaluated, Wake: in.Now.Add(bounds.MinWake), Changed: in.Glance, Cut: !in.Glance,
	}
}

// problemsOf is what is wrong with the run: of the first kind that is found. Not whole: to find
// that out takes longer than a quick decision may.
func problemsOf(d *draft) (problems []string, whole bool) {
	switch {
	case d.in.Parent != nil && len(d.run.Spec.Locks) > 0:
		return []string{dag.ChildLocks(d.run.Spec.WorkflowRef)}, true
	case d.in.Origin.Problem != "":
		return []string{d.in.Origin.Problem}, true
	case len(d.in.Template.Problems) > 0:
		return d.in.Template.Problems, true
	}
	plan := d.plan
	plan.Inputs = d.in.Template.Inputs
	m := expr.Meter{Pause: d.in.Yield}
	if d.in.Quick {
		m.Most = bounds.MaxQuickSpecCost
	}
	return dag.Validate(asCreated(d), &plan, nestOf(d), &m)
}
