// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/actions"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
)

func (a *workflows) rerunCommand() *cobra.Command {
	s, fromFailed := &submission{}, false
	cmd := &cobra.Command{
		Use:   "rerun RUN",
		Short: "Run again what a run did, from the start or from what failed",
		Long: `Run again what a run did: create a run with the same spec and inputs. With --from-failed, steps that succeeded or were skipped are not
done again: the new run has their outputs. Steps that depend on one that is done again are, too, and so are those whose output is too large for
status, and the clean-up.

A run that follows a workflow is run again with the revision that it had, whatever the workflow is now. --revision current takes the
current one, and cannot be given with --from-failed. Labels and annotations are taken over, but for those of
syncopate.dev and of kubectl apply; syncopate.dev/step-events is. The idempotency key is not taken over, and neither are suspend and shutdown.
A child run cannot be run again without its parent, and a run with a delay.until that has passed only with --from-failed.`,
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := s.check(); err != nil {
				return err
			}
			return a.rerun(cmd.Context(), given[0], s, fromFailed)
		},
	}
	s.bind(cmd)
	cmd.Flags().BoolVar(&fromFailed, "from-failed", false, "Do again only what the run has not done.")
	cmd.Flags().StringVar(&s.revision, "revision", "", "Revision of the workflow, or how it begins, or current; none: that of the run.")
	return cmd
}

func (a *workflows) rerun(ctx context.Context, name string, s *submission, fromFailed bool) error {
	if fromFailed && s.revision != "" {
		return usagef("with --from-failed a run has the revision of the other one: leave out --revision")
	}
	was, c, err := a.storedRun(ctx, name)
	if err != nil {
		return err
	}
	var next *v1alpha1.WorkflowRun
	if fromFailed {
		next, err = a.againFrom(ctx, c, was)
	} else {
		next, err = actions.Again(was, a.Clock.Now())
	}
	if err != nil {
		return err
	}
	if s.name != "" {
		next.Name, next.GenerateName = s.name, ""
	}
	if err := chooseRevision(ctx, c, was, next.Spec.WorkflowRef, s.revision); err != nil {
		return err
	}
	if err := actions.Create(ctx, c, was, next); err != nil {
		return err
	}
	return a.created(ctx, c, next, s)
}

// againFrom is a run that does again what another one did not do. What cleans up below that one
// would do so beside it.
func (a *workflows) againFrom(ctx context.Context, c client.Reader, was *v1alpha1.WorkflowRun) (*v1alpha1.WorkflowRun, error) {
	next, err := actions.AgainFrom(was)
	if err != nil {
		return nil, err
	}
	child, err := reads.Below(ctx, c, was)
	if err != nil {
		return nil, err
	}
	if child != nil {
		return nil, actions.CleansUp(was, child)
	}
	return next, nil
}

// chooseRevision has a run follow the given revision; "": the one that it has already.
func chooseRevision(ctx context.Context, c client.Reader, was *v1alpha1.WorkflowRun, ref *v1alpha1.WorkflowReference, given string) error {
	switch {
	case given == "":
		return nil
	case ref == nil:
		return usagef("run %s has steps of its own: it has no revision", was.Name)
	case given == theCurrent:
		ref.Revision = ""
		return nil
	default:
		var err error
		ref.Revision, err = fullRevision(ctx, c, was.Namespace, ref.Name, given)
		return err
	}
}
