// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const (
	roundLimit = time.Minute

	costlySteps = 200 // as many as a run may have
	costlyItems = 135 // of a list: its square is nearly what one expression may cost
)

// resume lets a suspended run begin.
func (a *Attack) resume(ctx context.Context, run *v1alpha1.WorkflowRun) error {
	if err := a.scene.Client.Patch(ctx, run, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":false}}`))); err != nil {
		return fmt.Errorf("resume run %s: %w", run.Name, err)
	}
	return nil
}

// largeOutputs has runs whose first step gives 8 MiB of small objects, and whose others ask
// for its size.
func largeOutputs(ctx context.Context, a *Attack) error {
	const object = `{"a":1},`
	var list bytes.Buffer
	list.WriteByte('[')
	list.WriteString(strings.Repeat(object, protocol.MaxPayloadBytes/len(object)-1))
	list.WriteString(`{}]`)
	output := json.RawMessage(list.Bytes())
	err := a.serve(ctx, "hostile.large", 4, func(context.Context, worker.Job) (any, error) { return output, nil })
	if err != nil {
		return err
	}
	if err := a.serve(ctx, "hostile.small", 4, func(context.Context, worker.Job) (any, error) { return nil, nil }); err != nil {
		return err
	}
	last := step("use", "hostile.small", "big")
	last.When = "size(steps.big.output) > 1"
	last.Job.Input = &runtime.RawExtension{Raw: []byte(`{"n":"${size(steps.big.output)}"}`)}
	spec := v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{step("big", "hostile.large"), last}}
	return a.rounds(ctx, roundLimit, func(ctx context.Context, n int) error {
		return a.each(ctx, a.runs(4, 2), func(ctx context.Context, i int) error {
			run := &v1alpha1.WorkflowRun{ObjectMeta: named("large", n, i), Spec: *spec.DeepCopy()}
			if err := a.create(ctx, run); err != nil {
				return err
			}
			id := protocol.JobID{RunUID: string(run.UID), Step: "big", Item: protocol.NoItem, Attempt: 1}
			if err := until(ctx, func() (bool, error) { return !a.log.answered(id).IsZero(), nil }); err != nil {
				return err
			}
			a.underWay()
			if err := a.finished(ctx, run); err != nil {
				return err
			}
			return a.delete(ctx, run)
		})
	})
}

// costlySpecs has runs of 200 steps, all of them ready at once, whose conditions and inputs cost as
// much as they may.
func costlySpecs(ctx context.Context, a *Attack) error {
	const costly = "inputs.list.all(a, inputs.list.all(b, a + b >= 0))"
	err := a.serve(ctx, "hostile.costly", 20, func(context.Context, worker.Job) (any, error) { return nil, nil })
	if err != nil {
		return err
	}
	list := make([]int, costlyItems)
	for i := range list {
		list[i] = i
	}
	inputs, err := json.Marshal(map[string]any{"list": list})
	if err != nil {
		return fmt.Errorf("encode inputs: %w", err)
	}
	spec := v1alpha1.WorkflowRunSpec{Inputs: &runtime.RawExtension{Raw: inputs}, MaxParallelSteps: costlySteps}
	for i := range costlySteps {
		s := step(fmt.Sprintf("s%03d", i), "hostile.costly")
		s.When = costly
		s.Job.Input = &runtime.RawExtension{Raw: []byte(`{"ok":"${` + costly + `}"}`)}
		spec.Steps = append(spec.Steps, s)
	}
	return a.rounds(ctx, 10*roundLimit, func(ctx context.Context, n int) error {
		return a.each(ctx, a.runs(8, 3), func(ctx context.Context, i int) error {
			run := &v1alpha1.WorkflowRun{ObjectMeta: named("costly", n, i), Spec: *spec.DeepCopy()}
			if err := a.create(ctx, run); err != nil {
				return err
			}
			a.underWay()
			a.note(func(f *Finding) { f.Rounds++ }) // it takes minutes to its end
			if err := a.finished(ctx, run); err != nil {
				return err
			}
			return a.delete(ctx, run)
		})
	})
}
