// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
)

// listen hears what the queue tells workers, from now on.
func listen(t *testing.T, s *natstest.Server, q *Queue) <-chan *nats.Msg {
	t.Helper()
	nc, err := nats.Connect(s.URL(), natstest.Patient())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	got := make(chan *nats.Msg, 10)
	if _, err := nc.ChanSubscribe(q.conn.Names.Control("*"), got); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return got
}

// A worker comes back later than the operator, which cancels at once what an outage kept it from.
//
// mutation: cancels that are sent once make this fail; so do those of before the outage, or of long
// after it, that are sent twice.
func TestACancelAfterAReconnectReachesWorkersThatComeLater(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	q := newQueue(t, s, func(c *config) { c.Clock = clk })
	cancel := func(run int) {
		t.Helper()
		if err := q.Cancel(t.Context(), fmt.Sprintf("run-%d", run), nil); err != nil {
			t.Fatal(err)
		}
	}
	cancel(0)
	s.Restart()
	bustest.Eventually(t, "the operator is back", func() bool { return q.conn.NATS.Stats().Reconnects > 0 && q.conn.Connected() })
	cancel(1)
	cancel(2)
	got := listen(t, s, q)
	bustest.Eventually(t, "it is sent again", func() bool {
		clk.Step(10 * time.Second)
		return len(got) == 2
	})
	cancel(3)
	clk.Step(time.Minute)
	cancel(4)
	var subjects []string
	for _, m := range bustest.Receive(t, "control messages", got, 4) {
		subjects = append(subjects, m.Subject+" "+string(m.Data))
	}
	var want []string
	for run := 1; run <= 4; run++ {
		want = append(want, fmt.Sprintf(`syncopate.control.run-%d {"action":"Cancel"}`, run))
	}
	if diff := cmp.Diff(want, subjects); diff != "" {
		t.Errorf("control messages (-want +got):\n%s", diff)
	}
}
