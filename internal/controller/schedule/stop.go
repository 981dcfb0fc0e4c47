// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// sight is what spec.stopWhen sees: one sight gives one answer, and there is a pass each minute.
type sight struct {
	generation int64
	run        types.UID // that ended last
	version    string    // and its resourceVersion
	started    int64
}

// stops evaluates spec.stopWhen over the run that ended last. An expression that fails does
// not stop. A stop is for good, and what a run that needs a newer operator returned may be read
// wrongly: that one does not stop, either. The error is passes.ErrLater, or that ctx ended.
func (r *Reconciler) stops(ctx context.Context, s *v1alpha1.Schedule, runs []v1alpha1.WorkflowRun, mem *memory) (bool, error) {
	if s.Spec.StopWhen == "" {
		return false, nil
	}
	last := lastEnded(runs, r.Clock.Now())
	if last == nil || last.NeedsNewer() > 0 {
		return false, nil
	}
	sees := sight{s.Generation, last.UID, last.ResourceVersion, 0}
	if s.Status != nil {
		sees.started = s.Status.Started
	}
	if mem.saw == sees {
		return mem.stop, nil
	}
	run, stored := seen(last, sees.started)
	stop, err := r.evaluate(ctx, s, run, sees, mem)
	if errors.Is(err, passes.ErrLater) {
		return false, err
	}
	if err != nil {
		r.Events.Eventf(s, nil, corev1.EventTypeWarning, "StopWhenFailed", "Decide", "spec.stopWhen over run %s%s: %v", last.Name, stored, err)
	}
	mem.saw, mem.stop = sees, err == nil && stop
	return mem.stop, nil
}

// seen is a run as spec.stopWhen sees it; stored says where the outputs are that it does not see.
func seen(last *v1alpha1.WorkflowRun, started int64) (run map[string]any, stored string) {
	reason := ""
	if c := meta.FindStatusCondition(last.Status.Conditions, v1alpha1.ConditionSucceeded); c != nil {
		reason = c.Reason
	}
	run = map[string]any{"name": last.Name, "phase": string(last.Status.Phase), "reason": reason, "started": started}
	switch {
	case last.Status.OutputsRef != nil: // who reads them fails
		stored = fmt.Sprintf(" (its outputs of %d bytes are in the object store, and are not read here)", last.Status.OutputsRef.Size)
	case last.Status.Outputs != nil:
		run["outputs"] = json.RawMessage(last.Status.Outputs.Raw)
	default:
		run["outputs"] = json.RawMessage("{}")
	}
	return run, stored
}

// evaluate evaluates spec.stopWhen. What takes longer than nobody notices takes a desk: there may
// be thousands of schedules that have such an expression.
func (r *Reconciler) evaluate(ctx context.Context, s *v1alpha1.Schedule, run map[string]any, sees sight, mem *memory) (bool, error) {
	scope := expr.Prepare(expr.Vars{Run: run})
	if mem.costly != sees {
		scope.Limit(bounds.MaxQuickCost)
		stop, err := scope.Condition(s.Spec.StopWhen)
		if !errors.Is(err, expr.ErrTooCostly) {
			return stop, err
		}
		mem.costly = sees
	} else if !r.Aside.Free(s.Namespace) {
		return false, passes.ErrLater // not even begun
	}
	early, cancel := r.Driven.Early(ctx, s.UID) // who hands over waits for its end
	defer cancel()
	rest, leave, err := r.Aside.Work(early, s.Namespace)
	if err != nil {
		return false, fmt.Errorf("evaluate spec.stopWhen: %w", err)
	}
	defer leave()
	scope.Limit(0)
	scope.Pause(func() { rest() })
	return scope.Condition(s.Spec.StopWhen)
}

// lastEnded is the run that ended last; nil: none has.
func lastEnded(runs []v1alpha1.WorkflowRun, now time.Time) (last *v1alpha1.WorkflowRun) {
	var latest time.Time
	for i := range runs {
		run := &runs[i]
		if !status.Finished(run) {
			continue
		}
		if ended := schedule.EndOf(run.Status.CompletedAt.Time, run.CreationTimestamp.Time, now); last == nil || latest.Before(ended) {
			last, latest = run, ended
		}
	}
	return last
}
