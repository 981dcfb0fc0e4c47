// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"os"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// crashEnv has the test below run: the elections take it half a minute.
const crashEnv = "NATS_CRASH"

// Of three servers one is down. The other two store a result, and NATS acknowledges it. Then the
// machine of one of the two crashes, and comes back together with the server that was down: they
// are a majority, and agree on what they have.
//
// The crash is played: its server gets back a copy of its store from before the result. That is
// what its disk may have without `sync_interval: always`, for up to two minutes; with it each
// acknowledged write is there, so the store stays. So this shows what three servers make of what
// their disks have. It does not show that nats-server syncs when it is told to, nor that disks do.
// Nor does it show what becomes of the third when it comes back with a result that the others gave
// up: in trials it was not in step with them for a minute and more.
func TestWhatThreeServersKeepAfterACrash(t *testing.T) {
	if os.Getenv(crashEnv) == "" {
		t.Skip("takes half a minute; " + crashEnv + "=1 runs it")
	}
	const holder, crashes, down = 0, 1, 2
	for name, c := range map[string]struct {
		synced   bool // before the acknowledgement
		holderUp bool
		kept     bool
	}{
		"synced now and then, and the other that has it is away": {kept: false},
		"synced now and then, and the other that has it is up":   {holderUp: true, kept: true},
		"synced with each write":                                 {synced: true, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := natstest.StartCluster(t)
			b := bustest.Dial(t, bus.Config{URL: servers.URL(), Replicas: 3, DuplicateWindow: 100 * time.Millisecond})
			bustest.Eventually(t, "the streams are there", func() bool { return b.RepairStreams(t.Context()) == nil && b.Ready(t.Context()) == nil })
			say := func(attempt int) {
				t.Helper()
				bustest.Eventually(t, "the result is acknowledged", func() bool { return sayResult(t, b, testJob(attempt).ID) == nil })
			}
			stored := func(attempt int) (is bool) {
				t.Helper()
				bustest.Eventually(t, "the stream has a leader", func() bool {
					m, err := b.Read(t.Context(), b.Names.ResultsStream(), bus.Query{LastFor: b.Names.Result(testJob(attempt).ID)})
					is = m != nil
					return err == nil
				})
				return is
			}
			say(1)
			bustest.Eventually(t, "all servers have it", func() bool { return allCurrent(t, b) })
			servers.Stop(down)
			servers.Stop(crashes)
			onDisk := servers.CopyStore(crashes)
			servers.Start(crashes)
			say(2)

			servers.Stop(crashes)
			if !c.synced {
				servers.PutBack(crashes, onDisk)
			}
			if !c.holderUp {
				servers.Stop(holder)
			}
			servers.Start(crashes)
			servers.Start(down)
			if !stored(1) {
				t.Error("what all had synced is gone")
			}
			if got := stored(2); got != c.kept {
				t.Errorf("the acknowledged result is there: %t, want %t", got, c.kept)
			}
			say(3) // they agree on it, so what they have not is gone for good
			if got := stored(2); got != c.kept {
				t.Errorf("after another result the acknowledged one is there: %t, want %t", got, c.kept)
			}
		})
	}
}

// sayResult sends a result as a worker does.
func sayResult(t *testing.T, b *bus.Conn, id protocol.JobID) error {
	t.Helper()
	_, err := b.JetStream.PublishMsg(t.Context(), bustest.Result(b.Names, bustest.Ring(), id, `{"status":"Succeeded"}`))
	return err
}

// allCurrent says whether all servers have all that RESULTS has.
func allCurrent(t *testing.T, b *bus.Conn) bool {
	t.Helper()
	s, err := b.JetStream.Stream(t.Context(), b.Names.ResultsStream())
	if err != nil {
		return false
	}
	cluster := s.CachedInfo().Cluster
	if cluster == nil || cluster.Leader == "" || len(cluster.Replicas) != 2 {
		return false
	}
	for _, peer := range cluster.Replicas {
		if !peer.Current || peer.Offline {
			return false
		}
	}
	return true
}
