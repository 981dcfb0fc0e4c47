// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// withdrawPart is how many jobs are withdrawn before their workers are told, and before that counts
// as done: a step with forEach may have a thousand jobs, more than the time of a pass is enough
// for.
const withdrawPart = 4 * withdrawParallel

// Withdraw withdraws jobs of a run and tells their workers to stop. It gives what is left to do
// after an error. Where not all are withdrawn at the same time, all workers are told first, as they
// may work for nothing while that takes the time of the pass; and once more later, as one may have
// been given its job in between.
func Withdraw(ctx context.Context, jobs withdrawer, runUID string, list []lifecycle.Withdrawal) (left []lifecycle.Withdrawal, err error) {
	if len(list) > withdrawParallel {
		_ = jobs.Cancel(ctx, runUID, idsOf(list)) // that it is said later is what counts
	}
	for len(list) > 0 {
		part := list[:min(withdrawPart, len(list))]
		list = list[len(part):]
		again, failed := withdrawPartOf(ctx, jobs, part)
		if cancelled := jobs.Cancel(ctx, runUID, idsOf(part)); cancelled != nil {
			again, failed = part, errors.Join(failed, fmt.Errorf("cancel jobs: %w", cancelled))
		}
		left = append(left, again...)
		err = errors.Join(err, failed)
		if len(again) == len(part) {
			break // each further one may take as long to fail
		}
	}
	return slices.Concat(list, left), err // what was not tried is the first next time
}

// withdrawPartOf takes jobs back, several at a time, and gives those of which that failed, with the
// error of one.
func withdrawPartOf(ctx context.Context, jobs withdrawer, part []lifecycle.Withdrawal) (left []lifecycle.Withdrawal, failed error) {
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	slots := make(chan struct{}, withdrawParallel)
	for _, w := range part {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := jobs.Withdraw(ctx, w.Topic, w.ID); err != nil {
				mu.Lock()
				defer mu.Unlock()
				left, failed = append(left, w), fmt.Errorf("withdraw job %s: %w", w.ID, err)
			}
		})
	}
	wg.Wait()
	return left, failed
}

func idsOf(list []lifecycle.Withdrawal) []protocol.JobID {
	ids := make([]protocol.JobID, len(list))
	for i, w := range list {
		ids[i] = w.ID
	}
	return ids
}
