package controller

import (
	"context"
	"sync"
)

// width bounds the calls that a resync has under way at a time.
const width = 16

// each calls f for all items, at most width at a time. After the first error, which it
// returns, nothing more is begun. f is called by several goroutines, all of which have ended
// when each returns.
func each[T any](ctx context.Context, items []T, f func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo := make(chan T)
	var workers sync.WaitGroup
	for range min(width, len(items)) {
		workers.Go(func() {
			for item := range todo {
				if err := f(ctx, item); err != nil {
					cancel(err) // the first one counts
				}
			}
		})
	}
feed:
	for _, item := range items {
		select {
		case todo <- item:
		case <-ctx.Done():
			break feed
		}
	}
	close(todo)
	workers.Wait()
	return context.Cause(ctx)
}
