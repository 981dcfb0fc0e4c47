// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// kind says what the tap saw.
type kind string

const (
	started  kind = "Started"
	answer   kind = "answer" // any result that is not Started, also an unusable one
	acked    kind = "ack"
	returned kind = "NAK"
	ended    kind = "Term"
	ping     kind = "InProgress"
	other    kind = "other" // on a subject where no worker publishes
)

// event is one message of a worker.
type event struct {
	kind    kind
	subject string

	// Of results and of others:
	header nats.Header
	body   []byte
	result protocol.Result // zero if the body is none

	// Of acknowledgements:
	seq       uint64 // of the job in JOBS
	delivered uint64 // which delivery of the job it is about, from 1
}

// maxShown keeps a report readable.
const maxShown = 120

func (e event) String() string {
	switch e.kind {
	case answer:
		return shortened(string(e.body))
	case other:
		return fmt.Sprintf("%s on %s", shortened(string(e.body)), e.subject)
	case started, acked, returned, ended, ping:
		if e.delivered > 1 {
			return fmt.Sprintf("%s of delivery %d", e.kind, e.delivered)
		}
	}
	return string(e.kind)
}

func shortened(s string) string {
	if len(s) > maxShown {
		return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:maxShown], ""), len(s))
	}
	return s
}

// tap keeps all that workers of a prefix said, in order.
type tap struct {
	names  protocol.Names
	stream string
	nc     *nats.Conn // of its own, so that it is never behind what the kit itself publishes
	wait   sync.WaitGroup

	mu  sync.Mutex
	all []event
}

// tapBuffer is how many messages may wait for the tap; the kit makes a few hundred in all.
const tapBuffer = 64 << 10

func listen(c Config, names protocol.Names) (*tap, error) {
	t := &tap{names: names, stream: names.JobsStream()}
	var err error
	if t.nc, err = nats.Connect(c.URL, nats.Name("worker-conformance tap"), nats.Timeout(ownTimeout), nats.MaxReconnects(-1), nats.ReconnectWait(look)); err != nil {
		return nil, fmt.Errorf("connect the tap: %w", err)
	}
	// One channel for all: it keeps the order in which they came.
	heard := make(chan *nats.Msg, tapBuffer)
	for _, subject := range []string{names.Prefix + ".results.>", names.Prefix + ".control.>", names.PayloadChunks(">"), "$JS.ACK.>"} {
		if _, err := t.nc.ChanSubscribe(subject, heard); err != nil {
			t.nc.Close()
			return nil, fmt.Errorf("subscribe the tap: %w", err)
		}
	}
	if err := t.nc.Flush(); err != nil {
		t.nc.Close()
		return nil, fmt.Errorf("subscribe the tap: %w", err)
	}
	closed := make(chan struct{})
	t.nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.wait.Go(func() {
		for {
			select {
			case m := <-heard:
				t.record(m)
			case <-closed:
				return
			}
		}
	})
	return t, nil
}

func (t *tap) close() {
	t.nc.Close()
	t.wait.Wait()
}

func (t *tap) record(m *nats.Msg) {
	e, ok := event{kind: other, subject: m.Subject, header: m.Header, body: m.Data}, true
	switch {
	case strings.HasPrefix(m.Subject, "$JS.ACK."):
		e, ok = t.settlement(m)
	case strings.HasPrefix(m.Subject, t.names.Prefix+".results."):
		e.kind = answer
		if r, err := protocol.DecodeResult(m.Data); err == nil {
			e.result = r
		}
		if e.result.Status == protocol.StatusStarted {
			e.kind = started
		}
	}
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, e)
}

// settlement reads an acknowledgement. Its subject ends in <stream>.<consumer>.<delivered>.<stream
// seq>.<consumer seq>.<time>. <pending>, before which newer servers write domain and account, and
// after which they write a random token.
func (t *tap) settlement(m *nats.Msg) (event, bool) {
	tokens := strings.Split(m.Subject, ".")
	at := slices.Index(tokens, t.stream)
	if at < 0 || len(tokens) < at+4 {
		return event{}, false
	}
	e := event{kind: acked, subject: m.Subject}
	e.delivered, _ = strconv.ParseUint(tokens[at+2], 10, 64) // 0 for what is no number: no job has it
	e.seq, _ = strconv.ParseUint(tokens[at+3], 10, 64)
	word, _, _ := strings.Cut(string(m.Data), " ")
	switch word {
	case "-NAK":
		e.kind = returned
	case "+TERM":
		e.kind = ended
	case "+WPI":
		e.kind = ping
	}
	return e, true
}

// of gives what was said about a job, in order. A result counts by the job in its subject, whatever
// partition it names.
func (t *tap) of(j job) []event {
	suffix := "." + strings.ReplaceAll(j.id.String(), "/", ".")
	t.mu.Lock()
	defer t.mu.Unlock()
	var es []event
	for _, e := range t.all {
		if e.seq == j.seq && e.seq != 0 || (e.kind == answer || e.kind == started) && strings.HasSuffix(e.subject, suffix) {
			es = append(es, e)
		}
	}
	return es
}

// on gives what was published on a subject.
func (t *tap) on(subject string) []event {
	return t.where(func(e event) bool { return e.subject == subject })
}

// len is how much was said so far.
func (t *tap) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all)
}

// redelivered says whether a job was delivered more than once, as far as the worker spoke of it,
// since a len.
func (t *tap) redelivered(since int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	begun := map[string]bool{}
	for _, e := range t.all[since:] {
		if e.delivered > 1 || e.kind == started && begun[e.subject] {
			return true
		}
		begun[e.subject] = begun[e.subject] || e.kind == started
	}
	return false
}

// under gives what was published on subjects that begin so.
func (t *tap) under(prefix string) []event {
	return t.where(func(e event) bool { return strings.HasPrefix(e.subject, prefix) })
}

func (t *tap) where(is func(event) bool) []event {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.all), func(e event) bool { return !is(e) })
}

func count(es []event, kinds ...kind) int {
	n := 0
	for _, e := range es {
		if slices.Contains(kinds, e.kind) {
			n++
		}
	}
	return n
}

// first is the index of the first event of a kind, or -1.
func first(es []event, k kind) int {
	return slices.IndexFunc(es, func(e event) bool { return e.kind == k })
}

// story tells what was seen of a job.
func story(es []event) string {
	if len(es) == 0 {
		return "nothing"
	}
	said := make([]string, 0, len(es))
	for _, e := range es {
		said = append(said, e.String())
	}
	return strings.Join(said, ", then ")
}
