package workflowrun

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// persist stores a decision: one status write, guarded by resourceVersion and, at the API server, by the fence rules. After
// an error nobody knows whether it took effect (a time-out); the next pass reads what is stored and recovers from there.
//
// It is a PUT, not a merge patch: the API server's merge patch drops nulls inside lists, and outputs may hold nulls (ADR 0003).
func (p *pass) persist(ctx context.Context, d lifecycle.Decision) error {
	next := p.run.DeepCopy()
	next.Status = &d.Status
	p.ending = lifecycle.Finished(next)
	tried, err := p.put(ctx, next)
	if !tried {
		return err
	}
	p.mem.lastWrite.Applied = applied(d.Verdicts)
	if err != nil {
		p.metrics.statusWrites.WithLabelValues("refused").Inc()
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err) {
			p.mem.doubtful(p.run.ResourceVersion, d.Withdraw)
		}
		return fmt.Errorf("write status: %w", err)
	}
	p.metrics.statusWrites.WithLabelValues("accepted").Inc()
	if d.Cut {
		p.metrics.decisionsCut.Inc()
	}
	log.FromContext(ctx).V(1).Info("Status written", "resourceVersion", next.ResourceVersion, "fence", next.Status.Fence, "progress", next.Status.Progress)
	p.unused = append(p.unused, missingFrom(results.OutputsOf(next), append(results.OutputsOf(p.run), p.takenOver(d.Verdicts)...))...)
	p.slots.Wrote(&p.mem.slot, p.run, next)
	p.run, p.mem.last = next, next
	p.noteWriter()
	if p.mem.blamed {
		p.mem.atOnce, p.mem.blamed = 0, false
	}
	p.mem.withdrawals = append(p.mem.withdrawals, d.Withdraw...)
	return nil
}

// put writes a status when it may be written, and says whether that was tried: if not, nothing took effect.
func (p *pass) put(ctx context.Context, next *v1alpha1.WorkflowRun) (tried bool, err error) {
	body, err := encoded(next)
	if err != nil {
		return false, err
	}
	p.mem.lastWriteBytes = len(body)
	done, err := p.mayWrite(ctx, next)
	if err != nil {
		return false, err
	}
	defer done()
	begin := p.clock.Now()
	err = p.statuses.Put(ctx, next, body)
	p.mem.lastWrite.End = p.clock.Now()
	p.mem.lastWrite.Took = p.mem.lastWrite.End.Sub(begin)
	return true, err //nolint:wrapcheck // persist says what it is about
}

// mayWrite waits for a place among the status writes that are under way. If all passes wrote at once, the API server would have the
// queue, and a run whose turn it is at its tenant's gate would wait in it behind all others; here it need not wait.
func (p *pass) mayWrite(ctx context.Context, next *v1alpha1.WorkflowRun) (done func(), err error) {
	if p.writes == nil || (lifecycle.Admitted(next) && !lifecycle.Admitted(p.run)) {
		return func() {}, nil
	}
	if err := p.desk.ForObject(ctx, p.mem.lastWriteBytes); err != nil {
		return nil, err
	}
	return p.writes.Wait(ctx, p.key.Namespace)
}

// takenOver are the objects of items' workers whose bytes are with those of other items now.
func (p *pass) takenOver(verdicts []lifecycle.Verdict) (names []string) {
	for i, v := range verdicts {
		if fact := &p.letters[i].Fact; v == lifecycle.Applied && fact.ID.Item != protocol.NoItem && fact.Result.OutputRef != nil {
			names = append(names, fact.Result.OutputRef.Name)
		}
	}
	return names
}

// missingFrom are the names among those of before that are not in a list.
func missingFrom(list, before []string) (gone []string) {
	for _, name := range before {
		if !slices.Contains(list, name) {
			gone = append(gone, name)
		}
	}
	return gone
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

// isStaleWriter says whether the API server's fence rules refused a write.
func isStaleWriter(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "stale writer")
}
