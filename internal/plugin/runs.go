// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

func (a *app) treeCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "tree RUN",
		Short: "Show the steps of a run as a tree",
		Long: `Show the steps of a run as a tree, with phase, attempt, duration, and what they wait for or why they failed.

A step stands below its last dependency in the order of the spec; WHY names the others. The duration is that of the last
attempt: from when its worker said Started, or else from its dispatch, to its end or so far.`,
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := output(format, formatText, formatJSON); err != nil {
				return err
			}
			run, c, err := shownRun(cmd.Context(), a, given[0])
			if err = noteHidden(a, err); run == nil {
				return err
			}
			kids, noKids := reads.Children(cmd.Context(), c, run)
			unread := errors.Join(err, noKids) // told after the tree
			tree := runview.TreeOf(run, a.Clock.Now(), kids...)
			if format == formatJSON {
				return errors.Join(a.writeJSON(tree), unread)
			}
			return errors.Join(tree.Text(a.Out, a.Color), unread)
		},
	}
	bindOutput(cmd, &format, formatText)
	return cmd
}

// whyPatience is how long the API server may take to show the run, and for each question beside
// it: who asks why a run waits is to know soon if that is why.
const whyPatience = 5 * time.Second

// soon is a reader that waits for each answer on its own, whyPatience long.
type soon struct{ client.Reader }

func (s soon) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	ctx, cancel := context.WithTimeout(ctx, whyPatience)
	defer cancel()
	return s.Reader.Get(ctx, key, object, opts...)
}

func (s soon) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	ctx, cancel := context.WithTimeout(ctx, whyPatience)
	defer cancel()
	return s.Reader.List(ctx, list, opts...)
}

// othersPatience is how long the API server may take for each page of runs under way: there may be
// very many, and the link may be slow.
const othersPatience = 30 * time.Second

// byPage is a reader that waits for each list on its own, and so for each page,
// othersPatience long.
type byPage struct{ client.Reader }

func (b byPage) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	ctx, cancel := context.WithTimeout(ctx, othersPatience)
	defer cancel()
	return b.Reader.List(ctx, list, opts...)
}

// whatOf is a run, and what of beside it an answer tells.
type whatOf struct {
	run   *v1alpha1.WorkflowRun // with the steps of its Workflow
	rules []v1alpha1.LockPolicy // nil: not known
	kids  []v1alpha1.WorkflowRun
	// unread is which questions beside the run have no answer: what is known is told without them.
	unread error
}

// runSoon reads one run with what is beside it, and says so if the API server does not answer.
func (a *app) runSoon(ctx context.Context, name string) (whatOf, client.Client, error) {
	bounded, cancel := context.WithTimeout(ctx, whyPatience)
	defer cancel()
	run, c, err := a.storedRun(bounded, name)
	if err != nil {
		return whatOf{}, nil, unanswered(err)
	}
	run, noSteps := reads.WithSteps(ctx, soon{c}, run)
	rules, noRules := reads.Policies(ctx, soon{c})
	kids, noKids := reads.Children(ctx, soon{c}, run)
	return whatOf{run, rules, kids, errors.Join(noteHidden(a, noSteps), noRules, noKids)}, c, ctx.Err()
}

func (a *app) whyCommand() *cobra.Command {
	var format, operator string
	var store redisFlags
	cmd := &cobra.Command{
		Use:   "why RUN",
		Short: "Say what a run waits for, since when, and when it is looked at next; or how it ended",
		Long: `Say what a run waits for, since when, and when it is looked at next; or how it ended.

It reads the run's conditions, steps, child runs, lock and deadlines, the LockPolicies if you may see them and, for a run that waits to be
admitted or for locks across runs, the other runs. If you may read the operator's namespace, it says which replica drives the run. With --redis-addrs it also reads the run's lock: who holds it now, until when, and how many wait.
Else a holder is the one of the last write. What Redis or the API server does not answer is left out, and the exit code is 1. Of a run that waits for an answer it also asks NATS, if that can be reached with --nats-url: whether an answer
was put aside as a dead letter, and how often a job was delivered.`,
		Args:              args(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := output(format, formatText, formatJSON); err != nil {
				return err
			}
			of, c, err := a.runSoon(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			run, rules, now := of.run, of.rules, a.Clock.Now()
			answer := runview.Why(run, rules, now, of.kids...)
			alone := a.seeWaits(cmd.Context(), c, &answer, run, rules)
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			unread := errors.Join(of.unread, alone, a.seeLock(cmd.Context(), &store, &answer, run, rules)) // told after the answer
			seeOwner(cmd.Context(), c, operator, &answer, run, now)
			a.seeJobs(cmd.Context(), c, &answer, run, cmd.Flags().Changed(flagURL))
			if format == formatJSON {
				return errors.Join(a.writeJSON(answer), unread)
			}
			return errors.Join(answer.Text(a.Out, now, a.Color), unread)
		},
	}
	cmd.Flags().StringVar(&operator, "operator-namespace", operatorNamespace, "Namespace of the operator.")
	store.bind(cmd, "Redis is not asked")
	a.nats.bind(cmd)
	bindOutput(cmd, &format, formatText)
	return cmd
}

// seeWaits adds who else a run waits for: its place in the queue, and who holds its locks. The
// error is why it cannot say so: the answer stands without it.
func (a *app) seeWaits(ctx context.Context, c client.Client, answer *runview.Answer, run *v1alpha1.WorkflowRun, rules []v1alpha1.LockPolicy) error {
	queued := answer.Phase == v1alpha1.RunQueued
	if !queued && !runview.WaitsForLocks(run) {
		return nil
	}
	others := byPage{c}
	seen, err := a.underWay(ctx, others, run.Namespace, reads.Locks, "")
	switch {
	case apierrors.IsForbidden(err):
		answer.Alone(err)
		return nil
	case err != nil:
		answer.Alone(err)
		return err
	case queued:
		answer.Stands(runview.PlaceOf(run, seen.Runs, rules, seen.All && !seen.More))
	}
	return a.seeLocks(ctx, others, answer, run, seen)
}

func bindOutput(cmd *cobra.Command, format *string, standard string) {
	cmd.Flags().StringVarP(format, "output", "o", standard, "Format: "+standard+" or json.")
}
