// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"errors"
	"fmt"
	"sync"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// errStale says that who is later was here before.
var errStale = errors.New("a later holder of the mutex, or a later attempt, was here")

// table stands for what a mutex protects. A database does the same in one transaction:
// docs/limits.md has it in SQL.
type table struct {
	mu       sync.Mutex
	fence    int64                    // the highest that was seen
	attempts map[protocol.JobID]int32 // under that fence, by the id without its attempt
	owner    string
}

// set writes unless a holder with a higher fence, or a later attempt of the job, was here before.
func (t *table) set(fence int64, id protocol.JobID, owner string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	work := id
	work.Attempt = 0
	if fence < t.fence || fence == t.fence && id.Attempt < t.attempts[work] {
		return errStale
	}
	if fence > t.fence {
		t.fence, t.attempts = fence, map[protocol.JobID]int32{}
	}
	t.attempts[work], t.owner = id.Attempt, owner
	return nil
}

// A worker was paused in the middle of its job. Its step was tried again meanwhile, under the same
// fence, or its run was cancelled, and the mutex went to another. When the worker goes on, the
// table refuses what it does.
func ExampleJob_lockFences() {
	const lock = "mutex:team-a/orders" // a mutex: a Semaphore has several holders at a time
	orders := &table{}
	handle := func(job worker.Job, owner string) error {
		if err := orders.set(job.LockFences[lock], job.ID, owner); err != nil {
			return worker.Final(worker.Fail("Stale", err.Error()))
		}
		return nil
	}
	job := func(fence int64, run string, attempt int32) worker.Job {
		return worker.Job{ID: protocol.JobID{RunUID: run, Step: "write", Item: protocol.NoItem, Attempt: attempt}, LockFences: map[string]int64{lock: fence}}
	}
	paused := job(17, "a", 1)
	fmt.Println(handle(job(17, "a", 2), "second attempt"))
	fmt.Println(handle(paused, "paused") != nil)
	fmt.Println(handle(job(18, "b", 1), "next"))
	fmt.Println(handle(paused, "paused") != nil)
	fmt.Println(handle(job(18, "b", 2), "next again")) // its own retries go on
	fmt.Println(orders.owner)
	// Output:
	// <nil>
	// true
	// <nil>
	// true
	// <nil>
	// next again
}
