// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// The library's Fetch drops what arrives later than a second after the pull is over. The job would
// come again after AckWait, just as late.
//
// mutation: fetch that returns where the server's word is late makes this time out.
func TestAJobThatTakesLongToArriveIsDone(t *testing.T) {
	o := newOperator(t, func(o *server.Options) { o.MaxPayload = 1 << 20 })
	o.topicOf("a", time.Hour)
	link := newLink(t, o.server.ClientURL())
	nc, err := Connect("nats://"+link.address, nats.PingInterval(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	done := make(chan Job, 1)
	w := o.worker()
	w.nc, w.pullWait = nc, time.Second
	if w.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	w.Handle("a", func(_ context.Context, j Job) (any, error) { done <- j; return nil, nil })
	o.eventually("the worker is connected", nc.IsConnected)
	o.start(w)
	o.eventually("a pull waits at the server", func() bool { return o.state("a").NumWaiting > 0 })
	link.hold()
	o.publish("a", job("a"), `{"text":"`+strings.Repeat("x", 200<<10)+`"}`)
	within(t, "the worker gives the pull up, or asks", link.asked)
	link.release()
	select {
	case j := <-done:
		if j.Delivery != 1 {
			t.Errorf("delivery %d, want the first", j.Delivery)
		}
	case <-time.After(patience):
		t.Fatal("the job never came")
	}
}

// link is a way to a server that can hold back what the server says.
type link struct {
	address string
	asked   chan struct{} // closed when the client says, while that is held, what is no job's
	held    atomic.Bool
	mu      sync.Mutex // locked while it is held
	once    sync.Once
}

func (l *link) hold() {
	l.mu.Lock()
	l.held.Store(true)
}

func (l *link) release() {
	if l.held.Swap(false) {
		l.mu.Unlock()
	}
}

func newLink(t *testing.T, url string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{address: listener.Addr().String(), asked: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", url[len("nats://"):])
			if err != nil {
				_ = near.Close()
				continue
			}
			all.Go(func() { l.carry(far, near, l.listen) })
			all.Go(func() { l.carry(near, far, l.wait) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.release()
		all.Wait()
	})
	return l
}

// carry takes bytes from one to the other until either ends.
func (l *link) carry(to, from net.Conn, see func([]byte)) {
	defer func() { _ = errors.Join(to.Close(), from.Close()) }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			see(buffer[:n])
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *link) wait([]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
}

func (l *link) listen(b []byte) {
	if l.held.Load() && (bytes.Contains(b, []byte("PING\r\n")) || bytes.Contains(b, []byte("UNSUB"))) {
		l.once.Do(func() { close(l.asked) })
	}
}

// A fleet whose topic has no consumer asks the server for it.
//
// mutation: bind that waits for as long each time makes this fail.
func TestAWorkerWithoutItsConsumerAsksLessAndLessOften(t *testing.T) {
	const most = 40
	o := newOperator(t)
	asked := o.overhear("$JS.API.CONSUMER.INFO." + o.names.JobsStream() + ".a")
	o.heardSoFar(asked) // the server knows that now
	w := o.worker(func(o *Options) { o.BindInterval = 2 * time.Second })
	now := clocktesting.NewFakeClock(time.Now())
	w.clock, w.rand = now, func() float64 { return 0.5 }
	w.Handle("a", func(context.Context, Job) (any, error) { return nil, nil })
	stop := o.start(w)
	for range 300 {
		o.eventually("bind waits", now.HasWaiters)
		now.Step(time.Second)
	}
	if n := len(o.heardSoFar(asked)); n > most || n < 10 {
		t.Errorf("%d requests in five minutes, want at most %d, and some", n, most)
	}
	o.topic("a")
	o.publish("a", job("a"), `{}`)
	for range 11 {
		o.eventually("bind waits, or the worker is at work", now.HasWaiters)
		now.Step(time.Second)
	}
	o.results(2)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// AckWait can be lowered by hand while workers run. With pings at the pace of before, each long job
// would be handed out a second time.
//
// mutation: run without refresh makes this time out; so does each that reads its interval once.
func TestPingsFollowAnAckWaitThatIsLowered(t *testing.T) {
	o := newOperator(t)
	o.topicOf("a", 3*time.Hour)
	pings := o.overhear("$JS.ACK.>")
	o.heardSoFar(pings) // the server knows that now
	now := clocktesting.NewFakeClock(time.Now())
	w := o.worker()
	w.clock = now
	release := make(chan struct{})
	finish := sync.OnceFunc(func() { close(release) })
	w.Handle("a", func(context.Context, Job) (any, error) { <-release; return "done", nil })
	o.publish("a", job("a"), `{}`)
	o.start(w)
	t.Cleanup(finish)
	o.results(1)
	c, err := o.js.Consumer(t.Context(), o.names.JobsStream(), protocol.Durable("a"))
	if err != nil {
		t.Fatal(err)
	}
	config := c.CachedInfo().Config
	config.AckWait = time.Hour
	if _, err := o.js.UpdateConsumer(t.Context(), o.names.JobsStream(), config); err != nil {
		t.Fatal(err)
	}
	top := w.topics["a"]
	now.Step(refreshInterval)
	o.eventually("AckWait is read again", func() bool { return top.pingEvery() == 20*time.Minute })
	pinged := func() bool { return len(o.heardSoFar(pings)) > 0 }
	now.Step(time.Hour)
	o.eventually("a ping at the pace of before", pinged)
	now.Step(20 * time.Minute)
	o.eventually("a ping at the new pace", pinged)
}
