// SPDX-License-Identifier: Apache-2.0

package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// silentBeats is after how many beats without a word of the server a pull is taken for lost.
const silentBeats = 3

// Words of the server about a pull.
const (
	wordHeartbeat = "100"
	wordTimeout   = "408"
	wordConflict  = "409" // the pull has ended for another reason, which a text names
)

// pulls asks the server for the results of a partition, one pull at a time.
//
// The library's Consume and Fetch are not fit for what workers publish: they take a message without
// a body for a word of the server if it has a header Status, and their next pull carries its
// Nats-Pin-Id. Here a word of the server is what nobody can acknowledge, and no word ends the
// subscription: one that is odd has the server asked.
type pulls struct {
	feed      *feed
	receive   func(*nats.Msg)
	sub       *nats.Subscription
	inbox     string
	closed    chan struct{}
	connected chan nats.Status // has a value after a reconnect: the pull that was under way is gone
	keeper    sync.WaitGroup
	stop      chan struct{}
	fits      atomic.Bool // want is as the stream wants it

	mu      sync.Mutex
	want    pullRequest
	serial  int  // of the pull under way: words about it come to a subject of its own
	brought int  // messages since it was sent
	bytes   int  // of these, as the server counts them
	due     int  // how many it brings, as far as is known
	refused bool // since it was sent, nobody was there
	retried bool // once
	beats   int  // since the last word or message
	busy    bool
	ended   bool
}

// pullRequest is what the server wants to be asked.
type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// newPulls subscribes, and sends the first pull. receive is called with one message after the
// other, and while it waits nothing more is pulled. The pulls have to be drained.
func newPulls(f *feed, want pullRequest, receive func(*nats.Msg)) (*pulls, error) {
	nc := f.consumer.conn.NATS
	p := &pulls{feed: f, receive: receive, inbox: nc.NewInbox(), want: want, closed: make(chan struct{}), stop: make(chan struct{})}
	var err error
	if p.sub, err = nc.Subscribe(p.inbox+".*", p.take); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	p.sub.SetClosedHandler(func(string) { close(p.closed) })
	p.connected = nc.StatusChanged(nats.CONNECTED)
	p.again()
	p.keeper.Go(p.keep)
	return p, nil
}

// keep sends the next pull where the one under way is lost. It waits for no request: who does would
// notice that late, just when the server is slow to answer.
func (p *pulls) keep() {
	ticker := p.feed.consumer.conn.Clock.NewTicker(pullHeartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-p.connected:
			p.again()
		case <-ticker.C():
			p.beat()
		}
	}
}

// again sends the next pull, whatever became of the one before. Where that fails, beat tries again.
func (p *pulls) again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.send()
}

// fit has pulls bring messages of so many bytes from now on.
func (p *pulls) fit(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fits.Store(true)
	if bytes > p.want.MaxBytes {
		p.want.MaxBytes = bytes
		p.send()
	}
}

// retry sends the next pull if the one under way was refused, though the consumer is there: it was
// made just then. Once only, or what is refused for another cause would be asked for without a
// pause.
func (p *pulls) retry() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused && !p.retried {
		p.retried = true
		p.send()
	}
}

// wasRefused says whether nobody took the pull under way.
func (p *pulls) wasRefused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// send sends the next pull. mu is held.
func (p *pulls) send() {
	if p.ended {
		return
	}
	request, err := json.Marshal(p.want)
	if err != nil {
		p.feed.tellPull(err)
		return
	}
	p.serial++
	p.brought, p.bytes, p.due, p.refused, p.beats = 0, 0, p.want.Batch, false, 0
	conn := p.feed.consumer.conn
	if err = conn.NATS.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+conn.Names.ResultsStream()+"."+p.feed.name, p.reply(), request); err != nil {
		p.feed.tellPull(err)
	}
}

func (p *pulls) reply() string { return p.inbox + "." + strconv.Itoa(p.serial) }

// beat is called at the pace of the server's heartbeats. Without any, the pull under way is lost.
func (p *pulls) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy {
		return // the server's words wait behind a message
	}
	if p.beats++; p.beats >= silentBeats {
		p.send()
	}
}

// take takes a message of the stream, or a word of the server.
func (p *pulls) take(m *nats.Msg) {
	p.heard(true)
	defer p.heard(false)
	if m.Reply == "" {
		p.word(m)
		return
	}
	p.receive(m)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.brought++
	p.bytes += m.Size()
	p.nextIfOver()
}

// nextIfOver sends the next pull if the one under way has brought all. Of one whose bytes fit
// exactly the server says no word. mu is held.
func (p *pulls) nextIfOver() {
	if p.brought >= p.due || p.bytes >= p.want.MaxBytes {
		p.send()
	}
}

func (p *pulls) heard(busy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy, p.beats = busy, 0
}

// word takes a word of the server. An end of the pull under way is followed by the next one, once
// it has brought what the server says: a consumer with replicas sends messages when they are
// recorded, and its word before. After an odd end, as that of a consumer that is gone or has no
// leader, the next one waits for beat: else pull after pull would be refused. A new leader knows
// only pulls of before that.
func (p *pulls) word(m *nats.Msg) {
	status, text := m.Header.Get("Status"), m.Header.Get("Description")
	p.mu.Lock()
	defer p.mu.Unlock()
	moved := status == wordConflict && strings.EqualFold(text, "Leadership Change")
	if status == wordHeartbeat || m.Subject != p.reply() && (!moved || !p.refused) {
		return
	}
	left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	switch {
	case status == wordTimeout, moved:
		p.send()
	case status == wordConflict && err == nil && left < p.want.Batch:
		p.due = p.want.Batch - left
		p.nextIfOver()
	default:
		p.refused = true
		p.feed.tellPull(errors.New(status + " " + text))
		p.feed.ask()
	}
}

// drain ends the pulls. It waits until the last message that was on its way has been received, or
// is never to come.
func (p *pulls) drain() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	close(p.stop)
	p.keeper.Wait()
	conn := p.feed.consumer.conn
	conn.NATS.RemoveStatusListener(p.connected)
	if conn.Reachable() {
		_ = p.sub.Drain() // fails where the connection is closed: then nothing comes
	} else {
		_ = p.sub.Unsubscribe() // there is nobody to say that nothing more comes
	}
	t := conn.Clock.NewTimer(drainTimeout)
	defer t.Stop()
	select {
	case <-p.closed:
	case <-t.C():
	}
}
