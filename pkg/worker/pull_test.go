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
	o, link, w := slowWorker(t, "Nats-Msg-Id")
	done := make(chan Job, 1)
	w.Handle("a", func(_ context.Context, j Job) (any, error) { done <- j; return nil, nil })
	o.start(w)
	o.publish("a", job("a"), `{"text":"`+strings.Repeat("x", 200<<10)+`"}`)
	within(t, "the worker gives the pull up, or asks", link.asked)
	link.release()
	firstDelivery(t, done)
}

// A batch of large jobs may arrive for as long as AckWait. Those that have come are not to wait for
// the last one: nobody pings them, and a cancel does not find them.
//
// mutation: handOver that begins when the pull is over makes this time out.
func TestAJobThatCameLateIsBegunWhileOthersAreUnderWay(t *testing.T) {
	o, link, w := slowWorker(t, "Nats-Msg-Id")
	w.Handle("a", func(context.Context, Job) (any, error) { return nil, nil }, Concurrency(2))
	o.start(w)
	o.publish("a", job("a"), `{}`)
	within(t, "the worker asks", link.asked)
	link.letOne() // and nothing behind it, as the answer
	o.eventually("a cancel finds the job", func() bool { return w.running.cancel(job("a").RunUID, nil) > 0 })
	link.release()
}

// A request that reaches the server late is open when the worker has waited for it. Here the server
// is told another time.
//
// mutation: over that waits once makes this time out.
func TestAJobThatIsGivenOutAfterTheAnswerToThePingIsDone(t *testing.T) {
	o, link, w := slowWorker(t, "PONG")
	link.longer.Store(true)
	done := make(chan Job, 1)
	w.Handle("a", func(_ context.Context, j Job) (any, error) { done <- j; return nil, nil })
	o.start(w)
	o.eventually("the answer to the ping is under way", link.held.Load)
	o.publish("a", job("a"), `{}`)
	o.eventually("the job is given out", func() bool { return o.state("a").NumAckPending > 0 })
	link.letOne()
	within(t, "the worker gives the pull up, or asks once more", link.asked)
	link.release()
	firstDelivery(t, done)
}

// A worker whose connection breaks has jobs in hand that came before.
//
// mutation: handOver that ends with its pull at once drops some.
func TestWhatHasComeBeforeAPullEndsIsHandedOver(t *testing.T) {
	const most = 50
	came, over, got := make(chan *nats.Msg, most), make(chan error, 1), 0
	for range most {
		came <- &nats.Msg{Reply: "ack"}
	}
	over <- nats.ErrDisconnected
	err := handOver(came, over, most+1, func(*nats.Msg) { got++ })
	if got != most || !errors.Is(err, nats.ErrDisconnected) {
		t.Errorf("%d of %d jobs, and %v", got, most, err)
	}
}

// A link that went silent is not to hold a worker for longer than Kubernetes lets it stop.
//
// mutation: fetch that ends with its patience alone, also when it is told to stop, makes
// this time out.
func TestASilentLinkHoldsNoStop(t *testing.T) {
	o, link, w := slowWorker(t, "Nats-Msg-Id")
	w.Handle("a", func(context.Context, Job) (any, error) { return nil, nil })
	o.publish("a", job("a"), `{}`) // before the pull, which lasts a second at the server
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.topics["a"].fetch(ctx, 1, time.Hour, func(*nats.Msg) {})
	}()
	within(t, "the worker asks", link.asked)
	cancel()
	within(t, "the pull ends", ended)
}

func firstDelivery(t *testing.T, done <-chan Job) {
	t.Helper()
	select {
	case j := <-done:
		if j.Delivery != 1 {
			t.Errorf("delivery %d, want the first", j.Delivery)
		}
	case <-time.After(patience):
		t.Fatal("the job never came")
	}
}

