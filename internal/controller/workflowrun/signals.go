// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// Signals is a source of what comes from outside for steps that wait. There is one for each kind of
// step that waits for a signal.
type Signals interface {
	// Observe is what has come for the steps of a run, in the order in which it counts, as far as
	// this process has heard of it. An error ends the pass.
	Observe(ctx context.Context, run *v1alpha1.WorkflowRun) ([]lifecycle.Signal, error)
	// Ask is Observe with all that was sent before the call: it asks where that is stored.
	Ask(ctx context.Context, run *v1alpha1.WorkflowRun) ([]lifecycle.Signal, error)
	// Watch has the run woken when something comes that the last Observe did not have, also if it
	// came since. It is called at the end of each pass over a run that goes on.
	Watch(run *v1alpha1.WorkflowRun)
	// Forget ends that: the run has ended, or is gone.
	Forget(run types.NamespacedName)
}

// Sources are all sources of signals.
type Sources []Signals

// observe reads what has come for the steps of a run.
func (all Sources) observe(ctx context.Context, run *v1alpha1.WorkflowRun) ([]lifecycle.Signal, error) {
	return all.each(func(source Signals) ([]lifecycle.Signal, error) { return source.Observe(ctx, run) })
}

// each has what is read of all sources.
func (all Sources) each(read func(Signals) ([]lifecycle.Signal, error)) ([]lifecycle.Signal, error) {
	var signals []lifecycle.Signal
	for _, source := range all {
		came, err := read(source)
		if err != nil {
			return nil, err
		}
		signals = append(signals, came...)
	}
	return signals, nil
}

// askSignals asks for all that was sent for the steps of a run, because the time of one is over. It
// says whether another decision has more to decide on: if not, that time-out waits; a deadline of
// the run, which is deferred, for a minute at most.
func askSignals(ctx context.Context, p *pass, deferred bool) bool {
	now := p.r.Clock.Now()
	came, err := p.r.Signals.each(func(source Signals) ([]lifecycle.Signal, error) { return source.Ask(ctx, p.run) })
	if err != nil {
		wait := results.RetryDelay(err, actRetryDelay)
		log.FromContext(ctx).Info("The time-out of a step waits: what was sent for it cannot be read", "delay", wait, "cause", err.Error())
		p.later = pacing.Earliest(p.later, now.Add(wait))
		if deferred {
			p.questions.Missing(wait, err.Error())
		}
		return false
	}
	p.signals, p.signalsAsOf = came, now
	return true
}

// watch has a run woken when more comes for its steps, until it has ended.
func (all Sources) watch(run *v1alpha1.WorkflowRun) {
	if lifecycle.Finished(run) {
		all.forget(types.NamespacedName{Namespace: run.Namespace, Name: run.Name})
		return
	}
	for _, source := range all {
		source.Watch(run)
	}
}

func (all Sources) forget(run types.NamespacedName) {
	for _, source := range all {
		source.Forget(run)
	}
}
