// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	testingclock "k8s.io/utils/clock/testing"
)

// follower is a stream as a server knows it that lags behind, while there is no leader.
type follower struct{ jetstream.Stream }

func (follower) CachedInfo() *jetstream.StreamInfo {
	return &jetstream.StreamInfo{Cluster: &jetstream.ClusterInfo{Name: "c"}}
}

// What it holds is not known: a limit below that would have the stream refuse all,
// or lose messages.
// mutation: bound that does not ask for a leader makes this fail: it calls the server. So does
// one that has it never tried again.
func TestAStreamWithoutALeaderGetsNoLimit(t *testing.T) {
	t.Parallel()
	c, clk := &Conn{}, testingclock.NewFakeClock(time.Unix(1, 0))
	c.Clock = clk
	got := bound(t.Context(), c, follower{}, jetstream.StreamConfig{Name: "S", MaxBytes: -1}, 1<<20)
	if got.MaxBytes != -1 {
		t.Errorf("limit %d", got.MaxBytes)
	}
	if c.raises.begin(clk.Now()) || !c.raises.begin(clk.Now().Add(raiseAgain)) {
		t.Error("it is not tried again later")
	}
}
