// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Children are the child runs under way that status names, by step, in step order.
func Children(run *v1alpha1.WorkflowRun) []v1alpha1.StepStatus {
	if run == nil || run.Status == nil || Finished(run) {
		return nil
	}
	var all []v1alpha1.StepStatus
	for i := range run.Status.Steps {
		if s := &run.Status.Steps[i]; s.ChildRun != nil && status.InFlight(s.Phase) {
			all = append(all, *s)
		}
	}
	return all
}

// Admitted says whether the run was let in by its tenant's gate.
func Admitted(run *v1alpha1.WorkflowRun) bool {
	return run != nil && run.Status != nil && status.Admitted(run.Status)
}

// InFlight names the attempts which status says are with workers, in step order.
func InFlight(run *v1alpha1.WorkflowRun) []protocol.JobID {
	return inFlightWhere(run, func(v1alpha1.StepPhase, v1alpha1.DeadLetterReason) bool { return true })
}

// Unanswered names those attempts in flight of which job or answer has to be with NATS. The others
// were answered, and the answer was put aside: neither is there any more, and the attempt must not
// be published again.
func Unanswered(run *v1alpha1.WorkflowRun) []protocol.JobID {
	return inFlightWhere(run, isUnanswered)
}

// Published names those Unanswered of which job or answer is with NATS, unless it lost them. While
// a run says that its jobs find no room there, only what a worker has begun is known to be.
func Published(run *v1alpha1.WorkflowRun) []protocol.JobID {
	if since, _ := report.NoRoomSaid(run); since.IsZero() {
		return Unanswered(run)
	}
	return inFlightWhere(run, func(phase v1alpha1.StepPhase, aside v1alpha1.DeadLetterReason) bool {
		return phase == v1alpha1.StepRunning && isUnanswered(phase, aside)
	})
}

// CountUnanswered is how many those are. It makes no list: a step may have a thousand items in
// flight, and it is asked with each of their results.
func CountUnanswered(run *v1alpha1.WorkflowRun) (n int) {
	eachInFlight(run, isUnanswered, func(*v1alpha1.StepStatus) { n++ }, func(_ *v1alpha1.StepStatus, g *fanout.Group) { n += g.Set.Len() })
	return n
}

func isUnanswered(_ v1alpha1.StepPhase, aside v1alpha1.DeadLetterReason) bool { return aside == "" }

// wantedWhere says which attempts in flight are wanted, by how far they are and by how their answer
// was put aside; "": it was not.
type wantedWhere func(phase v1alpha1.StepPhase, aside v1alpha1.DeadLetterReason) bool

func inFlightWhere(run *v1alpha1.WorkflowRun, wanted wantedWhere) (ids []protocol.JobID) {
	eachInFlight(run, wanted, func(s *v1alpha1.StepStatus) {
		ids = append(ids, status.JobID(run, s.Name, s.Attempt))
	}, func(s *v1alpha1.StepStatus, g *fanout.Group) {
		for item := range g.Set.All() {
			ids = append(ids, status.ItemJobID(run, s.Name, item, g.Attempt))
		}
	})
	return ids
}

// eachInFlight calls one for each step that has an attempt in flight, and items for each group of
// items that have, in step order.
func eachInFlight(run *v1alpha1.WorkflowRun, wanted wantedWhere, one func(*v1alpha1.StepStatus), items func(*v1alpha1.StepStatus, *fanout.Group)) {
	if run == nil || run.Status == nil {
		return
	}
	for i := range run.Status.Steps {
		switch s := &run.Status.Steps[i]; {
		case status.WithWorker(s) && wanted(s.Phase, s.DeadLetter):
			one(s)
		case status.IsForEach(s) && !status.Ended(s.Phase):
			eachGroupInFlight(s, wanted, items)
		}
	}
}

func eachGroupInFlight(s *v1alpha1.StepStatus, wanted wantedWhere, items func(*v1alpha1.StepStatus, *fanout.Group)) {
	groups := fanout.Groups(s.ForEach)
	for k := range groups {
		if status.InFlight(groups[k].Phase) && wanted(groups[k].Phase, groups[k].DeadLetter) {
			items(s, &groups[k])
		}
	}
}

