// SPDX-License-Identifier: Apache-2.0

package results

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"

	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// A worker chooses the headers of what it publishes, and the client library takes some of them for
// words of the server: one message would end the subscription of a partition, again and again.
// mutation: pulls by the library's Consume, or that look at the header only, make this fail.
func TestAResultThatLooksLikeAWordOfTheServerIsAResult(t *testing.T) {
	t.Parallel()
	for name, header := range map[string][]string{
		"a bad request":        {"Status", "400"},
		"the consumer's end":   {"Status", "409", "Description", "Consumer Deleted"},
		"a heartbeat":          {"Status", "100"},
		"nobody there":         {"Status", "503"},
		"an end of a pull":     {"Status", "408", "Nats-Pending-Messages", "256"},
		"a change of leader":   {"Status", "409", "Description", "Leadership Change"},
		"nothing in its place": {"Status", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, rebuilt := countingRebuilds(t)
			got, _ := collect(t, b)
			ids := inPartition(3)
			bustest.PublishRaw(t, b.conn, b.conn.Names.Result(ids[0]), "", header...)
			bustest.PublishRaw(t, b.conn, b.conn.Names.Result(ids[1]), "", append(header, protocol.HeaderToken, bustest.Ring().Sign(ids[1]))...)
			bustest.Answer(t, b.conn, ids[2], bustest.Succeeded)
			for _, d := range bustest.Receive(t, "the authentic one and the good one", got, 2) {
				if d.ID == ids[1] && d.Rejected == nil || d.ID == ids[2] && d.Rejected != nil {
					t.Errorf("delivery %+v", d)
				}
				settle(t, d, nil)
			}
			bustest.Eventually(t, "all are settled", func() bool { return unsettled(t, b) == 0 })
			letters := bustest.DeadLetters(t, b.conn)
			if len(letters) != 1 || letters[0].Header.Get(deadletters.HeaderReason) != deadletters.ReasonRejected {
				t.Errorf("dead letters %+v", letters)
			}
			if n := rebuilt.Load(); n != 0 {
				t.Errorf("the subscription was built anew %d times", n)
			}
		})
	}
}

// The library's next pull would carry it, and the server would refuse that.
// mutation: pulls by the library's Consume make this fail.
func TestAResultCannotPinTheConsumer(t *testing.T) {
	t.Parallel()
	b, rebuilt := countingRebuilds(t)
	got, _ := collect(t, b)
	ids := inPartition(2*pullBatch + 1)
	bustest.PublishRaw(t, b.conn, b.conn.Names.Result(ids[0]), bustest.Succeeded, protocol.HeaderToken, bustest.Ring().Sign(ids[0]), "Nats-Pin-Id", "x")
	settle(t, bustest.Receive(t, "the result that pins", got, 1)[0], nil)
	flood(t, b, ids[1:], b.keys.Sign) // more than one pull brings
	for _, d := range bustest.Receive(t, "the others", got, len(ids)-1) {
		settle(t, d, nil)
	}
	if n := rebuilt.Load(); n != 0 {
		t.Errorf("the subscription was built anew %d times", n)
	}
}

// countingRebuilds makes a consumer, and counts the subscriptions that it builds anew.
func countingRebuilds(t *testing.T) (*Consumer, *atomic.Int64) {
	t.Helper()
	rebuilt := &atomic.Int64{}
	return newTestConsumer(t, natstest.Start(t), func(c *config) {
		c.Log = funcr.New(func(_, args string) {
			if strings.Contains(args, "built anew") {
				rebuilt.Add(1)
				t.Log(args)
			}
		}, funcr.Options{})
	}), rebuilt
}
