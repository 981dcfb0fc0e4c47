// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// BenchmarkRedeliveryGap measures, on a real server that is idle otherwise, the time from asking
// for a delay to the redelivery. It prints a table of asked and measured; "late" is measured -
// asked. Run with -benchtime 20x.
func BenchmarkRedeliveryGap(b *testing.B) {
	on := newTestConsumer(b, natstest.Start(b))
	asked := []time.Duration{0, 350 * time.Millisecond, 500 * time.Millisecond, 650 * time.Millisecond, 2 * time.Second}
	measured := make([][]time.Duration, len(asked))
	var (
		mu   sync.Mutex
		at   = map[protocol.JobID]time.Time{}
		gaps = make(chan struct{}, len(asked))
	)
	consume(b, on, func(ctx context.Context, d *Delivery) {
		mu.Lock()
		defer mu.Unlock()
		var i int
		if _, err := fmt.Sscanf(d.ID.RunUID, "run-%d", &i); err != nil {
			b.Errorf("run %s: %v", d.ID.RunUID, err)
			return
		}
		began, second := at[d.ID]
		if !second {
			at[d.ID] = time.Now()
			_ = d.Settle(ctx, &otherError{delay: asked[i], class: bus.ClassLockBusy}) // a NAK that is lost shows in the figures
			return
		}
		measured[i] = append(measured[i], time.Since(began))
		_ = d.Settle(ctx, nil)
		gaps <- struct{}{}
	})
	attempt := int32(0)
	for b.Loop() {
		attempt++
		for i := range asked { // each run is in a group of its own most of the time: they do not wait for each other
			id := bustest.JobID(i)
			id.Attempt = attempt
			bustest.Answer(b, on.conn, id, bustest.Succeeded)
		}
		bustest.Receive(b, "redeliveries", gaps, len(asked))
	}
	report(b, asked, measured)
}

func report(b *testing.B, asked []time.Duration, measured [][]time.Duration) {
	b.Helper()
	var table strings.Builder
	fmt.Fprintf(&table, "%8s %10s %10s %10s %10s\n", "asked", "least", "median", "most", "late (max)")
	worst := time.Duration(0)
	for i, list := range measured {
		slices.Sort(list)
		late := list[len(list)-1] - asked[i]
		worst = max(worst, late)
		fmt.Fprintf(&table, "%8s %10s %10s %10s %10s\n", asked[i], list[0].Round(100*time.Microsecond),
			list[len(list)/2].Round(100*time.Microsecond), list[len(list)-1].Round(100*time.Microsecond), late.Round(100*time.Microsecond))
		b.ReportMetric(float64(list[len(list)/2]-asked[i])/float64(time.Millisecond), fmt.Sprintf("ms-late-%dms", asked[i].Milliseconds()))
		if list[0] < asked[i] {
			b.Errorf("asked for %s, came after %s", asked[i], list[0])
		}
	}
	b.ReportMetric(float64(worst)/float64(time.Millisecond), "ms-late-max")
	b.Logf("%d redeliveries of each\n%s", len(measured[0]), table.String())
}