// Over says whether status knows an attempt as one that is not in flight any more.
func Over(run *v1alpha1.WorkflowRun, id protocol.JobID) bool {
	if run == nil || run.Status == nil {
		return false
	}
	i, verdict := facts.Judge(run, run.Status.Steps, status.Index(run.Status.Steps), id)
	if verdict != Ahead && status.IsForEach(&run.Status.Steps[i]) {
		_, verdict = fanout.Judge(&run.Status.Steps[i], fanout.Groups(run.Status.Steps[i].ForEach), id)
	}
	return verdict == Duplicate || verdict == Stale
}

// InFlightJobs are those attempts as what has to be taken back when their run is gone.
func InFlightJobs(run *v1alpha1.WorkflowRun) []Withdrawal {
	ids := InFlight(run)
	if len(ids) == 0 {
		return nil
	}
	p := dag.Of(run)
	all := make([]Withdrawal, 0, len(ids))
	for _, id := range ids {
		if i, ok := p.Index[id.Step]; ok && p.Steps[i].Job != nil {
			all = append(all, Withdrawal{ID: id, Topic: p.Steps[i].Job.Topic})
		}
	}
	return all
}

// OutputNames names the outputs of a run in the object store, as far as its status tells.
func OutputNames(run *v1alpha1.WorkflowRun) []string {
	if run.Status == nil {
		return nil
	}
	var names []string
	for i := range run.Status.Steps {
		s := &run.Status.Steps[i]
		if s.OutputRef != nil {
			names = append(names, s.OutputRef.Name)
		}
		if s.ForEach != nil {
			for k := range s.ForEach.OutputRefs {
				names = append(names, s.ForEach.OutputRefs[k].Name)
			}
		}
	}
	if ref := run.Status.OutputsRef; ref != nil {
		names = append(names, ref.Name)
	}
	return names
}

// Outlines are the jobs of those attempts without their inputs, so that nothing is evaluated or
// loaded for them.
func Outlines(run *v1alpha1.WorkflowRun) []Job { return OutlinesOf(run, InFlight(run)) }

// OutlinesOf are those of some of them.
func OutlinesOf(run *v1alpha1.WorkflowRun, ids []protocol.JobID) []Job {
	r := render.New(run, nil, nil)
	all := make([]Job, 0, len(ids))
	for _, id := range ids {
		if i, _, at, ok := r.Find(id); ok {
			all = append(all, r.Outline(id, i, at))
		}
	}
	return all
}

// RenewalFailing says whether status tells of a lease that cannot be renewed.
func RenewalFailing(run *v1alpha1.WorkflowRun) bool {
	return run != nil && run.Status != nil && report.Failing(status.ReasonOf(run.Status, v1alpha1.ConditionRunLockRenewed))
}

// Abandoned says whether status tells that a lease of the run was lost, and not yet that another
// one took over.
func Abandoned(run *v1alpha1.WorkflowRun) bool {
	return run != nil && run.Status != nil && report.Abandoned(run.Status)
}

// SaysLockBusy says whether status tells that somebody waits for the run's lock.
func SaysLockBusy(run *v1alpha1.WorkflowRun) bool {
	return run != nil && run.Status != nil && status.ReasonOf(run.Status, v1alpha1.ConditionRunLockRenewed) == v1alpha1.ReasonLockBusy
}

// WaitedFor names the topics of attempts that no worker has begun, each once.
func WaitedFor(run *v1alpha1.WorkflowRun) []string {
	if run == nil || run.Status == nil || Finished(run) {
		return nil
	}
	steps := dag.Steps(run)
	if !status.Aligned(steps, run.Status.Steps) {
		return nil
	}
	var topics []string
	for i := range steps {
		s := &run.Status.Steps[i]
		if job := steps[i].Job; job != nil && report.WaitsForWorker(s, groupsOf(s)) && !slices.Contains(topics, job.Topic) {
			topics = append(topics, job.Topic)
		}
	}
	return topics
}

// groupsOf are the groups of items of a step under way.
func groupsOf(s *v1alpha1.StepStatus) []fanout.Group {
	if !status.IsForEach(s) || status.Ended(s.Phase) {
		return nil
	}
	return fanout.Groups(s.ForEach)
}

// KeptUntil is until when, at the latest, a run keeps its slot while it waits for its locks; zero:
// it keeps none.
func KeptUntil(run *v1alpha1.WorkflowRun) time.Time {
	if run == nil || run.Status == nil || !status.KeepsSlot(run.Status) {
		return time.Time{}
	}
	return run.Status.Admission.SlotExpiresAt.Time
}
