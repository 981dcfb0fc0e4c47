package bus

import (
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// maxGaps bounds the memory of delays asked for whose redelivery has not come. Another replica may get it. A message beyond that
// begins a new count of failures, so it becomes a dead letter later, not sooner.
const maxGaps = 4096

// gapMemory is how long after its time a redelivery is still expected here.
const gapMemory = 10 * time.Minute

// ledger knows the unsettled deliveries of one group.
//
// Its lock also orders what goes over the wire about a message: NAK and Term are sent under it, and so is InProgress, which
// therefore never follows them. Sending only copies into the connection's buffer.
type ledger struct {
	mu       sync.Mutex
	held     map[messageKey]*Delivery // open and settling
	settling int
	draining bool
	idle     chan struct{} // closed when draining and nothing is settling
	gaps     map[messageKey]gap
}

// gap is a delay that was asked for, and what is to be known of the message when it comes again.
type gap struct {
	class    string
	askedAt  time.Time
	dueAt    time.Time
	failures int
}

func newLedger() *ledger {
	return &ledger{held: map[messageKey]*Delivery{}, gaps: map[messageKey]gap{}, idle: make(chan struct{})}
}

// admission is the answer of admit.
type admission int

const (
	admitted admission = iota
	renewed            // the message is held already
	refused            // the ledger is draining; the message was given back
)

// admit takes a new delivery. measured is called with the asked class and the measured gap if the delivery follows a NAK.
func (l *ledger) admit(d *Delivery, now time.Time, measured func(class string, gap time.Duration)) admission {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g, ok := l.gaps[d.key]; ok {
		delete(l.gaps, d.key)
		d.Failures = g.failures
		measured(g.class, now.Sub(g.askedAt))
	}
	if l.draining {
		_ = d.msg.Nak() // if it is lost, AckWait does the same
		return refused
	}
	if held := l.held[d.key]; held != nil {
		held.msg = d.msg
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

// take removes the delivery before its ack is sent, so that a redelivery after a lost ack is a new one.
func (l *ledger) take(d *Delivery) jetstream.Msg {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(d)
	return d.msg
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
	if len(l.gaps) < maxGaps {
		failures := d.Failures
		if CountsAsFailure(v.class) {
			failures++
		}
		l.gaps[d.key] = gap{class: v.class, askedAt: now, dueAt: now.Add(v.delay), failures: failures}
	}
	l.settled(d)
	return d.msg.NakWithDelay(v.delay) // a delay of 0 is a plain NAK
}

func (l *ledger) terminate(d *Delivery, reason string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.buried = true
	l.settled(d)
	return d.msg.TermWithReason(reason)
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

// message is the newest delivery of the message.
func (l *ledger) message(d *Delivery) jetstream.Msg {
	l.mu.Lock()
	defer l.mu.Unlock()
	return d.msg
}

// isOpen tells whether anybody still has to do something about d.
func (l *ledger) isOpen(d *Delivery) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return d.state == stateOpen
}

// keepAlive tells the server about all that is held, and forgets delays whose redelivery went elsewhere.
func (l *ledger) keepAlive(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first error
	for _, d := range l.held {
		if err := d.msg.InProgress(); err != nil && first == nil {
			first = err
		}
	}
	for key, g := range l.gaps {
		if now.Sub(g.dueAt) > gapMemory {
			delete(l.gaps, key)
		}
	}
	return first
}

// drain gives back all that is open, from now on also what is still to come. The channel closes when the settlements that were
// under way have ended.
func (l *ledger) drain() (<-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
	var errs []error
	for _, d := range l.held {
		if d.state != stateOpen {
			continue
		}
		d.state = stateDrained
		l.drop(d)
		if err := d.msg.Nak(); err != nil && !errors.Is(err, errStreamLost) {
			errs = append(errs, err)
		}
	}
	l.signalIdle()
	return l.idle, errors.Join(errs...)
}
