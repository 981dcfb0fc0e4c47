// SPDX-License-Identifier: Apache-2.0

package results

import (
	"errors"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
)

// The server takes an acknowledgement by its sequence alone, and the stream of now has
// another result there.
//
// mutation: a results.Delivery without guard makes this fail: the result of job 2 is gone.
func TestAResultOfTheStreamBeforeIsNotSettledInTheOneAfter(t *testing.T) {
	t.Parallel()
	for name, as := range map[string]error{"acknowledged": nil, "given back": errors.New("again"), "a dead letter": Permanent("Test", errors.New("bad"))} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := natstest.Start(t)
			b := newTestConsumer(t, s)
			got, _ := collect(t, b)
			bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
			before := bustest.Receive(t, "the first result", got, 1)[0]
			s.RestartEmpty()
			bustest.Receive(t, "the loss is told", b.conn.LossNoticed(), 1)
			bustest.Eventually(t, "all of it is noticed", func() bool { return b.conn.Losses() == 2 })
			again := before.ID
			again.Attempt = 2 // of the same run, so that the same consumer has it
			bustest.Answer(t, b.conn, again, bustest.Succeeded)
			after := bustest.Receive(t, "the result in its place", got, 1)[0]
			if before.key.sequence != after.key.sequence {
				t.Fatalf("sequences %d and %d", before.key.sequence, after.key.sequence)
			}
			if err := before.Settle(t.Context(), as); !errors.Is(err, bus.ErrStreamLost) {
				t.Errorf("settle: %v", err)
			}
			if n := bustest.Info(t, b.conn, b.conn.Names.ResultsStream()).State.Msgs; n != 1 {
				t.Errorf("%d results in the stream, want 1", n)
			}
			settle(t, after, nil)
			bustest.Eventually(t, "the result is settled", func() bool { return unsettled(t, b) == 0 })
		})
	}
}
