// SPDX-License-Identifier: Apache-2.0

package bus

import "github.com/nats-io/nats.go/jetstream"

// inspect has ask get a stream from the server, and looks whether it has lost data.
func (c *Conn) inspect(name string, ask func() (jetstream.Stream, error)) (jetstream.Stream, error) {
	c.looking.Lock()
	defer c.looking.Unlock()
	before := c.losses.Begin(name)
	s, err := ask()
	if err != nil {
		return nil, err
	}
	if info := s.CachedInfo(); !leaderless(info) {
		before.Look(info.Created, info.State.LastSeq)
	}
	return s, nil
}

// leaderless says whether a cluster answered that has no leader for the stream at the moment:
// then any server does, also one that lags behind, and nothing follows from what it lacks. The
// next look tells.
func leaderless(info *jetstream.StreamInfo) bool {
	return info.Cluster != nil && info.Cluster.Leader == ""
}
