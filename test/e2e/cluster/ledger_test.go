// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
)

// readLedger returns what workers wrote down on a page: by job, the pods that began and that ended
// it, once for each time.
func readLedger(ctx context.Context, page string) (begun, done map[string][]string) {
	GinkgoHelper()
	return readPage(ctx, "begun:"+page), readPage(ctx, "done:"+page)
}

func readPage(ctx context.Context, key string) map[string][]string {
	GinkgoHelper()
	entries := map[string][]string{}
	for line := range strings.Lines(kubectl(ctx, "-n", ledgerNS, "exec", "redis-0", "--", "redis-cli", "SMEMBERS", key)) {
		if fields := strings.Fields(line); len(fields) == 3 { // job, pod, id of the entry
			entries[fields[0]] = append(entries[fields[0]], fields[1])
		}
	}
	return entries
}
