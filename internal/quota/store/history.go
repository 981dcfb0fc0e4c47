// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"strconv"
	"strings"

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
func Revision(ctx context.Context, g *Store) (uint64, error) {
	if g.opts.Installation == "" {
		return 0, nil
	}
	if err := ownHistory(ctx, g); err != nil {
		return 0, err
	}
	return RevisionOf(ctx, g, g.opts.Installation)
}

// RevisionOf is Revision of that installation, for who is none and only reads.
func RevisionOf(ctx context.Context, g *Store, installation string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	text, err := g.client.Get(ctx, revisionKey(g)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, fmt.Errorf("ask how far history went: %w", g.opts.Explain(err))
	}
	return markOf(text, installation), nil
}

// markOf is the revision in the mark of that installation; 0 for that of another one, and for what
// cannot be read.
func markOf(text, installation string) uint64 {
	text, its := strings.CutPrefix(text, installation+" ")
	revision, err := strconv.ParseUint(text, 10, 64)
	if !its || err != nil {
		return 0
	}
	return revision
}

// RaiseRevision notes a revision that the API server had. A lower one than before changes nothing.
//
// Errors: as Revision.
func RaiseRevision(ctx context.Context, g *Store, revision uint64) error {
	if g.opts.Installation == "" {
		return nil
	}
	if err := ownHistory(ctx, g); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	keys := []string{ownerKey(g), revisionKey(g)}
	if err := historyScript.Run(ctx, g.client, keys, g.opts.Installation, strconv.FormatUint(revision, 10)).Err(); err != nil {
		return fmt.Errorf("note how far history went: %w", g.opts.Explain(err))
	}
	return nil
}

// revisionKey is the Redis key of the mark, in one slot of a Redis Cluster with the installation's.
func revisionKey(g *Store) string { return ownerKey(g) + ":revision" }
