// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const (
	longSteps       = 200
	longExpressions = 2  // in each step
	longMacros      = 45 // in each expression: 1,000 characters
)

// LongSpecs is none of Kinds: it was found after them.
func LongSpecs() Kind {
	return Kind{"long-specs", "specs of nearly 512 KiB, full of expressions of which none is like another", longSpecs}
}

// longSpecs has runs that are deleted once they were validated, and are created again.
func longSpecs(ctx context.Context, a *Attack) error {
	const topic = "hostile.long"
	if err := a.serve(ctx, topic, 4, func(context.Context, worker.Job) (any, error) { return nil, nil }); err != nil {
		return err
	}
	return a.rounds(ctx, roundLimit, func(ctx context.Context, n int) error {
		return a.each(ctx, a.runs(8, 3), func(ctx context.Context, i int) error {
			run := &v1alpha1.WorkflowRun{ObjectMeta: named("long", n, i), Spec: v1alpha1.WorkflowRunSpec{Steps: longStepsOf(a.all(longSteps, 50), topic, n, i)}}
			if err := a.create(ctx, run); err != nil {
				return err
			}
			a.underWay()
			err := until(ctx, func() (bool, error) {
				err := a.read(ctx, run)
				return run.Status != nil && len(run.Status.Steps) > 0, err
			})
			if err != nil {
				return err
			}
			return a.delete(ctx, run)
		})
	})
}

func longStepsOf(count int, topic string, n, i int) []v1alpha1.Step {
	macros := strings.Repeat("[1].map(x,x).size()+", longMacros)
	steps := make([]v1alpha1.Step, 0, count)
	for j := range count {
		var b strings.Builder
		for k := range longExpressions {
			fmt.Fprintf(&b, `,"k%d":"${%s%d}"`, k, macros, ((n*8+i)*count+j)*longExpressions+k)
		}
		s := step(fmt.Sprintf("s%03d", j), topic)
		s.Job.Input = &runtime.RawExtension{Raw: []byte("{" + b.String()[1:] + "}")}
		steps = append(steps, s)
	}
	return steps
}
