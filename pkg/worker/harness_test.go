// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	shortAckWait = 600 * time.Millisecond
	patience     = 30 * time.Second
	token        = "k1.secret-token"
)

// operator stands for the operator: it makes streams and consumers as the protocol says, with
// nothing of the project but names, publishes jobs and reads results.
type operator struct {
	t       *testing.T
	options server.Options
	server  *server.Server
	nc      *nats.Conn
	js      jetstream.JetStream
	names   protocol.Names
	logs    *logs
}

func newOperator(t *testing.T, edit ...func(*server.Options)) *operator {
	t.Helper()
	o := &operator{t: t, names: protocol.Names{Prefix: protocol.DefaultPrefix}, logs: &logs{}}
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	o.options = server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, MaxPayload: 64 << 10}
	for _, e := range edit {
		e(&o.options)
	}
	o.serve(o.options)
	t.Cleanup(o.shutdown)
	o.nc = o.connect()
	if o.js, err = jetstream.New(o.nc); err != nil {
		t.Fatal(err)
	}
	o.makeStreams()
	return o
}

// makeStreams makes all that the operator makes when it starts.
func (o *operator) makeStreams() {
	o.t.Helper()
	o.stream(jetstreamJobs(o.names))
	o.stream(jetstreamResults(o.names))
	o.stream(jetstream.StreamConfig{Name: o.names.ControlStream(), Subjects: []string{"syncopate.control.*"}, MaxAge: time.Minute})
	o.makeStore()
}

// makeStore makes the object store of large outputs.
func (o *operator) makeStore() {
	o.t.Helper()
	if _, err := o.js.CreateObjectStore(o.t.Context(), jetstream.ObjectStoreConfig{Bucket: o.names.PayloadsBucket()}); err != nil {
		o.t.Fatal(err)
	}
}

// store is the object store as the library of NATS sees it.
func (o *operator) store() jetstream.ObjectStore {
	o.t.Helper()
	s, err := o.js.ObjectStore(o.t.Context(), o.names.PayloadsBucket())
	if err != nil {
		o.t.Fatal(err)
	}
	return s
}

// limitStore changes a limit of the object store.
func (o *operator) limitStore(edit func(*jetstream.StreamConfig)) {
	o.t.Helper()
	s, err := o.js.Stream(o.t.Context(), o.names.PayloadsStream())
	if err != nil {
		o.t.Fatal(err)
	}
	c := s.CachedInfo().Config
	edit(&c)
	if _, err := o.js.UpdateStream(o.t.Context(), c); err != nil {
		o.t.Fatal(err)
	}
}

