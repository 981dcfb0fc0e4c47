package lifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Decide and what goes with it take any status beside any spec. What Decide never writes ends a step or is left alone; it is no panic.

// A spec is validated once, so a status that knows its steps may stand beside kinds that validation refuses. mutation: fansOut that does
// not look at job makes this fail.
func TestNoMixtureOfKindsIsAPanic(t *testing.T) {
	const name = "x"
	kinds := []v1alpha1.Step{
		newStep(name),
		newStep(name, forEach("${[1,2,3]}", 2, v1alpha1.Collect)),
		newStep(name, approval(func(*v1alpha1.Approval) {})),
		newStep(name, delay(30)),
		newStep(name, childRun(oneJob, `{}`)),
	}
	mixed := func(bits int) v1alpha1.Step {
		s := newStep(name)
		s.Job = nil
		for i, part := range []func(){
			func() { s.Job = kinds[0].Job },
			func() { s.ForEach = kinds[1].ForEach },
			func() { s.Approval = kinds[2].Approval },
			func() { s.Delay = kinds[3].Delay },
			func() { s.Run = kinds[4].Run },
		} {
			if bits>>i&1 == 1 {
				part()
			}
		}
		return s
	}
	phases := []v1alpha1.StepPhase{v1alpha1.StepPending, v1alpha1.StepDispatched, v1alpha1.StepRunning, v1alpha1.StepBackingOff, v1alpha1.StepWaiting}
	for k := range kinds {
		was := newRun(newStep("a"), kinds[k])
		advance(t, was, epoch)
		for bits := range 1 << len(kinds) {
			for _, phase := range phases {
				run := was.DeepCopy()
				run.Spec.Steps[1], run.Status.Steps[1].Phase = mixed(bits), phase
				t.Run(fmt.Sprintf("kind %d, then %05b, %s", k, bits, phase), func(*testing.T) { askAll(run) })
			}
		}
	}
}

// askAll decides about a run for some hours and calls all that is asked about it in between.
func askAll(run *v1alpha1.WorkflowRun) {
	for hour := range 3 {
		out := decideAt(run, epoch.Add(time.Duration(hour)*time.Hour), held(int64(hour)+2))
		run.Status = &out.Status
		InFlightJobs(run)
		WaitedFor(run)
		AsksForApproval(run)
		for _, id := range InFlight(run) {
			Over(run, id)
			InputOutputs(run, id)
			_, _ = JobOf(run, id, nil)
		}
		for _, s := range Children(run) {
			ChildInputs(run, s.Name)
			_, _ = ChildOf(run, s.Name, nil)
		}
	}
}
