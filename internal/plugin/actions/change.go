// SPDX-License-Identifier: Apache-2.0

package actions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// End asks a run to end early. One that has ended is terminated for its own child runs, which may
// still clean up: they end at once.
func End(ctx context.Context, c client.Client, run *v1alpha1.WorkflowRun, how v1alpha1.ShutdownMode) error {
	if err := over(run); err != nil && (how != v1alpha1.ShutdownTerminate || !runview.HasChildren(run)) {
		return err
	}
	return change(ctx, c, run, map[string]any{"shutdown": how})
}

// Suspend has a run begin no new jobs, or go on.
func Suspend(ctx context.Context, c client.Client, run *v1alpha1.WorkflowRun, suspend bool) error {
	if err := over(run); err != nil {
		return err
	}
	return change(ctx, c, run, map[string]any{"suspend": suspend})
}

// change sets fields of the spec of a run that was read a moment ago. The API server refuses it, as
// a conflict, if the run of that name is another one by now.
func change(ctx context.Context, c client.Client, run *v1alpha1.WorkflowRun, fields map[string]any) error {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": run.UID}, "spec": fields})
	if err != nil {
		return fmt.Errorf("change run: %w", err)
	}
	now := &v1alpha1.WorkflowRun{}
	now.Namespace, now.Name = run.Namespace, run.Name
	err = c.Patch(ctx, now, client.RawPatch(types.MergePatchType, raw))
	if another(err) {
		err = isAnother(run)
	}
	if err != nil {
		return fmt.Errorf("change run %s/%s: %w", run.Namespace, run.Name, err)
	}
	return nil
}

// over refuses what is asked of a run that has ended: nothing would come of it.
func over(run *v1alpha1.WorkflowRun) error {
	if st := run.Status; st != nil && st.CompletedAt != nil {
		return useless("run %s/%s is over: it ended as %s at %s", run.Namespace, run.Name, st.Phase, st.CompletedAt.UTC().Format(timeFormat))
	}
	return nil
}

// isAnother is the refusal of an action about a run whose name another one has by now.
func isAnother(run *v1alpha1.WorkflowRun) error {
	return apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "workflowruns"}, run.Name,
		errors.New("it is another run than the one that you saw"))
}

// another says whether a change was refused since the object has another UID.
func another(err error) bool {
	refused, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsInvalid(err) && refused.ErrStatus.Details != nil &&
		slices.ContainsFunc(refused.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}
