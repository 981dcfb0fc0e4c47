// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// Plan is the DAG by index into spec.steps and, after those, spec.finally. It is total: what
// validation refuses it maps to steps that never get ready.
type Plan struct {
	Steps      []v1alpha1.Step
	Main       int            // how many of them are spec.steps
	Index      map[string]int // name -> first step of that name
	Deps       [][]int        // what a step waits for
	Dependents [][]int        // what waits for a step
	Broken     []bool         // depends on a step that does not exist, or from the other list
	Inputs     []string       // which inputs there may be; nil: any
}

// Steps are all steps of a run: spec.steps, then spec.finally.
func Steps(run *v1alpha1.WorkflowRun) []v1alpha1.Step {
	if len(run.Spec.Finally) == 0 {
		return run.Spec.Steps
	}
	return append(slices.Clip(run.Spec.Steps), run.Spec.Finally...)
}

// Of is the plan of a run.
func Of(run *v1alpha1.WorkflowRun) Plan {
	steps := Steps(run)
	p := Plan{
		Steps: steps, Main: len(run.Spec.Steps),
		Index:      make(map[string]int, len(steps)),
		Deps:       make([][]int, len(steps)),
		Dependents: make([][]int, len(steps)),
		Broken:     make([]bool, len(steps)),
	}
	for i := range steps {
		if _, taken := p.Index[steps[i].Name]; !taken {
			p.Index[steps[i].Name] = i
		}
	}
	for i := range steps {
		p.link(i, steps[i].DependsOn)
	}
	return p
}

func (p *Plan) link(i int, names []string) {
	if len(names) == 0 {
		return
	}
	p.Deps[i] = make([]int, 0, len(names))
	for _, name := range names {
		j, ok := p.Index[name]
		if !ok || p.IsFinally(i) != p.IsFinally(j) {
			p.Broken[i] = true
			continue
		}
		p.Deps[i] = append(p.Deps[i], j)
		p.Dependents[j] = append(p.Dependents[j], i)
	}
}

// IsFinally says whether a step is one of spec.finally.
func (p *Plan) IsFinally(i int) bool { return i >= p.Main }

// Sees are the steps that the expressions of i may read: those that it depends on, directly or not,
// and from spec.finally also all of spec.steps.
func (p *Plan) Sees(i int) []int {
	seen := p.Ancestors(i)
	if p.IsFinally(i) {
		seen = append(p.MainSteps(), seen...)
	}
	return seen
}

// MainSteps are the steps of spec.steps.
func (p *Plan) MainSteps() []int {
	all := make([]int, p.Main)
	for i := range all {
		all[i] = i
	}
	return all
}

// Ancestors are the steps that i depends on, directly or not.
func (p *Plan) Ancestors(i int) []int {
	seen := make([]bool, len(p.Deps))
	var found []int
	for queue := append([]int(nil), p.Deps[i]...); len(queue) > 0; queue = queue[1:] {
		j := queue[0]
		if seen[j] {
			continue
		}
		seen[j] = true
		found = append(found, j)
		queue = append(queue, p.Deps[j]...)
	}
	return found
}

// cycle is the first cycle in spec order as a path that begins and ends with the same step; nil:
// there is none.
func (p *Plan) cycle() []int {
	s := search{plan: p, state: make([]visit, len(p.Deps))}
	for i := range p.Deps {
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
	plan  *Plan
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
	for _, j := range s.plan.Deps[i] {
		if found := s.from(j); found != nil {
			return found
		}
	}
	s.state[i] = cleared
	s.path = s.path[:len(s.path)-1]
	return nil
}

// Lets says whether the steps that depend on step i may go on.
func (p *Plan) Lets(i int, phase v1alpha1.StepPhase) bool {
	return status.Passed(phase) || (phase == v1alpha1.StepFailed && p.Steps[i].OnFailure == v1alpha1.FailureContinue)
}

// Active is how many steps have a place.
func (p *Plan) Active(steps []v1alpha1.StepStatus) (n int) {
	for i := range steps {
		if HasPlace(&p.Steps[i], &steps[i]) {
			n++
		}
	}
	return n
}

// Parallel is how many steps of a run may be under way at a time.
func Parallel(run *v1alpha1.WorkflowRun) int {
	return int(bounds.PositiveOr(run.Spec.MaxParallelSteps, bounds.DefaultParallel))
}
