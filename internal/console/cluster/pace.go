// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

const (
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

// pace is how long to wait before the next watch: twice as long each time, until one lasts. A
// server that ends watches at once is asked as seldom as one that refuses them.
type pace struct{ next time.Duration }

// grown says whether some watches in a row did not last.
func (p *pace) grown() bool { return p.next > 2*retryFirst }

// wait waits after a watch that lasted so long, or until ctx ends.
func (p *pace) wait(ctx context.Context, c clock.WithTicker, lasted time.Duration) error {
	if p.next == 0 || lasted >= retryMost {
		p.next = retryFirst
	}
	timer := c.NewTimer(p.next)
	defer timer.Stop()
	p.next = min(2*p.next, retryMost)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}
