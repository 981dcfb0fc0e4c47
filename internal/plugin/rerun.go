// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// maxPrefix leaves room in a name for what the API server adds.
const maxPrefix = 50

func (a *workflows) rerunCommand() *cobra.Command {
	s := &submission{}
	cmd := &cobra.Command{
		Use:   "rerun RUN",
		Short: "Run again what a run did, from the start",
		Long: `Run again what a run did, from the start: create a run with the same spec and inputs.

A run that follows a workflow is run again with the revision that it had, whatever the workflow is now. --revision current takes the
current one. The idempotency key is not taken over, and neither are suspend and shutdown. A child run cannot be run again without its parent.`,
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := s.check(); err != nil {
				return err
			}
			return a.rerun(cmd.Context(), given[0], s)
		},
	}
	s.bind(cmd)
	cmd.Flags().StringVar(&s.revision, "revision", "", "Revision of the workflow, or how it begins, or current; none: that of the run.")
	return cmd
}

func (a *workflows) rerun(ctx context.Context, name string, s *submission) error {
	was, c, err := a.storedRun(ctx, name)
	if err != nil {
		return err
	}
	if was.ClaimsParent() != nil {
		return fmt.Errorf("run %s is a child of run %s: run that one again", name, was.ClaimsParent().Name)
	}
	next := &v1alpha1.WorkflowRun{Spec: *was.Spec.DeepCopy()}
	next.ObjectMeta = metav1.ObjectMeta{Namespace: was.Namespace, Name: s.name, GenerateName: prefixOf(was.Name)}
	next.Spec.IdempotencyKey, next.Spec.Suspend, next.Spec.Shutdown = "", false, ""
	if err := a.sameRevision(ctx, was, &next.Spec, s.revision); err != nil {
		return err
	}
	return a.start(ctx, c, next, s)
}

// sameRevision has a run follow the revision that another one had, or the given one.
func (a *workflows) sameRevision(ctx context.Context, was *v1alpha1.WorkflowRun, next *v1alpha1.WorkflowRunSpec, given string) error {
	switch ref := next.WorkflowRef; {
	case ref == nil && given != "":
		return usagef("run %s has steps of its own: it has no revision", was.Name)
	case ref == nil:
	case given == "current":
		ref.Revision = ""
	case given != "":
		return a.chooseRevision(ctx, ref, given)
	case was.Status != nil && was.Status.Workflow != nil:
		ref.Revision = was.Status.Workflow.Revision
	}
	return nil
}

// chooseRevision is the revision that begins as given; all of it, if the Workflow may not be seen.
func (a *workflows) chooseRevision(ctx context.Context, ref *v1alpha1.WorkflowReference, given string) error {
	w, c, _, err := a.workflow(ctx, ref.Name)
	if err != nil {
		return err
	}
	ref.Revision = given
	if w != nil {
		ref.Revision, err = a.fullRevision(ctx, c, w, given)
	}
	return err
}

// prefixOf is how the name of a run begins that runs another one again.
func prefixOf(name string) string {
	return strings.TrimRight(name[:min(len(name), maxPrefix)], "-.") + "-"
}
