// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/driven"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// persist stores a decision: one status write, guarded by resourceVersion and, at the API server,
// by the fence rules. After an error it is not known whether it took effect (a time-out); the next
// pass reads what is stored and recovers from there.
//
// It is a PUT, not a merge patch: the API server's merge patch drops nulls inside lists, and
// outputs may hold nulls (ADR 0003).
func (p *pass) persist(ctx context.Context, d lifecycle.Decision) error {
	next := p.run.DeepCopy()
	next.Status = &d.Status
	tried, err := p.put(ctx, next)
	if !tried {
		return &writeError{err: err, ending: lifecycle.Finished(next)}
	}
	p.mem.lastWrite.Applied = applied(d.Verdicts)
	if err != nil {
		if outage(err) { // else it is known that nothing took effect
			p.mem.doubtful(p.run.ResourceVersion, p.mem.lastWrite.End, d.Withdraw)
		}
		return &writeError{err: fmt.Errorf("write status: %w", err), ending: lifecycle.Finished(next)}
	}
	if d.Cut {
		p.r.Metrics.decisionsCut.Inc()
	}
	log.FromContext(ctx).V(1).Info("Status written", "resourceVersion", next.ResourceVersion, "fence", next.Status.Fence, "progress", next.Status.Progress)
	p.wrote(next, d)
	return nil
}

// outcomes are those of the metric of status writes.
var outcomes = []string{"accepted", "outdated", "refused", "unanswered"}

// outcomeOf says for a metric what the API server said to a write. One that it did not answer may
// have been stored, and so may one that it answered with an error of its own. One is outdated if
// the run was another by then, or was gone: an alert about writes that are not taken is not about
// that.
func outcomeOf(err error) string {
	var answer apierrors.APIStatus
	switch {
	case err == nil:
		return "accepted"
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), isStaleWriter(err):
		return "outdated"
	case errors.As(err, &answer):
		return "refused"
	default:
		return "unanswered"
	}
}

// countWrite counts a write that was sent, by what the API server said to it.
func countWrite(m *Metrics, err error) {
	m.statusWrites.WithLabelValues(outcomeOf(err)).Inc()
	switch {
	case apierrors.IsConflict(err):
		m.fenceRejections.WithLabelValues("resource_version").Inc()
	case isStaleWriter(err):
		m.fenceRejections.WithLabelValues("fence_rule").Inc()
	}
}

// wrote notes a write that was accepted.
func (p *pass) wrote(next *v1alpha1.WorkflowRun, d lifecycle.Decision) {
	p.outputs.Wrote(p.ahead.Stored, next, p.batch.TakenOver(d.Verdicts))
	p.r.Slots.Wrote(&p.mem.slot, p.ahead.Stored, next, p.r.Clock.Now())
	p.trial.Count(p.ahead.Stored, next, p.batch.DoomedFor(tooLarge))
	p.r.Spans.Wrote(p.ahead.Stored, next)
	p.mem.withdrawals = append(p.mem.withdrawals, p.ahead.Write(next)...)
	p.batch.Covered()
	p.run, p.mem.last = next, asStored(p, next)
	p.lock.Ahead = keepsLease(p)
	p.mem.statusWrites++
	p.mem.refused, p.mem.standoff, p.mem.missing, p.mem.conflicts = "", standoff{}, pause{}, conflicts{}
	p.mem.serverErrors = 0
	p.lock.Wrote()
	if p.mem.suspects -= len(p.batch.Carried()); p.mem.blamed || p.mem.suspects <= 0 {
		p.mem.atOnce, p.mem.suspects, p.mem.blamed = 0, 0, false
	}
	p.mem.withdrawals = append(p.mem.withdrawals, d.Withdraw...)
}

// writeError is why a status was not written.
type writeError struct {
	err       error
	ending    bool // the write would have ended the run
	unchanged bool // it was the status as it is: no result is to blame
}

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// put writes a status when it may be written, and says whether that was tried: if not,
// nothing took effect.
func (p *pass) put(ctx context.Context, next *v1alpha1.WorkflowRun) (tried bool, err error) {
	sent := *asStored(p, next)
	body, size, err := p.mem.sized(&sent)
	if err != nil {
		return false, err
	}
	p.mem.lastWriteBytes = size
	done, err := p.mayWrite(ctx, next)
	if err != nil {
		return false, err
	}
	defer done()
	begin := p.r.Clock.Now()
	err = p.r.Statuses.Put(ctx, &sent, body, size)
	countWrite(p.r.Metrics, err)
	next.ResourceVersion = sent.ResourceVersion
	p.mem.lastWrite.End = p.r.Clock.Now()
	p.mem.lastWrite.Took = p.mem.lastWrite.End.Sub(begin)
	return true, err
}

// mayWrite waits for a place among the status writes that are under way. If all passes wrote at
// once, the API server would have the queue, and a run whose turn it is in its tenant's queue would
// wait in it behind all others; here it need not wait, unless it is large.
func (p *pass) mayWrite(ctx context.Context, next *v1alpha1.WorkflowRun) (done func(), err error) {
	begins := lifecycle.Admitted(next) && !lifecycle.Admitted(p.ahead.Stored)
	if p.r.Writes == nil || (begins && !shares.LargeObject(p.mem.lastWriteBytes)) {
		return func() {}, nil
	}
	if err := p.desk.ForObject(ctx, p.mem.lastWriteBytes); err != nil && !errors.Is(err, driven.ErrHandedOver) {
		return nil, err // the next owner would wait for the write, or find no results for a while
	}
	return p.r.Writes.Wait(ctx, p.key.Namespace)
}

func applied(verdicts []lifecycle.Verdict) int {
	n := 0
	for _, v := range verdicts {
		if v == lifecycle.Applied {
			n++
		}
	}
	return n
}
