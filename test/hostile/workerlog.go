// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// workerLog is what workers write down of their jobs.
type workerLog struct {
	mu     sync.Mutex
	begun  map[protocol.JobID]int
	first  map[protocol.JobID]time.Time // when each was begun first
	ended  map[protocol.JobID]time.Time // first answers
	copies map[protocol.JobID]bool      // stored again: begun before, and the first delivery of its message
}

func (l *workerLog) begin(job worker.Job) {
	id := job.ID
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun == nil {
		l.begun, l.copies = map[protocol.JobID]int{}, map[protocol.JobID]bool{}
		l.first, l.ended = map[protocol.JobID]time.Time{}, map[protocol.JobID]time.Time{}
	}
	if l.begun[id] == 0 {
		l.first[id] = time.Now()
	}
	if l.begun[id] > 0 && job.Delivery == 1 {
		l.copies[id] = true
	}
	l.begun[id]++
}

func (l *workerLog) end(id protocol.JobID, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended[id].IsZero() {
		l.ended[id] = at
	}
}

// answered is when the first answer to a job was ready; zero: it is not.
func (l *workerLog) answered(id protocol.JobID) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended[id]
}

// jobTimes are when a job was begun first, and answered first; zero: it was not.
type jobTimes struct{ begun, ended time.Time }

func (l *workerLog) times(id protocol.JobID) jobTimes {
	l.mu.Lock()
	defer l.mu.Unlock()
	return jobTimes{l.first[id], l.ended[id]}
}

// jobs is how many jobs of a run were begun.
func (l *workerLog) jobs(runUID string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for id := range l.begun {
		if id.RunUID == runUID {
			n++
		}
	}
	return n
}

// twice are the jobs that were stored a second time after a worker had had them.
func (l *workerLog) twice() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for id := range maps.Keys(l.copies) {
		all = append(all, id.String())
	}
	slices.Sort(all)
	return all
}
