package workflowrun

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// Signals is a source of what comes from outside for steps that wait. There is one for each kind of
// step that waits for a signal.
type Signals interface {
	// Observe is what has come for the steps of a run, in the order in which it counts. An error
	// ends the pass.
	Observe(ctx context.Context, run *v1alpha1.WorkflowRun) ([]lifecycle.Signal, error)
	// Watch has the run woken when something comes that the last Observe did not have, also if it
	// came since. It is called at the end of each pass over a run that goes on.
	Watch(run *v1alpha1.WorkflowRun)
	// Forget ends that: the run has ended, or is gone.
	Forget(run types.NamespacedName)
}

// observeSignals reads what has come for the steps of the run.
func (p *pass) observeSignals(ctx context.Context) error {
	for _, source := range p.r.Signals {
		came, err := source.Observe(ctx, p.run)
		if err != nil {
			return err
		}
		p.signals = append(p.signals, came...)
	}
	return nil
}

// watchSignals has the run woken when more comes for its steps.
func (p *pass) watchSignals() {
	if lifecycle.Finished(p.run) {
		p.r.forgetSignals(p.key)
		return
	}
	for _, source := range p.r.Signals {
		source.Watch(p.run)
	}
}

func (r *Reconciler) forgetSignals(run types.NamespacedName) {
	for _, source := range r.Signals {
		source.Forget(run)
	}
}
