// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"github.com/spf13/cobra"

	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// onlyCounted is noted where the runs of a namespace are counted in the place of all.
const onlyCounted = "Only the runs of namespace %s are counted: you may not list those of others."

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
			seen, err := a.underWay(cmd.Context(), c, namespace, reads.Bare, onlyCounted)
			if err != nil {
				return err
			}
			rules, err := reads.Policies(cmd.Context(), c)
			if err != nil {
				return err
			}
			tenants := runview.Tenants(seen.Runs, rules)
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
