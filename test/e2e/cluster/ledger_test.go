// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// entry is what a worker wrote down about a job: the pod and the time of its node.
type entry struct {
	pod string
	at  time.Time
}

// readLedger returns what workers wrote down on a page: by job, the pods that began and that ended
// it, once for each time.
func readLedger(ctx context.Context, page string) (begun, done map[string][]string) {
	GinkgoHelper()
	return pods(readPage(ctx, "begun:"+page)), pods(readPage(ctx, "done:"+page))
}

func pods(entries map[string][]entry) map[string][]string {
	names := map[string][]string{}
	for job, of := range entries {
		for _, e := range of {
			names[job] = append(names[job], e.pod)
		}
	}
	return names
}

func readPage(ctx context.Context, key string) map[string][]entry {
	GinkgoHelper()
	entries := map[string][]entry{}
	for line := range strings.Lines(kubectl(ctx, "-n", ledgerNS, "exec", "redis-0", "--", "redis-cli", "SMEMBERS", key)) {
		fields := strings.Fields(line)
		if len(fields) != 4 { // job, pod, id of the entry, time
			continue
		}
		millis, err := strconv.ParseInt(fields[3], 10, 64)
		Expect(err).NotTo(HaveOccurred(), line)
		entries[fields[0]] = append(entries[fields[0]], entry{pod: fields[1], at: time.UnixMilli(millis)})
	}
	return entries
}

// stoodStill is the longest time, of all runs on a page, in which no worker had a job of a run
// that has one step after the other.
func stoodStill(ctx context.Context, page string) (longest time.Duration) {
	GinkgoHelper()
	begun, done := readPage(ctx, "begun:"+page), readPage(ctx, "done:"+page)
	ends := map[string][]time.Time{} // of jobs, by run
	for job, of := range done {
		id, err := protocol.ParseJobID(job)
		Expect(err).NotTo(HaveOccurred())
		for _, e := range of {
			ends[id.RunUID] = append(ends[id.RunUID], e.at)
		}
	}
	for job, of := range begun {
		id, err := protocol.ParseJobID(job)
		Expect(err).NotTo(HaveOccurred())
		for _, e := range of {
			longest = max(longest, sinceLast(e.at, ends[id.RunUID]))
		}
	}
	return longest
}

// sinceLast is how long before a moment the last of some others was, 0 without one.
func sinceLast(at time.Time, others []time.Time) (d time.Duration) {
	for _, other := range others {
		if before := at.Sub(other); before >= 0 && (d == 0 || before < d) {
			d = before
		}
	}
	return d
}
