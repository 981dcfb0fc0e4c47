// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/actions"
)

const (
	defaultWait = 5 * time.Second
	maxWait     = time.Hour
)

// decision is what one call of approve or reject was told.
type decision struct {
	what      v1alpha1.ApprovalDecision
	run, step string
	comment   string
	output    string // JSON; "": none
	wait      time.Duration
}

func (a *app) approveCommand() *cobra.Command {
	d := &decision{what: v1alpha1.Approve}
	cmd := a.decideCommand(d, &cobra.Command{
		Use:   "approve RUN STEP",
		Short: "Approve a step that waits for it",
		Long: `Approve a step that waits for it: it succeeds and the run goes on.

It creates a StepApproval in your name, as the API server knows it; the cluster role syncopate-approve gives the right to do so. The
first decision about a step counts. It may be made before the step begins to wait.`,
	})
	cmd.Flags().StringVar(&d.output, "output", "", "JSON object that becomes the output of the step, at most 4 KiB.")
	return cmd
}

func (a *app) rejectCommand() *cobra.Command {
	return a.decideCommand(&decision{what: v1alpha1.Reject}, &cobra.Command{
		Use:   "reject RUN STEP",
		Short: "Reject a step that waits for approval",
		Long: `Reject a step that waits for approval: it fails with code Rejected.

It creates a StepApproval in your name, as the API server knows it; the cluster role syncopate-approve gives the right to do so. The
first decision about a step counts. It may be made before the step begins to wait.`,
	})
}

// decideCommand makes cmd a command that decides.
func (a *app) decideCommand(d *decision, cmd *cobra.Command) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = args(cobra.ExactArgs(2)), a.completeApprovals
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		d.run, d.step = given[0], given[1]
		if err := d.check(); err != nil {
			return err
		}
		return a.decide(cmd.Context(), *d)
	}
	cmd.Flags().StringVar(&d.comment, "comment", "", "Why, for the status of the step.")
	cmd.Flags().DurationVar(&d.wait, "wait", defaultWait, "How long to wait until the run shows the decision; 0: not at all.")
	return cmd
}

func (d *decision) check() error {
	if d.wait < 0 || d.wait > maxWait {
		return usagef("--wait %s: need 0s to %s", d.wait, maxWait)
	}
	if d.output == "" {
		return nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(d.output), &object); err != nil || object == nil {
		return usagef("--output: need a JSON object")
	}
	var short bytes.Buffer
	if err := json.Compact(&short, []byte(d.output)); err != nil {
		return usagef("--output: %w", err)
	}
	if short.Len() > actions.MaxOutputBytes {
		return usagef("--output has %d bytes: at most %d can be", short.Len(), actions.MaxOutputBytes)
	}
	d.output = short.String()
	return nil
}

// decide makes the decision and tells what became of it.
func (a *app) decide(ctx context.Context, d decision) error {
	run, c, err := a.run(ctx, d.run)
	if err != nil {
		return err
	}
	seen := sightingOf(run)
	if d.wait > 0 {
		_ = seen.again(ctx, c) // its end is looked for from here on; without that, from its last write on
	}
	made, err := actions.Decide(ctx, c, run, actions.Decision{What: d.what, Step: d.step, Comment: d.comment, Output: d.output}, a.Clock.Now())
	if err != nil {
		return err
	}
	return a.follow(ctx, c, seen, made, d.wait)
}

// completeApprovals offers the names of runs, then those of the steps of one that
// wait for approval.
func (a *app) completeApprovals(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(given) != 1 {
		return a.completeRuns(cmd, given, prefix)
	}
	run, _, err := a.run(cmd.Context(), given[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, name := range actions.Approvals(run) {
		if s := actions.Step(run, name); s.Approval == nil && !actions.Over(s.Phase) {
			names = append(names, fmt.Sprintf("%s\t%s", name, s.Phase))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
