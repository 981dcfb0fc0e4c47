// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

const rolloutHelp = `Show how an edit of a LockPolicy is tried on a part of the runs, and decide about it.

Spec has a rollout with strategy Canary. An edit of runLock makes a candidate, which has the runs of the canary; as many others are the
control, under the baseline. An edit of strategy or lock of admission is tried on tenant-minutes: each minute, each tenant is in an arm
by chance. The operator goes on or back by evidence; promote and abort say so without it.`

// rollouts are the commands about rollouts of LockPolicies.
type rollouts struct{ *app }

func (a *rollouts) rolloutCommand() *cobra.Command {
	return group(&cobra.Command{Use: "rollout", Short: "Show, promote or abort the rollout of a LockPolicy", Long: rolloutHelp},
		a.rolloutStatusCommand(), a.rolloutHistoryCommand(),
		a.decideRolloutCommand("promote", "Put the candidate in force for all runs, without more evidence; also one that was rolled back"),
		a.decideRolloutCommand("abort", "Take the candidate back from all runs; spec stays as it is"))
}

// lockPolicy reads the policy of a rollout.
func (a *rollouts) lockPolicy(ctx context.Context, name string) (*v1alpha1.LockPolicy, error) {
	c, _, err := a.Cluster()
	if err != nil {
		return nil, err
	}
	p := &v1alpha1.LockPolicy{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
		return nil, fmt.Errorf("read lock policy: %w", err)
	}
	return p, rolling(p)
}

// rolling says that a policy has no rollout.
func rolling(p *v1alpha1.LockPolicy) error {
	if p.Status == nil || p.Status.Rollout == nil {
		return fmt.Errorf("lock policy %s has no rollout: its edits are in force at once. See spec.rollout", p.Name)
	}
	return nil
}

// lookedAt reads the policy of a rollout, with a status that is of its last edit. Until then status
// tells of the candidate before, or of none.
func (a *rollouts) lookedAt(ctx context.Context, name string, limit time.Duration) (client.Client, *v1alpha1.LockPolicy, error) {
	c, _, err := a.Cluster()
	if err != nil {
		return nil, nil, err
	}
	p := &v1alpha1.LockPolicy{}
	late, err := until(ctx, limit, func(ctx context.Context) (bool, error) {
		now := &v1alpha1.LockPolicy{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, now); err != nil {
			return false, err
		}
		p = now // a read that fails keeps what the one before said
		return p.Status != nil && p.Status.ObservedGeneration >= p.Generation, nil
	})
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("read lock policy: %w", err)
	case late:
		return nil, nil, fmt.Errorf("the operator has not looked at generation %d of lock policy %s yet; try again", p.Generation, name)
	}
	return c, p, rolling(p)
}

func (a *rollouts) rolloutStatusCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "status POLICY", Short: "Show where a rollout is, and what was counted", Args: args(cobra.ExactArgs(1)),
		Long: `Show where a rollout is, and what was counted of both arms.

CONTENDED are runs whose lock was busy, BUSY those that found it busy again when they tried it again. P95 is the upper bound of a bucket.
UNIT is what has an arm and a vote: Run, or TenantMinute, of which one start votes.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := output(format, formatTable, formatJSON); err != nil {
				return err
			}
			p, err := a.lockPolicy(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			if format == formatJSON {
				return a.writeJSON(p.Status.Rollout)
			}
			return a.rolloutText(p.Status.Rollout)
		},
	}
	bindOutput(cmd, &format, formatTable)
	return cmd
}

func (a *rollouts) rolloutText(r *v1alpha1.LockPolicyRolloutStatus) error {
	w := tabwriter.NewWriter(a.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "PHASE\t%s\n", r.Phase)
	units, column := "runs", "RUNS"
	if policy.UnitOf(r) == rollout.TenantMinute {
		units, column = "minutes of each tenant", "MINUTES"
	}
	fmt.Fprintf(w, "UNIT\t%s\n", policy.UnitOf(r))
	if r.Percent > 0 {
		fmt.Fprintf(w, "CANARY\t%d percent of the %s, for %s\n", r.Percent, units, a.Clock.Since(r.ChangedAt.Time).Round(time.Second))
	}
	fmt.Fprintf(w, "BASELINE\t%s\n", r.Baseline.Name)
	if r.Candidate != nil {
		fmt.Fprintf(w, "CANDIDATE\t%s\n", r.Candidate.Name)
		for _, change := range policy.CandidateChanges(r) {
			fmt.Fprintf(w, "CHANGE\t%s\n", change)
		}
	}
	fmt.Fprintf(w, "REASON\t%s: %s\n", r.Reason, r.Message)
	if r.Canary != nil || r.Control != nil {
		fmt.Fprint(w, "\nARM\t"+column+"\tENDED\tCONTENDED\tBUSY\tP95 WAIT\tP95 LATENCY\tABANDONED\tFENCES\tDEAD LETTERS\n")
		arm(w, "canary", r.Canary)
		arm(w, "control", r.Control)
	}
	return w.Flush()
}

func arm(w *tabwriter.Writer, name string, c *v1alpha1.RolloutCounts) {
	if c == nil {
		c = &v1alpha1.RolloutCounts{}
	}
	var waits, latencies rollout.Histogram
	copy(waits[:], c.Waits)
	copy(latencies[:], c.Latencies)
	const tail = 0.95
	fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%s\t%s\t%d\t%d\t%d\n", name, c.Runs, c.Ended, c.Contended, c.Busy,
		waits.Quantile(tail), latencies.Quantile(tail), c.Abandoned, c.FenceRefused, c.DeadLettered)
}

func (a *rollouts) rolloutHistoryCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "history POLICY", Short: "Show what became of the last candidates", Args: args(cobra.ExactArgs(1)),
		Long: `Show what became of the last candidates, the latest last. Their content is in ControllerRevisions beside the operator, whose command
