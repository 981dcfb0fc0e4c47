// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// WithSteps gives a run the steps of the Workflow that it follows. Where these may not be read, or
// are gone, they are those of its status, of which less is known.
func WithSteps(ctx context.Context, c client.Reader, run *v1alpha1.WorkflowRun) (*v1alpha1.WorkflowRun, error) {
	if run.Spec.WorkflowRef == nil || run.Status == nil || run.Status.Workflow == nil {
		return run, nil
	}
	content, err := Revision(ctx, c, run.Namespace, *run.Status.Workflow)
	switch {
	case errors.Is(err, revisions.ErrGone), apierrors.IsForbidden(err):
		return outlined(run), nil
	case err != nil:
		return nil, err
	}
	return content.Effective(run, content.WithDefaults(run.Spec.Inputs)), nil
}

// Revision reads what a revision of a Workflow has.
func Revision(ctx context.Context, c client.Reader, namespace string, r v1alpha1.WorkflowRevision) (*template.Content, error) {
	store := revisions.Store{Live: c}
	content, _, err := store.Load(ctx, namespace, r)
	return content, err
}

// outlined is a run with steps as far as its status tells of them.
func outlined(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	next := *run
	for i := range run.Status.Steps {
		s := &run.Status.Steps[i]
		is := v1alpha1.Step{Name: s.Name}
		switch {
		case s.ChildRun != nil:
			is.Run = &v1alpha1.ChildRun{}
		case s.Approval != nil || s.Phase == v1alpha1.StepWaiting:
			is.Approval = &v1alpha1.Approval{}
		case s.DelayedUntil != nil:
			is.Delay = &v1alpha1.Delay{}
		default:
			is.Job = &v1alpha1.Job{}
		}
		next.Spec.Steps = append(next.Spec.Steps, is)
	}
	return &next
}
