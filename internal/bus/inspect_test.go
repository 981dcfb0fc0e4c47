// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// answered is what a server said of a stream.
type answered struct {
	jetstream.Stream
	info *jetstream.StreamInfo
}

func (a answered) CachedInfo() *jetstream.StreamInfo { return a.info }

// mutation: inspect that judges whatever it is told makes this fail.
func TestAClusterWithoutALeaderTellsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		cluster *jetstream.ClusterInfo
		want    uint64
	}{
		"a single server":          {nil, 1},
		"a cluster":                {&jetstream.ClusterInfo{Leader: "n1"}, 1},
		"a cluster without leader": {&jetstream.ClusterInfo{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := Config{}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			conn := newConn(config)
			conn.losses.Begin(conn.Names.JobsStream()).Stored(5)
			shorter := &jetstream.StreamInfo{Created: time.Unix(1, 0), State: jetstream.StreamState{LastSeq: 4}, Cluster: c.cluster}
			if _, err := conn.inspect(conn.Names.JobsStream(), func() (jetstream.Stream, error) { return answered{info: shorter}, nil }); err != nil {
				t.Fatal(err)
			}
			if got := conn.Losses(); got != c.want {
				t.Errorf("%d losses, want %d", got, c.want)
			}
		})
	}
}
