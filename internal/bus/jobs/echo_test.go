// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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

// A stream that is full refuses a message which its listeners hear all the same.
//
// mutation: an echo that forgets the others when one fails makes this fail.
func TestACancelThatCannotBeSentAgainAtOnceIsTriedLater(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	clk := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	q := newQueue(t, s, func(c *config) { c.Clock = clk })
	s.Restart()
	bustest.Eventually(t, "the operator is back", func() bool { return q.conn.NATS.Stats().Reconnects > 0 && q.conn.Connected() })
	for run := 1; run <= 2; run++ {
		if err := q.Cancel(t.Context(), fmt.Sprintf("run-%d", run), nil); err != nil {
			t.Fatal(err)
		}
	}
	stream := func(discard jetstream.DiscardPolicy, most int64) {
		t.Helper()
		config := bustest.Info(t, q.conn, q.conn.Names.ControlStream()).Config
		config.Discard, config.MaxMsgs = discard, most
		if _, err := q.conn.JetStream.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	got := listen(t, s, q)
	stream(jetstream.DiscardNew, 2)
	bustest.Eventually(t, "it is tried", func() bool {
		clk.Step(10 * time.Second)
		return len(got) > 0
	})
	stream(jetstream.DiscardOld, -1)
	bustest.Eventually(t, "the other is sent, too", func() bool {
		clk.Step(10 * time.Second)
		for len(got) > 0 {
			if m := <-got; m.Subject == q.conn.Names.Control("run-2") {
				return true
			}
		}
		return false
	})
}

// mutation: a message that is put back and counted twice, or dropped and counted for ever, makes
// this fail.
func TestWhatIsSentAgainIsBounded(t *testing.T) {
	t.Parallel()
	var e echo
	m := &nats.Msg{Data: make([]byte, maxEcho/2)}
	if !e.keep(m) || e.keep(m) || len(e.kept) != 1 {
		t.Fatal("it keeps more than its bound")
	}
	taken := e.take()
	if e.keep(m) {
		t.Error("what is on its way has no room")
	}
	if e.putBack(taken); e.keep(m) || len(e.kept) != 1 {
		t.Error("what was put back has no room")
	}
	if e.drop(e.take()...); !e.keep(m) {
		t.Error("what is gone takes room")
	}
}
