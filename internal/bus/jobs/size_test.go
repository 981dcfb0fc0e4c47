// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
)

// mutations: a StoredBytes without the input, the ids, the topics, the source, the locks or
// fixedBytes makes this fail.
func TestStoredBytesIsWhatTheStreamCounts(t *testing.T) {
	t.Parallel()
	q := newQueue(t, natstest.Start(t))
	held := uint64(0)
	for n, adjust := range []func(*Job){
		func(*Job) {},
		func(j *Job) { j.Input = json.RawMessage(`"` + strings.Repeat("x", 200<<10) + `"`) },
		func(j *Job) { j.ID.Step = strings.Repeat("s", 40) },
		func(j *Job) { j.Topic = strings.Repeat("t", 100) },
		func(j *Job) {
			j.Source = "/namespaces/" + strings.Repeat("n", 63) + "/workflowruns/" + strings.Repeat("r", 200)
		},
		func(j *Job) {
			j.Deadline, j.Fence = time.Now().Add(time.Hour), 1<<40
			j.TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			for range 20 {
				j.Locks = append(j.Locks, "lock-of-"+strings.Repeat("l", 50)+"=12")
			}
		},
	} {
		j := testJob(n)
		adjust(&j)
		if err := q.Publish(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		s, err := q.conn.JetStream.Stream(t.Context(), q.conn.Names.JobsStream())
		if err != nil {
			t.Fatal(err)
		}
		took := int64(s.CachedInfo().State.Bytes - held)
		held = s.CachedInfo().State.Bytes
		if got := StoredBytes(j, len(j.Input)); got < took || got > took+300 {
			t.Errorf("%d: %d are estimated, and it took %d", n, got, took)
		}
	}
}