it notes.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := output(format, formatTable, formatJSON); err != nil {
				return err
			}
			p, err := a.lockPolicy(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			if format == formatJSON {
				return a.writeJSON(p.Status.Rollout.History)
			}
			w := tabwriter.NewWriter(a.Out, 0, 0, 3, ' ', 0)
			fmt.Fprint(w, "REVISION\tOUTCOME\tENDED\tCHANGES\n")
			for _, h := range p.Status.Rollout.History {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", h.Name, h.Reason, h.EndedAt.UTC().Format(time.RFC3339), strings.Join(h.Changes, ", "))
			}
			a.note("Their content: kubectl -n %s get controllerrevisions -l %s=%s -o yaml", operatorNamespace, policy.LabelRevisions, policy.RevisionsLabel(p.Name))
			return w.Flush()
		},
	}
	bindOutput(cmd, &format, formatTable)
	return cmd
}

func (a *rollouts) decideRolloutCommand(verb, short string) *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use: verb + " POLICY", Short: short, Args: args(cobra.ExactArgs(1)),
		Long: short + ".\n\nIt waits until the operator has looked at the last edit of the policy. Then it writes the annotation " + v1alpha1.AnnotationRollout +
			", with the name of the candidate that you see, and fails if the policy is edited meanwhile.",
		RunE: func(cmd *cobra.Command, given []string) error {
			if limit < 0 || limit > maxWait {
				return usagef("--wait %s: need 0s to %s", limit, maxWait)
			}
			c, p, err := a.lookedAt(cmd.Context(), given[0], limit)
			if err != nil {
				return err
			}
			return a.decideRollout(cmd.Context(), c, p, verb)
		},
	}
	cmd.Flags().DurationVar(&limit, "wait", defaultWait, "How long to wait until the operator has looked at the last edit; 0: not at all.")
	return cmd
}

// decideRollout tells the operator what to do with the candidate of a policy.
func (a *rollouts) decideRollout(ctx context.Context, c client.Client, p *v1alpha1.LockPolicy, verb string) error {
	candidate, err := annotateCandidate(ctx, c, p, verb)
	if apierrors.IsConflict(err) { // a status that the operator wrote, as it does each 30 s, or an edit
		candidate, err = annotateAgain(ctx, c, p, verb)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "candidate %s of lock policy %s: %s asked for\n", candidate, p.Name, verb)
	return nil
}

// annotateAgain reads a policy that was written since p was read, and asks for the same unless that
// was an edit.
func annotateAgain(ctx context.Context, c client.Client, p *v1alpha1.LockPolicy, verb string) (candidate string, err error) {
	now := &v1alpha1.LockPolicy{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(p), now); err != nil {
		return "", fmt.Errorf("read lock policy: %w", err)
	}
	if now.UID != p.UID || now.Generation != p.Generation {
		return "", fmt.Errorf("lock policy %s was edited meanwhile: nothing is asked for; look at its rollout, and try again", p.Name)
	}
	if err := rolling(now); err != nil {
		return "", err
	}
	return annotateCandidate(ctx, c, now, verb)
}

// annotateCandidate asks the operator to promote or abort the candidate of a policy, and fails if
// the policy was written since it was read.
func annotateCandidate(ctx context.Context, c client.Client, p *v1alpha1.LockPolicy, verb string) (candidate string, err error) {
	r := p.Status.Rollout
	switch phase := rollout.Phase(r.Phase); {
	case phase == rollout.Progressing, phase == rollout.Holding, phase == rollout.RolledBack && verb == "promote":
	default:
		return "", fmt.Errorf("nothing to %s: the rollout is %s", verb, r.Phase)
	}
	next := p.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[v1alpha1.AnnotationRollout] = verb + " " + r.Candidate.Name
	if err := c.Patch(ctx, next, client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{})); err != nil {
		return "", fmt.Errorf("annotate lock policy: %w", err)
	}
	return r.Candidate.Name, nil
}
