// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// commitChild names the child run of a step in status, before it is created. Its name can be
// foreseen, so whoever finds a run of that name looks whether it is as it would have been created.
func commitChild(d *draft, l launch) {
	s := &d.st.Steps[l.step]
	child := render.ToCreate(d.run, &d.plan.Steps[l.step], l.input)
	s.Phase, s.StartedAt = v1alpha1.StepRunning, bounds.Micro(d.now)
	s.ChildRun = &v1alpha1.ChildRunStatus{Name: child.Name, Below: new(int32(nestOf(d).Child(&d.plan).Below))}
	if d.st.StartedAt == nil {
		d.st.StartedAt = bounds.Second(d.now)
	}
	d.out.Create = append(d.out.Create, child)
	d.event(report.ChildStarted(s.Name, child.Name))
}

// commitItem dispatches an attempt of an item, which is its last one already.
func commitItem(d *draft, l launch) {
	s := &d.st.Steps[l.step]
	s.DispatchedAt = bounds.Micro(d.now)
	id := d.items[l.step].JobID(l.item.Item, l.item.Number)
	d.out.Dispatch = append(d.out.Dispatch, Job{
		ID: id, Topic: d.plan.Steps[l.step].Job.Topic, Input: l.input,
		Deadline: dag.AttemptDeadline(d.run, &d.st, &d.plan, l.step, s.DispatchedAt.Time),
		Locks:    facts.FencesOf(&d.st, s, id.Item),
	})
}

// launch is a step, or an item, that goes out if the whole stage succeeds.
type launch struct {
	step  int
	item  fanout.Attempt // of a step with forEach
	input json.RawMessage
}

func commitAll(d *draft) {
	// A skipped step may have let in one that stands before it in the spec.
	slices.SortStableFunc(d.launches, func(a, b launch) int { return a.step - b.step })
	for _, l := range d.launches {
		switch step := &d.plan.Steps[l.step]; {
		case step.Run != nil:
			commitChild(d, l)
		case dag.FansOut(step):
			commitItem(d, l)
		default:
			commitJob(d, l)
		}
	}
	d.launches = nil
}

// beginAttempt makes an attempt the step's last one. Its number is new: attempts are never repeated
// under one id.
func beginAttempt(d *draft, i int) protocol.JobID {
	s := &d.st.Steps[i]
	s.Attempt++
	id := status.JobID(d.run, s.Name, s.Attempt)
	s.Phase, s.JobID = v1alpha1.StepDispatched, id.String()
	s.DispatchedAt, s.StartedAt, s.NextAttemptAt, s.DeadLetter = bounds.Micro(d.now), nil, nil, ""
	if d.st.StartedAt == nil {
		d.st.StartedAt = bounds.Second(d.now)
	}
	return id
}

// commitJob begins an attempt, and dispatches its job.
func commitJob(d *draft, l launch) {
	s, id := &d.st.Steps[l.step], beginAttempt(d, l.step)
	topic := d.plan.Steps[l.step].Job.Topic
	d.out.Dispatch = append(d.out.Dispatch, Job{
		ID: id, Topic: topic, Input: l.input, Deadline: dag.AttemptDeadline(d.run, &d.st, &d.plan, l.step, s.DispatchedAt.Time),
		Locks: facts.FencesOf(&d.st, s, ""),
	})
}
