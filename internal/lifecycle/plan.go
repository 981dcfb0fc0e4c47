package lifecycle

import (
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// plan is the DAG by index into spec.steps and, after those, spec.finally. It is total: what validation refuses it maps to steps
// that never get ready.
type plan struct {
	steps      []v1alpha1.Step
	main       int            // how many of them are spec.steps
	index      map[string]int // name -> first step of that name
	deps       [][]int        // what a step waits for
	dependents [][]int        // what waits for a step
	broken     []bool         // depends on a step that does not exist, or from the other list
}

// stepsOf are all steps of a run: spec.steps, then spec.finally.
func stepsOf(run *v1alpha1.WorkflowRun) []v1alpha1.Step {
	if len(run.Spec.Finally) == 0 {
		return run.Spec.Steps
	}
	return append(slices.Clip(run.Spec.Steps), run.Spec.Finally...)
}

func planOf(run *v1alpha1.WorkflowRun) plan {
	steps := stepsOf(run)
	p := plan{
		steps: steps, main: len(run.Spec.Steps),
		index:      make(map[string]int, len(steps)),
		deps:       make([][]int, len(steps)),
		dependents: make([][]int, len(steps)),
		broken:     make([]bool, len(steps)),
	}
	for i := range steps {
		if _, taken := p.index[steps[i].Name]; !taken {
			p.index[steps[i].Name] = i
		}
	}
	for i := range steps {
		p.link(i, steps[i].DependsOn)
	}
	return p
}

func (p *plan) link(i int, names []string) {
	if len(names) == 0 {
		return
	}
	p.deps[i] = make([]int, 0, len(names))
	for _, name := range names {
		j, ok := p.index[name]
		if !ok || p.isFinally(i) != p.isFinally(j) {
			p.broken[i] = true
			continue
		}
		p.deps[i] = append(p.deps[i], j)
		p.dependents[j] = append(p.dependents[j], i)
	}
}

// isFinally says whether a step is one of spec.finally.
func (p *plan) isFinally(i int) bool { return i >= p.main }

// sees are the steps that the expressions of i may read: those that it depends on, directly or not, and from spec.finally also all
// of spec.steps.
func (p *plan) sees(i int) []int {
	seen := p.ancestors(i)
	if p.isFinally(i) {
		seen = append(p.mainSteps(), seen...)
	}
	return seen
}

func (p *plan) mainSteps() []int {
	all := make([]int, p.main)
	for i := range all {
		all[i] = i
	}
	return all
}

// ancestors are the steps that i depends on, directly or not.
func (p *plan) ancestors(i int) []int {
	seen := make([]bool, len(p.deps))
	var found []int
	for queue := append([]int(nil), p.deps[i]...); len(queue) > 0; queue = queue[1:] {
		j := queue[0]
		if seen[j] {
			continue
		}
		seen[j] = true
		found = append(found, j)
		queue = append(queue, p.deps[j]...)
	}
	return found
}

// cycle is the first cycle in spec order as a path that begins and ends with the same step; nil: there is none.
func (p *plan) cycle() []int {
	s := search{plan: p, state: make([]visit, len(p.deps))}
	for i := range p.deps {
		if path := s.from(i); path != nil {
			return path
		}
	}
	return nil
}

type visit uint8

const (
	unseen visit = iota
	onPath
	cleared
)

// search is a depth-first search; its recursion is bounded by the number of steps.
type search struct {
	plan  *plan
	state []visit
	path  []int
}

func (s *search) from(i int) []int {
	switch s.state[i] {
	case cleared:
		return nil
	case onPath:
		k := slices.Index(s.path, i)
		return append(slices.Clone(s.path[k:]), i)
	case unseen:
	}
	s.state[i] = onPath
	s.path = append(s.path, i)
	for _, j := range s.plan.deps[i] {
		if found := s.from(j); found != nil {
			return found
		}
	}
	s.state[i] = cleared
	s.path = s.path[:len(s.path)-1]
	return nil
}

// withWorker says whether an attempt of the step's own job is with NATS or a worker.
func withWorker(s *v1alpha1.StepStatus) bool {
	return inFlight(s.Phase) && !isForEach(s) && s.ChildRun == nil
}

// inFlight says whether a step is under way and takes a place of maxParallelSteps.
func inFlight(p v1alpha1.StepPhase) bool {
	return p == v1alpha1.StepDispatched || p == v1alpha1.StepRunning
}

// passed says whether a step is over and did what it should.
func passed(p v1alpha1.StepPhase) bool {
	return p == v1alpha1.StepSucceeded || p == v1alpha1.StepSkipped
}

// lets says whether the steps that depend on step i may go on.
func (p *plan) lets(i int, phase v1alpha1.StepPhase) bool {
	return passed(phase) || (phase == v1alpha1.StepFailed && p.steps[i].OnFailure == v1alpha1.FailureContinue)
}

func ended(p v1alpha1.StepPhase) bool {
	return passed(p) || p == v1alpha1.StepFailed || p == v1alpha1.StepCancelled
}
