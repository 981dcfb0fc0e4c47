// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

func (a *app) tenantsCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "tenants",
		Short: "Show limit, use and waiting runs of each tenant, and who lends from whom",
		Long: `Show limit, use and waiting runs of each tenant, by LockPolicy. Where tenants share a total, a second table shows what each is
guaranteed, and who uses what another is guaranteed.

It counts the runs of all namespaces, or of the current one if you may not list the others: then a tenant may use more than you see.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output(format, formatTable, formatJSON); err != nil {
				return err
			}
			c, namespace, err := a.Cluster()
			if err != nil {
				return err
			}
			runs, all, err := allRuns(cmd.Context(), c, namespace)
			if err != nil {
				return err
			}
			if !all {
				a.note("Only the runs of namespace %s are counted: you may not list those of others.", namespace)
			}
			rules, err := policies(cmd.Context(), c)
			if err != nil {
				return err
			}
			tenants := runview.Tenants(runs, rules)
			if format == formatJSON {
				return a.writeJSON(tenants)
			}
			if len(tenants) == 0 {
				a.note("No run is under way or waits.")
				return nil
			}
			return runview.TenantsText(a.Out, tenants, a.Clock.Now())
		},
	}
	bindOutput(cmd, &format, formatTable)
	return cmd
}

// allRuns lists the runs of all namespaces or, where that is forbidden, of one; all says which.
func allRuns(ctx context.Context, c client.Reader, namespace string) (runs []v1alpha1.WorkflowRun, all bool, err error) {
	runs, err = runsIn(ctx, c, "")
	if apierrors.IsForbidden(err) {
		runs, err = runsIn(ctx, c, namespace)
		return runs, false, err
	}
	return runs, true, err
}

func runsIn(ctx context.Context, c client.Reader, namespace string) ([]v1alpha1.WorkflowRun, error) {
	var runs []v1alpha1.WorkflowRun
	next := ""
	for range maxPages {
		var list v1alpha1.WorkflowRunList
		if err := c.List(ctx, &list, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("list runs: %w", err)
		}
		for i := range list.Items {
			if st := list.Items[i].Status; st != nil && st.CompletedAt == nil { // the others have no part in it
				runs = append(runs, list.Items[i])
			}
		}
		if next = list.Continue; next == "" {
			break
		}
	}
	return runs, nil
}
