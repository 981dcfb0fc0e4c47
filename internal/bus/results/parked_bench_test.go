// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/share"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// BenchmarkNeighbourOfParked measures, on a real server, what a result of another run of the same
// group waits while results of one run are given back again and again, at the pace of a run that
// has no room: once all of them have come for the first time.
func BenchmarkNeighbourOfParked(b *testing.B) {
	for _, n := range []int{0, 1_000, 20_000, 100_000} {
		b.Run(fmt.Sprintf("parked=%d", n), func(b *testing.B) {
			for range b.N {
				w := waitBeside(b, n)
				b.ReportMetric(float64(w[len(w)/2])/float64(time.Millisecond), "ms-p50")
				b.ReportMetric(float64(w[len(w)*99/100])/float64(time.Millisecond), "ms-p99")
			}
		})
	}
}

// waitBeside gives the sorted waits of a hundred results of the neighbour, one after the other.
func waitBeside(b *testing.B, n int) []time.Duration {
	b.Helper()
	on := newTestConsumer(b, natstest.Start(b))
	hot, neighbour := hotAndNeighbour(n + 1)
	flood(b, on, hot[:n], on.keys.Sign)
	var (
		mu   sync.Mutex
		pace = share.NewPace(time.Minute)
		came = map[protocol.JobID]bool{}
		all  = make(chan struct{})
		over = n == 0
		got  = make(chan *Delivery, 1)
	)
	if n == 0 {
		close(all)
	}
	began := time.Now()
	consume(b, on, func(ctx context.Context, d *Delivery) {
		if d.ID.RunUID == neighbour.RunUID {
			got <- d
			return
		}
		mu.Lock()
		wait := time.Second + pace.Wait("hot", time.Millisecond, time.Now())
		if came[d.ID] = true; len(came) == n && !over {
			over = true
			close(all)
		}
		mu.Unlock()
		_ = d.Settle(ctx, &otherError{delay: wait, class: bus.ClassInboxFull}) // one that is lost comes by AckWait
	})
	<-all
	b.Logf("%d came for the first time within %s", n, time.Since(began).Round(time.Millisecond))
	var waits []time.Duration
	for i := range 100 {
		neighbour.Attempt = int32(i + 1)
		began := time.Now()
		bustest.Answer(b, on.conn, neighbour, bustest.Succeeded)
		d := bustest.Receive(b, "the neighbour's result", got, 1)[0]
		waits = append(waits, time.Since(began))
		_ = d.Settle(b.Context(), nil)
	}
	slices.Sort(waits)
	return waits
}
