// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// tell writes what is known of a run that does not get on, for whoever reads why a spec failed.
func (r *replica) tell(run *v1alpha1.WorkflowRun) {
	if run == nil {
		return
	}
	status, err := json.Marshal(run.Status)
	if err != nil {
		status = []byte(err.Error())
	}
	r.mu.Lock()
	pending := len(r.pending)
	r.mu.Unlock()
	GinkgoWriter.Printf("%s, %s: %d deliveries wait for a turn, %d in the inbox\nstatus: %s\n",
		r.Holder, r.Clock.Now(), pending, len(r.Batches.Inbox.Waiting(run.UID)), status)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, name := range []string{r.w.names.JobsStream(), r.w.names.ResultsStream()} {
		stream, err := r.w.js.Stream(ctx, name)
		if err != nil {
			GinkgoWriter.Println(name, err)
			continue
		}
		GinkgoWriter.Printf("%s: %+v\n", name, stream.CachedInfo().State)
		for c := range stream.ListConsumers(ctx).Info() {
			if c.NumPending+uint64(c.NumAckPending) > 0 {
				GinkgoWriter.Printf("  %s: %d pending, %d unacknowledged, %d redelivered, %d pulls\n", c.Name, c.NumPending, c.NumAckPending, c.NumRedelivered, c.NumWaiting)
			}
		}
	}
}
