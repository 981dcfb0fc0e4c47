// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func widthOf(steps ...v1alpha1.Step) int {
	run := &v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{Steps: steps}}
	p := Of(run)
	return p.Width()
}

func TestWidth(t *testing.T) {
	job := func(name string, after ...string) v1alpha1.Step {
		return v1alpha1.Step{Name: name, Job: &v1alpha1.Job{}, DependsOn: after}
	}
	waits := func(name string, after ...string) v1alpha1.Step {
		return v1alpha1.Step{Name: name, Delay: &v1alpha1.Delay{}, DependsOn: after}
	}
	for name, c := range map[string]struct {
		got, want int
	}{
		"nothing":                     {widthOf(), 0},
		"a chain, in any order":       {widthOf(job("c", "b"), job("b", "a"), job("a")), 1},
		"a fork and a join":           {widthOf(job("a"), job("b", "a"), job("c", "a"), job("d", "b", "c")), 2},
		"side by side":                {widthOf(job("a"), job("b"), job("c")), 3},
		"a delay takes no place":      {widthOf(job("a"), waits("b")), 1},
		"a chain that a delay breaks": {widthOf(job("a"), waits("b", "a"), job("c", "b")), 1},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", name, c.got, c.want)
		}
	}
}

// No set of steps of which none waits for another is larger.
func TestWidthIsNeverTooSmall(t *testing.T) {
	for seed := range uint64(300) {
		g := rand.New(rand.NewPCG(seed, 2))
		var steps []v1alpha1.Step
		for i := range 1 + g.IntN(9) {
			s := v1alpha1.Step{Name: fmt.Sprint("s", i), Job: &v1alpha1.Job{}}
			for j := range i {
				if g.IntN(3) == 0 {
					s.DependsOn = append(s.DependsOn, fmt.Sprint("s", j))
				}
			}
			steps = append(steps, s)
		}
		p := Of(&v1alpha1.WorkflowRun{Spec: v1alpha1.WorkflowRunSpec{Steps: steps}})
		related := make([]int, len(steps)) // by step, the set of its ancestors
		for i := range steps {
			for _, j := range p.Ancestors(i) {
				related[i] |= 1 << j
				related[j] |= 1 << i
			}
		}
		for set := range 1 << len(steps) {
			n, apart := 0, true
			for i := range steps {
				if set>>i&1 == 1 {
					n++
					apart = apart && related[i]&set == 0
				}
			}
			if apart && n > p.Width() {
				t.Fatalf("seed %d: %d steps may be under way, not %d", seed, n, p.Width())
			}
		}
	}
}
