// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// maxRefusals is of how many letters redrive says why it does not try them.
const maxRefusals = 10

// redriving is what one call of redrive was told.
type redriving struct {
	selection
	all, dryRun, force bool
}

func (a *app) redriveCommand() *cobra.Command {
	var r redriving
	cmd := &cobra.Command{
		Use:   "redrive SEQ... | --run NAME | --reason REASON | --all",
		Short: "Publish the messages of dead letters again",
		Long: `Publish the messages of dead letters again: the original bytes and headers to the original subject, with a fresh Nats-Msg-Id.
A letter is deleted when the server has stored its message.

If this is interrupted in between, the letter stays and may be redriven again. That does no harm: within the window of the stream
the server drops the second message, and later the operator recognises it as a duplicate, because an attempt is answered once.
For the same reason nothing happens to a run that has ended, or that has given up the attempt: redrive soon.

What can never be applied is refused: a forged token, a subject that names no job, a body that is unusable, headers that are
gone. --force publishes what is kept of it.`,
		Args: args(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, given []string) error {
			sequences, err := r.check(given)
			if err != nil {
				return err
			}
			return a.redrive(cmd.Context(), r, sequences)
		},
	}
	r.bind(cmd, a, maxLimit)
	cmd.Flags().BoolVar(&r.all, "all", false, "All dead letters, of all runs.")
	cmd.Flags().BoolVar(&r.dryRun, "dry-run", false, "Only say what would be done.")
	cmd.Flags().BoolVar(&r.force, "force", false, "Also publish what can never be applied.")
	a.nats.bind(cmd)
	return cmd
}

// check demands exactly one way to say which letters.
func (r *redriving) check(given []string) ([]uint64, error) {
	ways := 0
	for _, used := range []bool{len(given) > 0, r.run != "" || r.reason != "", r.all} {
		if used {
			ways++
		}
	}
	if ways != 1 {
		return nil, usagef("say which dead letters: either by number, or with --run, --reason or both, or with --all")
	}
	if err := r.selection.check(); err != nil {
		return nil, err
	}
	return sequencesOf(given)
}

func (a *app) redrive(ctx context.Context, r redriving, sequences []uint64) error {
	d, err := lettersOfOurs(ctx, a)
	if err != nil {
		return err
	}
	defer d.Close()
	var found deadletters.Sorted
	if len(sequences) == 0 {
		if found, err = sorted(ctx, a, d, r); err != nil {
			return err
		}
		for _, l := range found.Redrivable {
			sequences = append(sequences, l.Sequence)
		}
	}
	done, err := a.redriveEach(ctx, d, r, sequences)
	noteRefused(a, d, r, found)
	if found.Rest > 0 {
		a.note("%d more match; run it again, or with a higher --limit", found.Rest)
	}
	if err != nil {
		return err
	}
	return outcomeOf(a, r, found, len(sequences), done)
}

// outcomeOf says by its error that not all is done that was asked for.
func outcomeOf(a *app, r redriving, found deadletters.Sorted, tried, done int) error {
	total := tried + found.Hopeless
	switch failed := total - done; {
	case failed > 0:
		return fmt.Errorf("%d of %d dead letters were not redriven", failed, total)
	case found.Rest > 0 && r.all:
		return fmt.Errorf("%d dead letters were not looked at: --limit is %d", found.Rest, r.limit)
	case total == 0:
		a.note("no dead letters")
	}
	return nil
}

// sorted are the letters that are selected.
func sorted(ctx context.Context, a *app, d *deadletters.Store, r redriving) (deadletters.Sorted, error) {
	f, err := a.filter(ctx, r.selection)
	if err != nil {
		return deadletters.Sorted{}, err
	}
	return d.Sort(ctx, f, deadletters.Sorting{Force: r.force, Limit: r.limit})
}

// noteRefused tells of the first letters that were found, and not tried.
func noteRefused(a *app, d *deadletters.Store, r redriving, found deadletters.Sorted) {
	told := found.Refused[:min(len(found.Refused), maxRefusals)]
	for _, l := range told {
		if err := refusal(d.Redrivable(l, r.force)); err != nil {
			a.note("%s", OneLine(err))
		}
	}
	if n := found.Hopeless - len(told); n > 0 {
		a.note("%d more are refused; kubectl syncopate dead-letters list shows them", n)
	}
}

// refusal says what helps against an error of a redrive, if it is one that something helps against.
func refusal(err error) error {
	if errors.Is(err, deadletters.ErrHopeless) {
		return fmt.Errorf("%w; --force publishes what is kept of it", err)
	}
	return err
}

// redriveEach goes on after a refusal; an interruption ends it.
func (a *app) redriveEach(ctx context.Context, d *deadletters.Store, r redriving, sequences []uint64) (done int, err error) {
	for _, sequence := range sequences {
		if err := ctx.Err(); err != nil {
			return done, fmt.Errorf("after %d of %d dead letters: %w", done, len(sequences), err)
		}
		if err := a.redriveOne(ctx, d, r, sequence); err != nil {
			a.note("%s", OneLine(err))
			continue
		}
		done++
	}
	return done, nil
}

func (a *app) redriveOne(ctx context.Context, d *deadletters.Store, r redriving, sequence uint64) error {
	l, err := d.Get(ctx, sequence)
	if err != nil {
		return err
	}
	did := "redriven"
	if r.dryRun {
		did, err = "would be redriven", d.Redrivable(l, r.force)
	} else {
		err = d.Redrive(ctx, sequence, r.force)
	}
	if err != nil {
		return refusal(err)
	}
	fmt.Fprintf(a.Out, "dead letter %d %s to %s\n", sequence, did, runview.Printable(l.Subject, maxHeaderChars))
	return nil
}
