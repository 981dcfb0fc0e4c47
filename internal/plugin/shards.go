// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const (
	// operatorNamespace is where the operator is installed, unless a flag says otherwise.
	operatorNamespace = "syncopate-system"
	// maxLeases bounds the Leases of replicas that are shown.
	maxLeases = 500
)

func (a *app) shardsCommand() *cobra.Command {
	var format, operator string
	cmd := &cobra.Command{
		Use:   "shards",
		Short: "Show which replica of the operator drives which runs",
		Long: `Show the replicas of the operator: when each last renewed its Lease, how many of the 64 partitions of runs it owns, and how many of the runs that
did not end it drives. A run belongs to a partition by its UID. One more partition is the work that is done once in an installation.

It counts the runs of all namespaces, or of the current one if you may not list the others. With a leader (--ownership=leader) there are no
partitions to show, and it names the leader.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output(format, formatTable, formatJSON); err != nil {
				return err
			}
			shards, err := a.shards(cmd.Context(), operator)
			if err != nil {
				return err
			}
			if format == formatJSON {
				return a.writeJSON(shards)
			}
			return runview.ShardsText(a.Out, shards, a.Clock.Now())
		},
	}
	cmd.Flags().StringVar(&operator, "operator-namespace", operatorNamespace, "Namespace of the operator.")
	bindOutput(cmd, &format, formatTable)
	return cmd
}

// shards reads who owns what, and counts the runs of each.
func (a *app) shards(ctx context.Context, operator string) (*runview.Shards, error) {
	c, namespace, err := a.Cluster()
	if err != nil {
		return nil, err
	}
	claims, err := reads.Claims(ctx, c, operator)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if leader := runview.Leader(reads.Leader(ctx, c, operator), a.Clock.Now()); leader != "" {
		return nil, fmt.Errorf("the operator has a leader: the leader %s drives all runs, and there are no partitions to show", leader)
	}
	if err != nil {
		return nil, fmt.Errorf("there is no ConfigMap %s/%s: the operator is elsewhere (--operator-namespace), or has a leader", operator, ownership.ObjectName)
	}
	leases := &coordinationv1.LeaseList{}
	if err := c.List(ctx, leases, client.InNamespace(operator), client.MatchingLabels{ownership.LeaseLabel: ownership.MemberLease}, client.Limit(maxLeases)); err != nil {
		return nil, fmt.Errorf("list the Leases of replicas: %w", err)
	}
	seen, err := a.underWay(ctx, c, namespace, reads.Bare, onlyCounted)
	if err != nil {
		return nil, err
	}
	return runview.ShardsOf(claims, leases.Items, seen.Runs, a.Clock.Now()), nil
}

// seeOwner adds who drives the run. Most users may not read that: then the answer has the holder of
// the last write.
func seeOwner(ctx context.Context, c client.Client, operator string, answer *runview.Answer, run *v1alpha1.WorkflowRun, now time.Time) {
	if answer.Ended {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, whyPatience)
	defer cancel()
	if owner, err := reads.Owners(bounded, c, operator, string(run.UID)); err == nil {
		answer.Owned(owner, string(run.UID), now)
	}
}
