// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// width bounds the calls that a resync has under way at a time.
const width = 16

// each calls f for all items, at most width at a time. After the first error, which it returns,
// nothing more is begun. All calls of f have ended when each returns.
func each[T any](ctx context.Context, items []T, f func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(width)
	for _, item := range items {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return f(ctx, item)
		})
	}
	return group.Wait()
}
