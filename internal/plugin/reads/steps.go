// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// ErrHidden is wrapped by the error of WithSteps if the steps may not be read.
var ErrHidden = errors.New("you may not get it (controllerrevisions), and less is known of its steps")

// WithSteps gives a run the steps of the Workflow that it follows. Where these may not be read, or
// are gone, they are those of its status, of which less is known, and finallyTimeoutSeconds is
// runview.RevisionGone or runview.RevisionUnread. So they are with an error, too. That they are
// gone is none.
func WithSteps(ctx context.Context, c client.Reader, run *v1alpha1.WorkflowRun) (*v1alpha1.WorkflowRun, error) {
	if run.Spec.WorkflowRef == nil || run.Status == nil || run.Status.Workflow == nil {
		return run, nil
	}
	content, err := Revision(ctx, c, run.Namespace, *run.Status.Workflow)
	switch is := run.Status.Workflow; {
	case errors.Is(err, revisions.ErrGone):
		return outlined(run, runview.RevisionGone), nil
	case apierrors.IsForbidden(err):
		return outlined(run, runview.RevisionUnread), fmt.Errorf("revision %s of Workflow %s: %w", is.Revision, is.Name, ErrHidden)
	case err != nil:
		return outlined(run, runview.RevisionUnread), err
	}
	return content.Effective(run, content.WithDefaults(run.Spec.Inputs)), nil
}

// maxRevisions bounds the revisions that are read for one answer.
const maxRevisions = 100

// LocksOfWaiting gives runs that wait for locks the steps and the locks of the Workflows that they
// follow. Each revision is read once, and 100 at most. Runs whose revision may not be read, is
// gone, or is one too many stay as they are. Outlines get no inputs.
func LocksOfWaiting(ctx context.Context, c client.Reader, seen Seen) error {
	type revision struct {
		namespace string
		v1alpha1.WorkflowRevision
	}
	read := map[revision]*template.Content{}
	for i := range seen.Runs {
		run := &seen.Runs[i]
		if run.Spec.WorkflowRef == nil || run.Status == nil || run.Status.Workflow == nil || !runview.WaitsForLocks(run) {
			continue
		}
		key := revision{run.Namespace, *run.Status.Workflow}
		content, known := read[key]
		if !known && len(read) < maxRevisions {
			var err error
			if content, err = readable(ctx, c, run.Namespace, *run.Status.Workflow); err != nil {
				return err
			}
			read[key] = content
		}
		if content != nil {
			*run = *content.Effective(run, inputsOf(run, content, seen.Whole[run.UID]))
		}
	}
	return nil
}

// inputsOf are those that expressions read; nil: none is evaluated of an outline.
func inputsOf(run *v1alpha1.WorkflowRun, content *template.Content, whole bool) []byte {
	if !whole {
		return nil
	}
	return content.WithDefaults(run.Spec.Inputs)
}

// readable is what a revision of a Workflow has; nil: it is gone, or may not be read.
func readable(ctx context.Context, c client.Reader, namespace string, r v1alpha1.WorkflowRevision) (*template.Content, error) {
	content, err := Revision(ctx, c, namespace, r)
	if errors.Is(err, revisions.ErrGone) || apierrors.IsForbidden(err) {
		return nil, nil //nolint:nilnil // as it says
	}
	return content, err
}

// Revision reads what a revision of a Workflow has.
func Revision(ctx context.Context, c client.Reader, namespace string, r v1alpha1.WorkflowRevision) (*template.Content, error) {
	store := revisions.Store{Live: c}
	content, _, err := store.Load(ctx, namespace, r)
	return content, err
}

// outlined is a run with steps as far as its status tells of them, and with why the time of its
// finally steps is not known: what it has there is a default of the API server.
func outlined(run *v1alpha1.WorkflowRun, why int32) *v1alpha1.WorkflowRun {
	next := *run
	next.Spec.FinallyTimeoutSeconds = why
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
