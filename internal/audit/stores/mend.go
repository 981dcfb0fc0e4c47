// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/audit"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/bus/payloads"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/locks"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// ErrUnsafe says of a finding that no repair of it is safe: its kind says what helps.
var ErrUnsafe = errors.New("not repaired: see what mends it")

// errChanged says that a finding is not true any more.
var errChanged = errors.New("the run says otherwise now")

// Mended is what became of a finding.
type Mended struct {
	audit.Finding

	// Err is nil where it was mended.
	Err error
}

// Mend mends the findings that are safe to mend, one after the other.
func (s *Stores) Mend(ctx context.Context, findings []audit.Finding) []Mended {
	all := make([]Mended, 0, len(findings))
	for _, f := range findings {
		all = append(all, Mended{f, s.mend(ctx, f)})
	}
	return all
}

func (s *Stores) mend(ctx context.Context, f audit.Finding) error {
	if !f.Kind.About().Safe {
		return ErrUnsafe
	}
	run, err := s.live(ctx, f)
	if err != nil {
		return err
	}
	if run != nil && run.NeedsNewer() > 0 {
		return fmt.Errorf("%w: it needs a newer operator", errChanged)
	}
	switch f.Kind {
	case audit.SlotMissing, audit.HoldMissing:
		return s.enter(ctx, f, run)
	case audit.SlotLeft, audit.PlaceLeft, audit.KeyLeft, audit.HoldLeft, audit.WaiterLeft, audit.RunLockLeft, audit.RunLockStale:
		return s.dropInRedis(ctx, f, run)
	case audit.JobLeft, audit.OutputLeft:
		return s.dropInNATS(ctx, f, run)
	case audit.JobMissing, audit.ResultLeft, audit.OutputMissing:
	}
	return ErrUnsafe
}

// live is the run of a finding as the API server has it now; nil: it is gone. One that the look did
// not have is gone for ever.
func (s *Stores) live(ctx context.Context, f audit.Finding) (*v1alpha1.WorkflowRun, error) {
	if f.Run == "" {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	namespace, name, _ := strings.Cut(f.Run, "/")
	run := &v1alpha1.WorkflowRun{}
	if err := s.API.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, run); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read run %s: %w", f.Run, err)
	}
	if string(run.UID) != f.UID { // also if there is none of that name
		return nil, nil //nolint:nilnil // likewise
	}
	return run, nil
}

func (s *Stores) enter(ctx context.Context, f audit.Finding, run *v1alpha1.WorkflowRun) error {
	if run == nil {
		return errChanged
	}
	if f.Kind == audit.SlotMissing {
		if _, _, ok := quota.CountedAt(run); !ok {
			return errChanged
		}
		return quota.RestoreSlot(ctx, s.Quota, store.Key(f.At.Quota), run)
	}
	h, ok := locks.HoldingOf(run, f.At.Ticket)
	if !ok {
		return errChanged
	}
	_, err := s.Quota.RestoreLocks(ctx, "", h.Fence, []store.Holding{h})
	return err
}

func (s *Stores) dropInRedis(ctx context.Context, f audit.Finding, run *v1alpha1.WorkflowRun) error {
	if f.Kind == audit.RunLockLeft || f.Kind == audit.RunLockStale {
		return s.freeRunLock(ctx, f, run)
	}
	if !needless(f, run) {
		return errChanged
	}
	switch {
	case f.Kind == audit.KeyLeft:
		return s.Quota.ReleaseKey(ctx, f.At.Tenant, f.At.Key, f.UID)
	case f.At.Ticket != "":
		_, err := s.Quota.DropLocks(ctx, store.Dropping{Ticket: f.At.Ticket})
		return err
	}
	return quota.DropRuns(ctx, s.Quota, store.Key(f.At.Quota), f.UID)
}

// freeRunLock looks at the lock once more where its run is under way: a holder that goes on
// keeps its token when it takes the lock again. One that does so after the look is protected
// by the fence.
func (s *Stores) freeRunLock(ctx context.Context, f audit.Finding, run *v1alpha1.WorkflowRun) error {
	if !needless(f, run) {
		seen, err := lockmgr.Look(ctx, s.Redis, []string{f.UID})
		if err != nil {
			return err
		}
		l := seen[f.UID]
		stale := run.Status != nil && run.Status.Fence != nil && l.Fence > 0 && l.Fence < *run.Status.Fence
		if l.Left >= 0 && !stale {
			return errChanged
		}
	}
	_, err := lockmgr.Free(ctx, s.Redis, f.UID, f.At.Token)
	return err
}

// needless says that the run never needs again what it has.
func needless(f audit.Finding, run *v1alpha1.WorkflowRun) bool {
	switch {
	case run == nil:
		return true
	case f.Kind == audit.KeyLeft:
		return quota.RefusedForKey(run)
	case f.Kind == audit.HoldLeft:
		return locks.NeverHas(run, f.At.Ticket)
	}
	return lifecycle.Finished(run)
}

func (s *Stores) dropInNATS(ctx context.Context, f audit.Finding, run *v1alpha1.WorkflowRun) error {
	if f.Kind == audit.OutputLeft {
		if run != nil {
			return errChanged
		}
		return payloads.New(s.NATS).Drop(ctx, []string{f.At.Output})
	}
	id, err := protocol.ParseJobID(f.At.Job)
	if err != nil {
		return fmt.Errorf("job %s: %w", f.At.Job, err)
	}
	if run != nil && !lifecycle.Finished(run) && !lifecycle.Over(run, id) {
		return errChanged
	}
	return jobs.New(s.NATS, nil, nil, jobs.Options{}).Withdraw(ctx, f.At.Topic, id)
}
