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
)

// End asks a run to end early.
func End(ctx context.Context, c client.Client, namespace, name, uid string, how v1alpha1.ShutdownMode) error {
	return change(ctx, c, namespace, name, uid, map[string]any{"shutdown": how})
}

// Suspend has a run begin no new jobs, or go on.
func Suspend(ctx context.Context, c client.Client, namespace, name, uid string, suspend bool) error {
	return change(ctx, c, namespace, name, uid, map[string]any{"suspend": suspend})
}

// change sets fields of spec. The API server refuses it, as a conflict, if the run of that name is
// another one than was meant.
func change(ctx context.Context, c client.Client, namespace, name, uid string, fields map[string]any) error {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "spec": fields})
	if err != nil {
		return fmt.Errorf("change run: %w", err)
	}
	run := &v1alpha1.WorkflowRun{}
	run.Namespace, run.Name = namespace, name
	err = c.Patch(ctx, run, client.RawPatch(types.MergePatchType, raw))
	if another(err) {
		err = apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "workflowruns"}, name,
			errors.New("it is another run than the one that you saw"))
	}
	if err != nil {
		return fmt.Errorf("change run %s/%s: %w", namespace, name, err)
	}
	return nil
}

// another says whether a change was refused since the object has another UID.
func another(err error) bool {
	refused, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsInvalid(err) && refused.ErrStatus.Details != nil &&
		slices.ContainsFunc(refused.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}
