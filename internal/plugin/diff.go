// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/revisions"
)

func (a *workflows) diffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff WORKFLOW [REVISION [REVISION]]",
		Short: "Show what changed between revisions of a workflow",
		Long: `Show what changed between revisions of a workflow, as lines of YAML that went (-) and came (+).

Without revisions: from the newest other revision to the current one. With one: from that to the current one. A revision may be named by its first
digits. Revisions are as old as their first use: after an older version was applied again, name both to see the last change.`,
		Args:              args(cobra.RangeArgs(1, 3)),
		ValidArgsFunction: a.completeWorkflows,
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.diff(cmd.Context(), given[0], given[1:])
		},
	}
}

func (a *workflows) diff(ctx context.Context, name string, given []string) error {
	w, c, _, err := a.workflow(ctx, name)
	switch {
	case err != nil:
		return err
	case w == nil:
		return fmt.Errorf("workflow %s: you may not see it", name)
	}
	upTo := theCurrent
	if len(given) > 1 {
		upTo = given[1]
	}
	to, err := revisionNamed(ctx, c, w, upTo)
	if err != nil {
		return err
	}
	from := ""
	if len(given) == 0 {
		from, err = before(ctx, c, w, to)
	} else {
		from, err = revisionNamed(ctx, c, w, given[0])
	}
	if err != nil {
		return err
	}
	return a.showDiff(ctx, c, w, from, to)
}

// revisionNamed is the revision of a Workflow that begins as given, or the current one.
func revisionNamed(ctx context.Context, c client.Reader, w *v1alpha1.Workflow, given string) (string, error) {
	if given == theCurrent {
		return currentRevision(w)
	}
	return fullRevision(ctx, c, w.Namespace, w.Name, given)
}

// before is the newest revision that is not the current one.
func before(ctx context.Context, c client.Reader, w *v1alpha1.Workflow, current string) (string, error) {
	all, err := revisionsOf(ctx, c, w.Namespace, w.Name)
	if err != nil {
		return "", err
	}
	for _, r := range all {
		if r != current {
			return r, nil
		}
	}
	return "", fmt.Errorf("workflow %s has no other revision than %s", w.Name, current)
}

func (a *workflows) showDiff(ctx context.Context, c client.Reader, w *v1alpha1.Workflow, from, to string) error {
	was, err := linesOf(ctx, c, w, from)
	if err != nil {
		return err
	}
	is, err := linesOf(ctx, c, w, to)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "--- %s %s\n+++ %s %s\n", w.Name, from, w.Name, to)
	for _, line := range changes(was, is) {
		fmt.Fprintln(a.Out, line)
	}
	return nil
}

// linesOf are the lines of a revision as it is stored: it may have fields that this version does
// not know, of a newer operator.
func linesOf(ctx context.Context, c client.Reader, w *v1alpha1.Workflow, revision string) ([]string, error) {
	store := revisions.Store{Live: c}
	data, err := store.Raw(ctx, w.Namespace, v1alpha1.WorkflowRevision{Name: w.Name, Revision: revision})
	if err != nil {
		return nil, err
	}
	text, err := yaml.JSONToYAML(data)
	if err != nil {
		return nil, fmt.Errorf("revision %s: %w", revision, err)
	}
	return strings.Split(strings.TrimRight(string(text), "\n"), "\n"), nil
}

// maxDiffLines bounds the lines of each side that are compared with each other: the table is of
// their product.
const maxDiffLines = 4000

// contextLines is how many lines that stay are shown around those that do not.
const contextLines = 3

// changes are the lines that went and came, with those around them.
func changes(was, is []string) []string {
	if len(was) > maxDiffLines || len(is) > maxDiffLines {
		return []string{fmt.Sprintf("too long to compare: %d and %d lines, more than %d", len(was), len(is), maxDiffLines)}
	}
	all := edits(was, is)
	near := make([]bool, len(all))
	for i, line := range all {
		if line[0] == ' ' {
			continue
		}
		for k := max(0, i-contextLines); k <= min(len(all)-1, i+contextLines); k++ {
			near[k] = true
		}
	}
	var shown []string
	for i, line := range all {
		switch {
		case near[i]:
			shown = append(shown, line)
		case i > 0 && near[i-1]:
			shown = append(shown, "...")
		}
	}
	return shown
}

// edits are all lines with a sign in front, by a longest common subsequence.
func edits(was, is []string) []string {
	common := commonOf(was, is)
	var all []string
	i, k := 0, 0
	for i < len(was) || k < len(is) {
		switch {
		case i < len(was) && k < len(is) && was[i] == is[k]:
			all = append(all, " "+was[i])
			i, k = i+1, k+1
		case k == len(is) || (i < len(was) && common[i+1][k] >= common[i][k+1]):
			all = append(all, "-"+was[i])
			i++
		default:
			all = append(all, "+"+is[k])
			k++
		}
	}
	return all
}

// commonOf is how many lines the rests of both have in common, by where they begin.
func commonOf(was, is []string) [][]int32 {
	common := make([][]int32, len(was)+1)
	for i := range common {
		common[i] = make([]int32, len(is)+1)
	}
	for i, line := range slices.Backward(was) {
		for k, other := range slices.Backward(is) {
			common[i][k] = max(common[i+1][k], common[i][k+1])
			if line == other {
				common[i][k] = common[i+1][k+1] + 1
			}
		}
	}
	return common
}
