package workflowrun

import (
	"time"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// waitedEnough ends the wait for a lock: the run has it, or wants it no more.
func (p *pass) waitedEnough() {
	p.countLeaseless()
	p.mem.busy, p.mem.busyRetries, p.mem.leaselessSince = busyWait{}, 0, time.Time{}
	p.noteInHand()
}

// countLeaseless counts, up to now, how long a run that lost its lease has wanted another: with each try, so that the figure grows
// during an outage and not after it.
func (p *pass) countLeaseless() {
	if p.mem.leaselessSince.IsZero() {
		return
	}
	now := p.clock.Now()
	p.locked.Leaseless(p.policy.Name, now.Sub(p.mem.leaselessSince))
	p.mem.leaselessSince = now
}

// noteInHand measures a take-over: from the moment at which this process led to that at which it looks after a run of an earlier leader,
// which is when it has the run's lock, or knows that nothing is due.
func (p *pass) noteInHand() {
	began := p.leading.Load()
	if p.mem.inHand || began == nil {
		return
	}
	p.mem.inHand = true
	_, writer := fenceOf(p.run)
	if writer != "" && p.mem.writer == "" && !lifecycle.Finished(p.run) && p.run.CreationTimestamp.Time.Before(*began) {
		p.metrics.takeOver.Observe(p.clock.Since(*began).Seconds())
	}
}
