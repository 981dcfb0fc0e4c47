// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

// lettersPatience is how long NATS may take for a page, and lookFor how much of it goes into the
// search for letters that can be redriven: a page has to come, however many forged ones there are.
const (
	lettersPatience = 5 * time.Second
	lookFor         = lettersPatience / 2
)

// consoleLetters are the dead letters as the console shows them, with the rights in NATS of who
// started it. It connects for each page: people look at them rarely.
type consoleLetters struct{ *app }

// List gives those that can be redriven first, and the older ones of them before the others.
func (c consoleLetters) List(ctx context.Context, limit int) (facts.Letters, error) {
	ctx, cancel := context.WithTimeout(ctx, lettersPatience)
	defer cancel()
	d, err := c.letters(ctx)
	if err != nil {
		return facts.Letters{}, err
	}
	defer d.Close()
	sorted, err := d.Sort(ctx, deadletters.Filter{}, deadletters.Sorting{Limit: limit, For: lookFor})
	if err != nil {
		return facts.Letters{}, err
	}
	found := slices.Concat(sorted.Redrivable, sorted.Refused)
	found = found[:min(len(found), limit)]
	letters := facts.Letters{More: len(sorted.Redrivable) + sorted.Hopeless + sorted.Rest - len(found)}
	names := c.namesOf(ctx, found)
	for _, one := range found {
		l := c.describe(d, one, names)
		shown := facts.Letter{
			Sequence: l.Sequence, StoredAt: l.StoredAt, Reason: l.Reason, Cause: l.Cause, Namespace: l.Namespace, Run: l.Name, Step: l.Step,
			Attempt: l.Attempt, Deliveries: l.Deliveries, Bytes: l.Bytes, Refused: l.Refused,
		}
		if l.Name == "" {
			shown.Run = l.RunUID
		}
		shown.Unproved = l.Unproved && l.RunUID != ""
		letters.All = append(letters.All, shown)
	}
	letters.Warning = foreign(ctx, c.app, d) // last: it may take what is left of the time
	return letters, nil
}

// Redrive publishes one again; not one that can never be applied.
func (c consoleLetters) Redrive(ctx context.Context, sequence uint64) error {
	d, err := lettersOfOurs(ctx, c.app)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Redrive(ctx, sequence, false)
}
