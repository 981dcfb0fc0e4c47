// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"time"

	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

// lettersPatience is how long NATS may take to be reached for a page.
const lettersPatience = 5 * time.Second

// consoleLetters are the dead letters as the console shows them, with the rights in NATS of who
// started it. It connects for each page: people look at them rarely.
type consoleLetters struct{ *app }

// List gives the oldest.
func (c consoleLetters) List(ctx context.Context, limit int) ([]facts.Letter, int, error) {
	ctx, cancel := context.WithTimeout(ctx, lettersPatience)
	defer cancel()
	d, err := c.letters(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer d.Close()
	found, more, err := c.find(ctx, d, selection{limit: limit})
	if err != nil {
		return nil, 0, err
	}
	names := c.namesOf(ctx, found)
	all := make([]facts.Letter, 0, len(found))
	for _, one := range found {
		l := c.describe(d, one, names)
		shown := facts.Letter{
			Sequence: l.Sequence, StoredAt: l.StoredAt, Reason: l.Reason, Cause: l.Cause, Namespace: l.Namespace, Run: l.Name, Step: l.Step,
			Attempt: l.Attempt, Deliveries: l.Deliveries, Bytes: l.Bytes, Refused: l.Refused,
		}
		if l.Name == "" {
			shown.Run = l.RunUID
		}
		all = append(all, shown)
	}
	return all, more, nil
}

// Redrive publishes one again; not one that can never be applied.
func (c consoleLetters) Redrive(ctx context.Context, sequence uint64) error {
	d, err := c.letters(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Redrive(ctx, sequence, false)
}
