// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Formats of the flag -o.
const (
	formatText  = "text"
	formatTable = "table"
	formatJSON  = "json"
)

// NewCommand is kubectl syncopate with all its commands.
func NewCommand(env Env) *cobra.Command {
	a := &app{Env: env}
	root := &cobra.Command{
		Use:   "kubectl-syncopate",
		Short: "Run workflows of Syncopate, look at runs, their tenants and locks, decide approvals, and redrive dead letters",
		Long: `Run workflows of Syncopate, look at runs, their tenants and locks, decide approvals, and redrive dead letters.

The cluster is found like kubectl finds it: --kubeconfig, $KUBECONFIG, ~/.kube/config, --context, --namespace.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl syncopate"},
		Version:       env.Build.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usagef("%w; see %s --help", err, cmd.CommandPath()) })
	if a.Config == nil {
		a.Config = bindConfig(root.PersistentFlags())
	}
	if a.Cluster == nil {
		a.Cluster = connected(a.Config)
	}
	w := &workflows{a}
	group(root, w.submitCommand(), w.rerunCommand(), w.diffCommand(), a.treeCommand(), a.whyCommand(), a.approveCommand(), a.rejectCommand(), a.tenantsCommand(), locksCommand(a), a.runLocksCommand(), a.shardsCommand(), (&rollouts{a}).rolloutCommand(), a.simulateCommand(), nextCommand(a), checkCommand(a), verifyCommand(a), auditCommand(a), bundleCommand(a), a.consoleCommand(), permissionsCommand(a), group(&cobra.Command{
		Use: "dead-letters", Aliases: []string{"dead-letter", "dl"}, Short: "List, show and redrive messages that were put aside", Long: deadLettersHelp,
	}, a.listCommand(), a.showCommand(), a.redriveCommand()), a.versionCommand())
	return root
}

// group makes parent a command that only has others.
func group(parent *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	parent.Args = args(cobra.NoArgs)
	parent.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	parent.AddCommand(commands...)
	return parent
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this plugin", Args: args(cobra.NoArgs),
		Long: "Print the version of this plugin, and what it was built from. No cluster is asked.",
		RunE: func(*cobra.Command, []string) error {
			fmt.Fprintln(a.Out, "kubectl-syncopate", a.Build)
			return nil
		},
	}
}
