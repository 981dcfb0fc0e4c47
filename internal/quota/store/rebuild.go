// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
)

// BeginRebuild begins to rebuild slots that are closed (*RebuildingError), and returns a token for
// FinishRebuild. The list of admitted runs must be read after it: see "Rebuild" in the package
// documentation. Several processes may rebuild at the same time; they get the same token.
//
// Errors: *UnavailableError, ErrInvalidRequest.
func (g *Store) BeginRebuild(ctx context.Context, k Key) (token string, err error) {
	if err := k.check(); err != nil {
		return "", err
	}
	return g.begin(ctx, k, g.keys(k))
}

// Shut closes slots that are open, as if their data were lost: they are counted elsewhere from now
// on. A rebuild opens them again; one that began before does not.
//
// Errors: as BeginRebuild.
func (g *Store) Shut(ctx context.Context, k Key) error {
	if err := k.check(); err != nil {
		return err
	}
	_, err := g.ask(ctx, g.scripts.begin, k, g.keys(k)[:1], g.opts.NewID(), "shut")
	return err
}

// FinishRebuild opens the slots again. admittedUIDs are all runs of the key that are admitted
// and not finished; what the slots still hold is kept. If somebody else opened them already the
// runs are added.
//
// Errors: ErrRebuildLost if the data was lost again since the token was given: begin anew,
// with a new list. *UnavailableError (it may have happened; repeat it with the same list, or
// begin anew), ErrInvalidRequest.
func (g *Store) FinishRebuild(ctx context.Context, k Key, token string, admittedUIDs []string) error {
	if err := errors.Join(k.check(), checkToken(token), checkUIDs(admittedUIDs...)); err != nil {
		return err
	}
	_, err := g.restoreAll(ctx, k, token, admittedUIDs)
	if errors.Is(err, errLost) {
		return fmt.Errorf("%w (%s)", ErrRebuildLost, k)
	}
	return err
}

// restoreAll gives slots to runs, in portions; with a token the last one opens the slots. added is
// how many had none.
func (g *Store) restoreAll(ctx context.Context, k Key, token string, uids []string) (added int, err error) {
	err = inPortions(uids, func(some []string, last bool) error {
		got, err := g.ask(ctx, g.scripts.restore, k, g.keys(k), append([]any{token, moreComes(last)}, anys(some)...)...)
		if err != nil {
			return err
		}
		g.learn(g.keys(k)[0], got)
		added += got.number(4)
		return nil
	})
	return added, err
}

// moreComes says to a script of a rebuild whether the data stays closed, because more is entered.
func moreComes(last bool) string {
	if last {
		return ""
	}
	return "more"
}

func (g *Store) begin(ctx context.Context, k Key, keys []string) (string, error) {
	got, err := g.ask(ctx, g.scripts.begin, k, keys[:1], g.opts.NewID())
	if err != nil {
		return "", err
	}
	return got.text(0), nil
}

// checkToken refuses the empty token, with which nothing would be opened.
func checkToken(token string) error {
	if token == "" || !plain(token) {
		return fmt.Errorf("%w: rebuild token %.100q", ErrInvalidRequest, token)
	}
	return nil
}
