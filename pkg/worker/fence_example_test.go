// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"errors"
	"fmt"
	"sync"

	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// errStale says that a later holder of the lock was here before.
var errStale = errors.New("a later holder of the lock was here")

// table stands for what a lock protects. A database does the same in one transaction:
// docs/limits.md has it in SQL.
type table struct {
	mu     sync.Mutex
	fences map[string]int64 // by lock, the highest that was seen
	owner  string
}

// set writes unless a holder with a higher fence was here before.
func (t *table) set(lock string, fence int64, owner string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if fence < t.fences[lock] {
		return errStale
	}
	t.fences[lock], t.owner = fence, owner
	return nil
}

// A worker was paused in the middle of its job. Its run was cancelled meanwhile, and the lock went
// to another. When the worker goes on, the table refuses what it does.
func ExampleJob_lockFences() {
	const lock = "mutex:team-a/orders"
	orders := &table{fences: map[string]int64{}}
	handle := func(job worker.Job, owner string) error {
		if err := orders.set(lock, job.LockFences[lock], owner); err != nil {
			return worker.Final(worker.Fail("Stale", err.Error()))
		}
		return nil
	}
	paused := worker.Job{LockFences: map[string]int64{lock: 17}}
	next := worker.Job{LockFences: map[string]int64{lock: 18}}
	fmt.Println(handle(next, "next"))
	fmt.Println(handle(paused, "paused") != nil)
	fmt.Println(handle(next, "next again")) // its own retries go on
	fmt.Println(orders.owner)
	// Output:
	// <nil>
	// true
	// <nil>
	// next again
}
