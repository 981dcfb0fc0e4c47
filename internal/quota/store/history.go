// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	_ "embed" // the script
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/history.lua
var historySource string

var historyScript = redis.NewScript(historySource)

// Revision is the highest revision of the API server that this installation saw, as RaiseRevision
// was told; 0: it told none since Redis is its own. One that is higher than the API server's is of
// a history that is gone, or of another cluster that has the same name.
//
// Errors: *ForeignError, and those of Redis.
func Revision(ctx context.Context, g *Store) (uint64, error) { return history(ctx, g, 0) }

// RaiseRevision notes a revision that the API server had. A lower one than before changes nothing.
//
// Errors: as Revision.
func RaiseRevision(ctx context.Context, g *Store, revision uint64) error {
	_, err := history(ctx, g, revision)
	return err
}

// history raises the mark, 0 does not, and says what it is.
func history(ctx context.Context, g *Store, revision uint64) (uint64, error) {
	if g.opts.Installation == "" {
		return 0, nil
	}
	if err := own(ctx, g); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	keys := []string{ownerKey(g), revisionKey(g)}
	text, err := historyScript.Run(ctx, g.client, keys, g.opts.Installation, strconv.FormatUint(revision, 10)).Text()
	if err != nil {
		return 0, fmt.Errorf("ask how far history went: %w", g.opts.Explain(err))
	}
	mark, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("how far history went: %w", err)
	}
	return mark, nil
}

// revisionKey is the Redis key of the mark, in one slot of a Redis Cluster with the installation's.
func revisionKey(g *Store) string { return ownerKey(g) + ":revision" }
