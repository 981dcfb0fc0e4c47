// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"fmt"
	"sync"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Withdraw withdraws jobs of a run and tells their workers to stop.
func Withdraw(ctx context.Context, jobs withdrawer, runUID string, list []lifecycle.Withdrawal) error {
	if len(list) == 0 {
		return nil
	}
	// Several at a time: a step with forEach may have a thousand jobs.
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	slots := make(chan struct{}, withdrawParallel)
	ids := make([]protocol.JobID, 0, len(list))
	for _, w := range list {
		ids = append(ids, w.ID)
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := jobs.Withdraw(ctx, w.Topic, w.ID); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = fmt.Errorf("withdraw job %s: %w", w.ID, err)
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	if err := jobs.Cancel(ctx, runUID, ids); err != nil {
		return fmt.Errorf("cancel jobs: %w", err)
	}
	return nil
}
