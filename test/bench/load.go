// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// load is a number of equal runs.
type load struct {
	name string
	runs int
	jobs int // of each run
	spec *v1alpha1.WorkflowRunSpec
}

const topic = "bench.work"

func step(name string, after ...string) v1alpha1.Step {
	return v1alpha1.Step{Name: name, DependsOn: after, Job: &v1alpha1.Job{Topic: topic, Input: &runtime.RawExtension{Raw: []byte(`{"n":1}`)}}}
}

// chain is a run of steps that wait for each other.
func chain(n int) *v1alpha1.WorkflowRunSpec {
	spec := &v1alpha1.WorkflowRunSpec{}
	for i := range n {
		s := step(fmt.Sprintf("s%d", i+1))
		if i > 0 {
			s.DependsOn = []string{spec.Steps[i-1].Name}
		}
		spec.Steps = append(spec.Steps, s)
	}
	return spec
}

// fanOut is a run of one step with a job for each of n items.
func fanOut(n, parallel int) (*v1alpha1.WorkflowRunSpec, error) {
	list, err := json.Marshal(map[string]any{"list": make([]int, n)})
	if err != nil {
		return nil, fmt.Errorf("encode items: %w", err)
	}
	s := step("all")
	s.Job.Input = &runtime.RawExtension{Raw: []byte(`{"n":"${item}"}`)}
	s.ForEach = &v1alpha1.ForEach{Items: "${inputs.list}", MaxParallel: int32(parallel)}
	return &v1alpha1.WorkflowRunSpec{Inputs: &runtime.RawExtension{Raw: list}, Steps: []v1alpha1.Step{s}}, nil
}

// echo does nothing.
func echo(_ context.Context, job worker.Job) (any, error) { return job.Input, nil }

// span is from the first dispatch of any job to the end of the last step, by the
// operator's own stamps.
func span(runs []v1alpha1.WorkflowRun) (begin, end time.Time) {
	for i := range runs {
		if runs[i].Unwritten() {
			continue
		}
		for _, s := range runs[i].Status.Steps {
			for _, at := range []time.Time{timeOf(s.StartedAt), timeOf(s.DispatchedAt)} {
				if !at.IsZero() && (begin.IsZero() || at.Before(begin)) {
					begin = at
				}
			}
			if at := timeOf(s.CompletedAt); at.After(end) {
				end = at
			}
		}
	}
	return begin, end
}

func allIn(runs []v1alpha1.WorkflowRun, phase v1alpha1.RunPhase) error {
	for i := range runs {
		if runs[i].Unwritten() || runs[i].Status.Phase != phase {
			return fmt.Errorf("%w: %s", errWrongEnd, runs[i].Name)
		}
	}
	return nil
}