// slowWorker gives a worker behind a link that is held from where the server says this on.
func slowWorker(t *testing.T, at string) (*operator, *link, *Worker) {
	t.Helper()
	o := newOperator(t, func(o *server.Options) { o.MaxPayload = 1 << 20 })
	o.topicOf("a", time.Hour)
	link := newLink(t, o.server.ClientURL())
	nc, err := Connect("nats://"+link.address, nats.PingInterval(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	w := o.worker()
	w.nc, w.pullWait = nc, time.Second
	if w.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	o.eventually("the worker is connected", nc.IsConnected)
	link.at.Store(&at)
	return o, link, w
}

// link is a way to a server that can hold back what the server says.
type link struct {
	address string
	at      atomic.Pointer[string] // from where on it is held
	held    atomic.Bool
	longer  atomic.Bool   // the client's requests last longer at the server than it says
	gate    chan struct{} // what is held passes by it, piece by piece
	asked   chan struct{} // one of each time that the client says, while that is held, what is no job's
	release func()
}

// letOne lets the first piece pass that is held.
func (l *link) letOne() { l.gate <- struct{}{} }

func newLink(t *testing.T, url string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{address: listener.Addr().String(), gate: make(chan struct{}), asked: make(chan struct{}, 100)}
	l.release = sync.OnceFunc(func() { close(l.gate) })
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

// wait holds what the server says.
func (l *link) wait(b []byte) {
	if at := l.at.Load(); at != nil && bytes.Contains(b, []byte(*at)) {
		l.held.Store(true)
	}
	if l.held.Load() {
		<-l.gate
	}
}

func (l *link) listen(b []byte) {
	if l.longer.Load() {
		copy(b, bytes.ReplaceAll(b, []byte(`"expires":1000`), []byte(`"expires":9000`)))
	}
	if l.held.Load() && (bytes.Contains(b, []byte("PING\r\n")) || bytes.Contains(b, []byte("UNSUB"))) {
		select {
		case l.asked <- struct{}{}:
		default:
		}
	}
}

// A fleet whose topic has no consumer asks the server for it.
//
// mutations: bind that waits for as long each time makes this fail; so does one whose ceiling may
// be exceeded by half.
func TestAWorkerWithoutItsConsumerAsksLessAndLessOften(t *testing.T) {
	const least, most = 55, 80
	o := newOperator(t)
	asked := o.overhear("$JS.API.CONSUMER.INFO." + o.names.JobsStream() + ".a")
	o.heardSoFar(asked) // the server knows that now
	w := o.worker(func(o *Options) { o.BindInterval = 2 * time.Second })
	now := clocktesting.NewFakeClock(time.Now())
	w.clock, w.rand = now, func() float64 { return 0.99 }
	w.Handle("a", func(context.Context, Job) (any, error) { return nil, nil })
	stop := o.start(w)
	for range 300 {
		o.eventually("bind waits", now.HasWaiters)
		now.Step(time.Second)
	}
	if n := len(o.heardSoFar(asked)); n > most || n < least {
		t.Errorf("%d requests in five minutes, want %d to %d", n, least, most)
	}
	o.topic("a")
	o.publish("a", job("a"), `{}`)
	for range 6 {
		o.eventually("bind waits, or the worker is at work", now.HasWaiters)
		now.Step(time.Second)
	}
	o.results(2)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// AckWait can be lowered by hand while workers run, and the server goes by the new one at once.
// With pings at the pace of before, each long job would be handed out a second time.
//
// mutations: pingEvery without its most makes this time out; so do run without refresh, and each
// that reads its interval once.
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
	pinged := func() bool { return len(o.heardSoFar(pings)) > 0 }
	now.Step(refreshInterval)
	o.eventually("a ping within a minute, however long AckWait is", pinged)
	c, err := o.js.Consumer(t.Context(), o.names.JobsStream(), protocol.Durable("a"))
	if err != nil {
		t.Fatal(err)
	}
	config := c.CachedInfo().Config
	config.AckWait = 2 * time.Minute
	if _, err := o.js.UpdateConsumer(t.Context(), o.names.JobsStream(), config); err != nil {
		t.Fatal(err)
	}
	top := w.topics["a"]
	now.Step(refreshInterval)
	o.eventually("AckWait is read again", func() bool { return top.pingEvery() == 40*time.Second })
	o.eventually("a ping at the pace of before", pinged)
	now.Step(refreshInterval)
	o.eventually("another one, or the first at the new pace", pinged)
	now.Step(40 * time.Second)
	o.eventually("a ping at the new pace", pinged)
}
