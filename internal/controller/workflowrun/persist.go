package workflowrun

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// fieldOwner names the operator in managedFields.
const fieldOwner = client.FieldOwner("syncopate")

// persist stores a decision: one status write, guarded by resourceVersion and, at the API server, by the fence rules. After
// an error nobody knows whether it took effect (a time-out); the next pass reads what is stored and recovers from there.
//
// It is a PUT, not a merge patch: the API server's merge patch drops nulls inside lists, and outputs may hold nulls (ADR 0003).
func (p *pass) persist(ctx context.Context, d lifecycle.Decision) error {
	next := p.run.DeepCopy()
	next.Status = &d.Status
	begin := p.clock.Now()
	err := p.client.Status().Update(ctx, next, fieldOwner)
	p.mem.lastWriteEnd = p.clock.Now()
	p.mem.lastWriteTook = p.mem.lastWriteEnd.Sub(begin)
	if err != nil {
		p.metrics.statusWrites.WithLabelValues("refused").Inc()
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err) {
			p.mem.doubtful(p.run.ResourceVersion, d.Withdraw)
		}
		return fmt.Errorf("write status: %w", err)
	}
	p.metrics.statusWrites.WithLabelValues("accepted").Inc()
	log.FromContext(ctx).V(1).Info("Status written", "resourceVersion", next.ResourceVersion, "fence", next.Status.Fence, "progress", next.Status.Progress)
	p.run, p.mem.last = next, next
	if p.mem.stay == nil && over(next) {
		p.mem.stay = stayOf(next) // by another process, before this one drove the run
	}
	if p.mem.blamed {
		p.mem.atOnce, p.mem.blamed = 0, false
	}
	p.mem.withdrawals = append(p.mem.withdrawals, d.Withdraw...)
	return nil
}

// isStaleWriter says whether the API server's fence rules refused a write.
func isStaleWriter(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "stale writer")
}
