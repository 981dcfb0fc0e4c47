// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/syncopate-dev/syncopate/internal/book"
)

// pauseLength is longer than the AckWait of results: what the operator has in hand is delivered
// again while it sleeps.
const pauseLength = 12 * time.Second

// fault is one thing that goes wrong in the middle of everything.
type fault string

const (
	operatorKilled  fault = "operator SIGKILL"
	operatorPaused  fault = "operator SIGSTOP for 12 s"
	operatorStopped fault = "operator SIGTERM"
	natsKilled      fault = "nats-server SIGKILL"
	natsRestarted   fault = "nats-server restart"
	bothKilled      fault = "operator and nats-server SIGKILL"
)

// shuffled gives a plan of faults its order.
func shuffled(seed uint64, faults ...fault) []fault {
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(faults), func(i, k int) { faults[i], faults[k] = faults[k], faults[i] })
	return faults
}

// strike lets the faults happen one after the other, each when its share of all
// results was published.
func (w *world) strike(ctx context.Context, o *operator, l *book.Ledger, s book.Size, faults []fault) {
	w.tb.Helper()
	for i, f := range faults {
		at := s.Results() * (i + 1) / (len(faults) + 1)
		await(ctx, w.tb, s.Patience, fmt.Sprintf("%d results are confirmed", at), func() string {
			if n := l.Answered(); n < at {
				return fmt.Sprintf("%d are, %d have an effect", n, l.Applied())
			}
			return ""
		})
		begin := time.Now()
		w.suffer(ctx, o, f)
		w.note("%s at %d results, %d applied; it took %s", f, at, l.Applied(), time.Since(begin).Round(time.Millisecond))
	}
}

func (w *world) suffer(ctx context.Context, o *operator, f fault) {
	w.tb.Helper()
	switch f {
	case operatorKilled:
		o.kill()
		o.start(ctx)
	case operatorStopped:
		if err := o.now.Terminate(ctx); err != nil {
			w.tb.Error(err)
		}
		o.start(ctx)
	case operatorPaused:
		o.pause(ctx, pauseLength)
	case natsKilled:
		w.nats.restart(ctx, true)
	case natsRestarted:
		w.nats.restart(ctx, false)
	case bothKilled:
		o.kill()
		w.nats.restart(ctx, true)
		o.start(ctx)
	}
}