// inStore counts the messages of the object store: chunks and entries.
func (o *operator) inStore() uint64 {
	o.t.Helper()
	s, err := o.js.Stream(o.t.Context(), o.names.PayloadsStream())
	if err != nil {
		o.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

func (o *operator) serve(options server.Options) {
	o.t.Helper()
	s, err := server.NewServer(&options)
	if err != nil {
		o.t.Fatal(err)
	}
	s.Start()
	o.server = s
	if !s.ReadyForConnections(patience) {
		o.t.Fatal("nats-server does not start")
	}
}

func (o *operator) shutdown() {
	o.server.Shutdown()
	o.server.WaitForShutdown()
}

// restart stops the server and starts it again with the same port and the same data.
func (o *operator) restart() {
	o.t.Helper()
	o.up(o.down())
}

// restartEmpty starts the server again without the data.
func (o *operator) restartEmpty() {
	o.t.Helper()
	port := o.down()
	o.options.StoreDir = o.t.TempDir()
	o.up(port)
}

// down stops the server, and gives the port of which up needs to start it again.
func (o *operator) down() (port int) {
	o.t.Helper()
	address, ok := o.server.Addr().(*net.TCPAddr)
	if !ok {
		o.t.Fatalf("address %v", o.server.Addr())
	}
	o.shutdown()
	// Until it is noticed, a request goes to the old server and is lost.
	o.eventually("the operator noticed", func() bool { return !o.nc.IsConnected() })
	return address.Port
}

func (o *operator) up(port int) {
	o.t.Helper()
	options := o.options
	options.Port = port
	o.serve(options)
	o.eventually("the operator is connected again", o.nc.IsConnected)
}

func (o *operator) connect() *nats.Conn {
	o.t.Helper()
	nc, err := Connect(o.server.ClientURL())
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(nc.Close)
	return nc
}

func (o *operator) stream(c jetstream.StreamConfig) {
	o.t.Helper()
	if _, err := o.js.CreateStream(o.t.Context(), c); err != nil {
		o.t.Fatal(err)
	}
}

// topic makes the consumer of a topic.
func (o *operator) topic(name string) {
	o.t.Helper()
	o.topicOf(name, shortAckWait)
}

// topicOf is topic with another AckWait.
func (o *operator) topicOf(name string, ackWait time.Duration) {
	o.t.Helper()
	_, err := o.js.CreateConsumer(o.t.Context(), o.names.JobsStream(), jetstream.ConsumerConfig{
		Durable: protocol.Durable(name), FilterSubject: o.names.TopicJobs(name), AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxDeliver: -1,
	})
	if err != nil {
		o.t.Fatal(err)
	}
}

func job(step string) protocol.JobID {
	return protocol.JobID{RunUID: "8b0e", Step: step, Item: protocol.NoItem, Attempt: 1}
}

// publish dispatches a job; headers may be changed before it goes.
func (o *operator) publish(topic string, id protocol.JobID, input string, edit ...func(nats.Header)) {
	o.t.Helper()
	m := nats.NewMsg(o.names.Job(topic, id))
	m.Data = []byte(input)
	for k, v := range map[string]string{
		protocol.HeaderMsgID: id.String(), protocol.HeaderReply: o.names.Result(id), protocol.HeaderToken: token, protocol.HeaderFence: "17",
		protocol.HeaderCESource: "/namespaces/a/workflowruns/r",
	} {
		m.Header.Set(k, v)
	}
	for _, e := range edit {
		e(m.Header)
	}
	if _, err := o.js.PublishMsg(o.t.Context(), m); err != nil {
		o.t.Fatal(err)
	}
}

type received struct {
	Result  protocol.Result
	Header  nats.Header
	Subject string
}

// results reads n results of all runs, in the order of the stream.
func (o *operator) results(n int) []received {
	o.t.Helper()
	c, err := o.js.OrderedConsumer(o.t.Context(), o.names.ResultsStream(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		o.t.Fatal(err)
	}
	it, err := c.Messages()
	if err != nil {
		o.t.Fatal(err)
	}
	defer it.Stop()
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	var all []received
	for len(all) < n {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			o.t.Fatalf("%d of %d results: %v", len(all), n, err)
		}
		r, err := protocol.DecodeResult(m.Data())
		if err != nil {
			o.t.Errorf("result %s: %v", m.Data(), err)
		}
		all = append(all, received{Result: r, Header: m.Headers(), Subject: m.Subject()})
	}
	return all
}

func (o *operator) cancel(uid string, c protocol.Control) {
	o.t.Helper()
	body, err := json.Marshal(c)
	if err != nil {
		o.t.Fatal(err)
	}
	if _, err := o.js.Publish(o.t.Context(), o.names.Control(uid), body); err != nil {
		o.t.Fatal(err)
	}
}

// state of the consumer of a topic.
func (o *operator) state(topic string) *jetstream.ConsumerInfo {
	o.t.Helper()
	c, err := o.js.Consumer(o.t.Context(), o.names.JobsStream(), protocol.Durable(topic))
	if err != nil {
		o.t.Fatal(err)
	}
	return c.CachedInfo()
}

// jobs counts the jobs that nobody acknowledged.
func (o *operator) jobs() uint64 {
	o.t.Helper()
	s, err := o.js.Stream(o.t.Context(), o.names.JobsStream())
	if err != nil {
		o.t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// jobStored is the part of an acknowledgement's subject that only those of one stored job have.
func (o *operator) jobStored(sequence uint64) string {
	o.t.Helper()
	s, err := o.js.Stream(o.t.Context(), o.names.JobsStream())
	if err != nil {
		o.t.Fatal(err)
	}
	m, err := s.GetMsg(o.t.Context(), sequence)
	if err != nil {
		o.t.Fatal(err)
	}
	return fmt.Sprintf(".%d.", m.Time.UnixNano())
}

// overhear gives what is said on a subject.
func (o *operator) overhear(subject string) <-chan *nats.Msg {
	o.t.Helper()
	all := make(chan *nats.Msg, 1000)
	if _, err := o.nc.ChanSubscribe(subject, all); err != nil {
		o.t.Fatal(err)
	}
	return all
}

// heardSoFar takes what came on a channel of overhear from all that the server has read.
func (o *operator) heardSoFar(all <-chan *nats.Msg) (list []*nats.Msg) {
	o.t.Helper()
	if err := o.nc.FlushTimeout(patience); err != nil {
		o.t.Fatal(err)
	}
	for len(all) > 0 {
		list = append(list, <-all)
	}
	return list
}

func (o *operator) eventually(what string, is func() bool) {
	o.t.Helper()
	deadline := time.Now().Add(patience)
	for !is() {
		if time.Now().After(deadline) {
			o.t.Fatalf("never: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// worker makes a worker with short waits on a connection of its own.
func (o *operator) worker(edit ...func(*Options)) *Worker {
	o.t.Helper()
	options := Options{BindInterval: 20 * time.Millisecond, GracePeriod: patience, Log: funcr.New(o.logs.add, funcr.Options{Verbosity: 5})}
	for _, e := range edit {
		e(&options)
	}
	w := New(o.connect(), options)
	w.pullWait = 200 * time.Millisecond
	return w
}

// start runs w; stop ends it and gives what Run returned.
func (o *operator) start(w *Worker) (stop func() error) {
	o.t.Helper()
	ctx, cancel := context.WithCancel(o.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return errors.New("run does not end")
		}
	})
	o.t.Cleanup(func() {
		if err := stop(); err != nil {
			o.t.Error(err)
		}
	})
	return stop
}

type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) add(prefix, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, prefix+args)
}

func (l *logs) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

func within(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("never: %s", what)
	}
}
