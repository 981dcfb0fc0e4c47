// SPDX-License-Identifier: Apache-2.0

// Package spans has the spans of runs sent, as writes end them. A nil Recorder does nothing: then
// there are no traces.
package spans

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/traces"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// horizon is how long before now a span ended that may not have been sent, because the process
// died that wrote its end. It is more than a take-over takes. Spans of a longer outage are lost:
// all runs of a partition are found in one moment, so a longer time would fill the queue of spans,
// and new ones would be dropped.
const horizon = 2 * time.Minute

// sender sends spans and does not wait; *otlp.Exporter does.
type sender interface{ Send(spans []traces.Span) }

// Recorder has spans sent.
type Recorder struct {
	sender  sender
	percent int
	clock   clock.PassiveClock
	holder  string    // name of this replica
	began   time.Time // when this process did
}

// New makes a recorder that has the given part in a hundred of all traces sent.
func New(to sender, percent int, clk clock.PassiveClock, holder string) *Recorder {
	return &Recorder{sender: to, percent: percent, clock: clk, holder: holder, began: clk.Now()}
}

// Wrote has the spans sent that a write of this process ended.
func (r *Recorder) Wrote(was, now *v1alpha1.WorkflowRun) {
	if r == nil {
		return
	}
	r.sender.Send(traces.Ended(was, now, r.percent))
}

// Found is for a run that this process sees for the first time: the one that wrote it may have died
// before its spans were sent. Those of the last minutes are sent again, under the same ids.
func (r *Recorder) Found(run *v1alpha1.WorkflowRun) {
	if r == nil || run.Status == nil || r.wrote(run) {
		return
	}
	r.Again(run)
}

// wrote says whether this process wrote a run last.
func (r *Recorder) wrote(run *v1alpha1.WorkflowRun) bool {
	l := run.Status.Lock
	return l != nil && l.Holder == r.holder && l.AcquiredAt != nil && !l.AcquiredAt.Time.Before(r.began)
}

// Again has the spans of the last minutes sent, for a write of which it was not known whether it
// took effect.
func (r *Recorder) Again(run *v1alpha1.WorkflowRun) {
	if r == nil || run.Status == nil {
		return
	}
	after := r.clock.Now().Add(-horizon)
	if end := run.Status.CompletedAt; end != nil && end.Time.Before(after) {
		return
	}
	var recent []traces.Span
	for _, s := range traces.Ended(nil, run, r.percent) {
		if !s.End.Before(after) {
			recent = append(recent, s)
		}
	}
	r.sender.Send(recent)
}

// Job is the traceparent of a job; empty: it has none.
func (r *Recorder) Job(run *v1alpha1.WorkflowRun, id protocol.JobID) string {
	if r == nil {
		return ""
	}
	return traces.OfJob(run, id.Step, id.Item != protocol.NoItem, id.Attempt, r.percent).String()
}

// Child is the traceparent of the child run of a step; empty: it has none.
func (r *Recorder) Child(run *v1alpha1.WorkflowRun, step string) string {
	if r == nil {
		return ""
	}
	return traces.OfChild(run, step, r.percent).String()
}
