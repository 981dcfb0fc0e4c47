// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const (
	defaultLimit  = 500
	maxLimit      = 100_000
	maxCauseChars = 100
)

// selection picks letters by what they are about.
type selection struct {
	run, reason string
	limit       int
}

func (s *selection) bind(cmd *cobra.Command, a *app, limit int) {
	cmd.Flags().StringVar(&s.run, "run", "", "Only those of this run; its namespace is --namespace.")
	cmd.Flags().StringVar(&s.reason, "reason", "", "Only those with this reason: "+strings.Join(deadletters.Reasons(), ", ")+".")
	cmd.Flags().IntVar(&s.limit, "limit", limit, "At most so many, the oldest first.")
	// The error is for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("run", func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return a.completeRuns(cmd, nil, prefix)
	})
}

// check also writes the reason as letters have it.
func (s *selection) check() error {
	if s.limit < 1 || s.limit > maxLimit {
		return usagef("--limit %d: need 1 to %d", s.limit, maxLimit)
	}
	if s.reason == "" {
		return nil
	}
	all := deadletters.Reasons()
	i := slices.IndexFunc(all, func(known string) bool { return strings.EqualFold(known, s.reason) })
	if i < 0 {
		return usagef("--reason %q: need one of %s", s.reason, strings.Join(all, ", "))
	}
	s.reason = all[i]
	return nil
}

// filter picks the letters that are selected.
func (a *app) filter(ctx context.Context, s selection) (deadletters.Filter, error) {
	f := deadletters.Filter{Reason: s.reason}
	if s.run != "" {
		run, _, err := a.run(ctx, s.run)
		if err != nil {
			return f, err
		}
		f.RunUID = string(run.UID)
	}
	return f, nil
}

func (a *app) listCommand() *cobra.Command {
	var s selection
	var format string
	cmd := &cobra.Command{
		Use:   "list [--run NAME] [--reason REASON]",
		Short: "List dead letters",
		Long: `List dead letters, the oldest first.

A run is shown as namespace/name while it exists, else by its UID. It is "not proved" if the message had no valid token: then only its
sender says that it is of that run. --run leaves these out, but with --reason rejected.`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output(format, formatTable, formatJSON); err != nil {
				return err
			}
			if err := s.check(); err != nil {
				return err
			}
			return a.list(cmd.Context(), s, format)
		},
	}
	s.bind(cmd, a, defaultLimit)
	a.nats.bind(cmd)
	bindOutput(cmd, &format, formatTable)
	return cmd
}

func (a *app) list(ctx context.Context, s selection, format string) error {
	d, err := lettersToRead(ctx, a)
	if err != nil {
		return err
	}
	defer d.Close()
	f, err := a.filter(ctx, s)
	if err != nil {
		return err
	}
	found, more, err := d.List(ctx, f, s.limit)
	if err != nil {
		return err
	}
	names := a.namesOf(ctx, found)
	letters := make([]Letter, 0, len(found))
	for _, l := range found {
		letters = append(letters, a.describe(d, l, names))
	}
	if format == formatJSON {
		return a.writeJSON(struct {
			DeadLetters []Letter `json:"deadLetters"`
			More        int      `json:"more"` // beyond --limit
		}{letters, more})
	}
	if err := a.table(letters); err != nil {
		return err
	}
	if more > 0 {
		a.note("%d more; --limit shows them", more)
	}
	return nil
}

func (a *app) table(letters []Letter) error {
	if len(letters) == 0 {
		a.note("no dead letters")
		return nil
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SEQ\tAGE\tREASON\tRUN\tSTEP\tATTEMPT\tDELIVERIES\tBYTES\tCAUSE")
	for _, l := range letters {
		step, attempt := "-", "-"
		if l.Step != "" {
			step, attempt = l.Step, fmt.Sprint(l.Attempt)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", l.Sequence, age(a.Clock.Now(), l.StoredAt), runview.Printable(l.Reason, maxCauseChars),
			runview.Printable(l.run(), maxCauseChars), step, attempt, l.Deliveries, l.Bytes, strings.TrimSpace(runview.Printable(l.Cause, maxCauseChars)))
	}
	return w.Flush()
}

func age(now, t time.Time) string { return duration.HumanDuration(max(0, now.Sub(t))) }
