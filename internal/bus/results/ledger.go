// SPDX-License-Identifier: Apache-2.0

package results

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/share"
)

const (
	// maxGaps bounds the memory of delays asked for whose redelivery has not come. Another replica
	// may get it. It is for messages that failed before: beyond it one begins a new count, so it
	// becomes a dead letter later, not sooner. A run has a share of it.
	maxGaps = 512
	// maxMeasured bounds it for those that did not fail, whose gap is a mere figure: others must
	// not go uncounted for it.
	maxMeasured = 512
)

// gapMemory is how long after its time a redelivery is still expected here.
const gapMemory = 10 * time.Minute

// ledger knows the unsettled deliveries of one partition.
//
// Its lock also orders what goes over the wire about a message: NAK and Term are sent under
// it, and so is InProgress, which therefore never follows them. Sending only copies into
// the connection's buffer, or waits a few seconds where the server hangs and the socket is full.
// During a known outage nothing is sent.
type ledger struct {
	mu       sync.Mutex
	held     map[messageKey]*Delivery // open and settling
	settling int
	draining bool
	returned bool          // something for the next owner
	unsent   error         // the first of those NAKs that failed and that drain does not tell of
	idle     chan struct{} // closed when draining and nothing is settling
	gaps     map[messageKey]gap
	failed   *share.Room // of those of gaps that failed, by run
	returns  *returns    // shared by all partitions
}

// gap is a delay that was asked for, and what is to be known of the message when it comes again.
type gap struct {
	run      string
	class    string
	askedAt  time.Time
	dueAt    time.Time
	failures int
}

func newLedger(r *returns) *ledger {
	return &ledger{held: map[messageKey]*Delivery{}, gaps: map[messageKey]gap{}, failed: share.NewRoom(maxGaps), returns: r, idle: make(chan struct{})}
}

// admission is the answer of admit.
type admission int

const (
	admitted admission = iota
	renewed            // the message is held already
	refused            // the ledger is draining; the message was given back
)

// admit takes a new delivery. measured is called with the class and the delay that were asked for,
// and the measured gap, if the delivery follows a NAK.
func (l *ledger) admit(d *Delivery, now time.Time, measured func(class string, asked, gap time.Duration)) admission {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g, ok := l.gaps[d.key]; ok {
		l.forget(d.key, g)
		d.Failures = g.failures
		measured(g.class, g.dueAt.Sub(g.askedAt), now.Sub(g.askedAt))
	}
	if l.draining {
		l.note(l.giveAway(d, now)) // if it is lost, AckWait does the same
		return refused
	}
	if held := l.held[d.key]; held != nil {
		held.receipt = d.receipt
		return renewed
	}
	l.held[d.key] = d
	return admitted
}

// claim gives the delivery to one caller of Settle. The others get what Settle has to return.
func (l *ledger) claim(d *Delivery) (ok bool, earlier error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch d.state {
	case stateOpen:
		d.state = stateSettling
		l.settling++
		return true, nil
	case stateDrained:
		return false, ErrDrained
	default:
		return false, nil
	}
}

// take removes the delivery before its ack is sent, so that a redelivery after a lost ack is
// a new one.
func (l *ledger) take(d *Delivery) receipt {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(d)
	return d.receipt
}

func (l *ledger) finish(d *Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled(d)
}

// giveBack sends the NAK.
func (l *ledger) giveBack(d *Delivery, v verdict, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	failures := d.Failures
	if CountsAsFailure(v.class) {
		failures++
	}
	l.returned = l.returned || l.draining
	l.remember(d.key, gap{run: d.ID.RunUID, class: v.class, askedAt: now, dueAt: now.Add(v.delay), failures: failures})
	l.settled(d)
	err := d.receipt.NakWithDelay(v.delay) // a delay of 0 is a plain NAK
	if l.draining {
		l.note(err)
	}
	return err
}

// note keeps the error of a NAK for who leaves the partition. l.mu is held.
func (l *ledger) note(err error) {
	if l.unsent == nil && !errors.Is(err, bus.ErrStreamLost) {
		l.unsent = err
	}
}

// remember keeps a gap if there is room for it. l.mu is held.
func (l *ledger) remember(key messageKey, g gap) {
	if old, ok := l.gaps[key]; ok { // its redelivery went elsewhere, and came back
		l.forget(key, old)
	}
	if g.failures == 0 && len(l.gaps)-int(l.failed.Used()) >= maxMeasured || g.failures > 0 && !l.failed.Take("", g.run, 1) {
		return
	}
	l.gaps[key] = g
}

// forget drops a gap. l.mu is held.
func (l *ledger) forget(key messageKey, g gap) {
	delete(l.gaps, key)
	if g.failures > 0 {
		l.failed.Free("", g.run, 1)
	}
}

// parked counts, by class, the deliveries that were given back and have not come again, as far as
// they are remembered.
func (l *ledger) parked(into map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.gaps {
		into[g.class]++
	}
}

func (l *ledger) terminate(d *Delivery, reason string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.buried = true
	l.settled(d)
	return d.receipt.TermWithReason(reason)
}

// settled ends a settlement. l.mu is held.
func (l *ledger) settled(d *Delivery) {
	l.drop(d)
	d.state = stateSettled
	l.settling--
	l.signalIdle()
}

// drop removes d from what is held. l.mu is held.
func (l *ledger) drop(d *Delivery) {
	if l.held[d.key] == d { // not a later delivery of the same message
		delete(l.held, d.key)
	}
}

func (l *ledger) signalIdle() {
	if l.draining && l.settling == 0 {
		select {
		case <-l.idle:
		default:
			close(l.idle)
		}
	}
}

// isOpen tells whether anybody still has to do something about d.
func (l *ledger) isOpen(d *Delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return d.state == stateOpen
}

// keepAlive tells the server about all that is held, and forgets delays whose
// redelivery went elsewhere. That a stream is gone, and what it had with it, is no error.
func (l *ledger) keepAlive(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first error
	for _, d := range l.held {
		if err := d.receipt.InProgress(); err != nil && first == nil && !errors.Is(err, bus.ErrStreamLost) {
			first = err
		}
	}
	for key, g := range l.gaps {
		if now.Sub(g.dueAt) > gapMemory {
			l.forget(key, g)
		}
	}
	return first
}

// drain gives back all that is open, the oldest first, and from now on also what is still to come.
// The channel closes when the settlements that were under way have ended.
func (l *ledger) drain(now time.Time) (<-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
	var errs []error
	for _, d := range slices.SortedFunc(maps.Values(l.held), func(a, b *Delivery) int { return cmp.Compare(a.key.sequence, b.key.sequence) }) {
		if d.state != stateOpen {
			continue
		}
		d.state = stateDrained
		l.drop(d)
		if err := l.giveAway(d, now); err != nil && !errors.Is(err, bus.ErrStreamLost) {
			errs = append(errs, err)
		}
	}
	l.signalIdle()
	return l.idle, errors.Join(errs...)
}

// gaveBack says whether anything was given back for the next owner of the partition, and what could
// not be sent of it beside drain.
func (l *ledger) gaveBack() (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.returned, l.unsent
}

// giveAway sends a NAK for the next owner of the partition. l.mu is held.
func (l *ledger) giveAway(d *Delivery, now time.Time) error {
	l.returned = true
	if wait := l.returns.after(d, now); wait > 0 {
		return d.receipt.NakWithDelay(wait)
	}
	return d.receipt.Nak()
}
