// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

const (
	hotItems    = 1000
	hotParallel = 50
)

// HotRun does no harm, but much work. It is none of Kinds.
func HotRun() Kind {
	return Kind{"hot-run", fmt.Sprintf("one run of %d items, %d at a time, whose workers answer at once, and then the next", hotItems, hotParallel), hotRun}
}

func hotRun(ctx context.Context, a *Attack) error {
	const topic = "hostile.hot"
	if err := a.serve(ctx, topic, hotParallel, func(context.Context, worker.Job) (any, error) { return nil, nil }); err != nil {
		return err
	}
	list, err := json.Marshal(map[string]any{"list": make([]int, a.all(hotItems, 100))})
	if err != nil {
		return fmt.Errorf("encode items: %w", err)
	}
	s := step("all", topic)
	s.ForEach = &v1alpha1.ForEach{Items: "${inputs.list}", MaxParallel: hotParallel}
	return a.rounds(ctx, roundLimit, func(ctx context.Context, n int) error {
		run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("hot-%d", n)}, Spec: v1alpha1.WorkflowRunSpec{
			Inputs: &runtime.RawExtension{Raw: list}, Steps: []v1alpha1.Step{s},
		}}
		if err := a.create(ctx, run); err != nil {
			return err
		}
		a.underWay()
		if err := a.finished(ctx, run); err != nil {
			return err
		}
		return a.delete(ctx, run)
	})
}
