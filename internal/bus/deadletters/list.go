// SPDX-License-Identifier: Apache-2.0

package deadletters

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// ErrNotFound says that no dead letter has that number; it was redriven, deleted, or is older than
// 14 days. No retry.
var ErrNotFound = errors.New("no such dead letter")

// letterPatience is after which time the server forgets the list of a tool that was killed.
const letterPatience = 30 * time.Second

// headerSize is how the server tells the size of a body that it leaves out.
const headerSize = "Nats-Msg-Size"

var reasonPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Store is a connection to the stream of dead letters for people's tools. It needs no
// keys, makes no streams and gives up at once where a bus.Conn would wait. Its methods may
// be called concurrently.
type Store struct {
	names protocol.Names
	nc    *nats.Conn
	js    jetstream.JetStream
}

// Letter is one message that was put aside.
type Letter struct {
	Sequence   uint64    // its number in the stream of dead letters
	StoredAt   time.Time // when it was put aside
	Reason     string    // one word
	Cause      string    // text for people
	RunUID     string    // "" if no run is known
	Unproved   bool      // only the message says that it is of RunUID: it had no valid token
	Subject    string    // where the message was published
	Stream     string    // stream and
	Original   uint64    // sequence that the message had there
	Deliveries uint64    // how often it had been delivered
	Truncated  bool      // the message's headers are gone, and of its body what is above Kept
	Size       int       // bytes of the body
	Kept       int       // bytes of the body that are in the letter
	Body       []byte    // the first of the body's bytes, as published; nil in a list

	header nats.Header // of the letter
}

// Filter picks letters; the zero value picks all. Of a run it picks those that are known to be of
// it, so that nobody without a token puts letters before who asks for it. Those that only say so
// are there for who asks for the reason ReasonRejected.
type Filter struct{ Reason, RunUID string }

// claims says whether letters are asked for that only say of which run they are.
func (f Filter) claims() bool { return f.RunUID != "" && unproved(f.Reason) }

func (f Filter) picks(l Letter) bool {
	return f.RunUID == "" || f.RunUID == l.RunUID && (!l.Unproved || f.claims())
}

// Open connects once, without a second try. Of c it uses the address, the credentials and Names.
// Close it. Errors: bus.ErrConfig, bus.ErrUnreachable, unreadable files.
func Open(ctx context.Context, c bus.Config) (*Store, error) {
	nc, names, err := bus.Dial(ctx, c)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("JetStream context: %w", err)
	}
	return &Store{names: names, nc: nc, js: js}, nil
}

// Close closes the connection.
func (d *Store) Close() { d.nc.Close() }

// Installation is whose the stream of dead letters is, as it says; empty: it does not say it.
func (d *Store) Installation(ctx context.Context) (string, error) {
	s, err := d.stream(ctx)
	if err != nil {
		return "", err
	}
	return bus.InstallationOf(s), nil
}

// List gives the oldest letters that f picks, at most limit, without bodies, and how many more
// there are. Errors: bus.ErrConfig and bus.ErrInvalidJob for a filter that cannot match,
// failures of NATS.
func (d *Store) List(ctx context.Context, f Filter, limit int) (letters []Letter, more int, err error) {
	more, err = d.each(ctx, f, func(l Letter) bool {
		letters = append(letters, l)
		return len(letters) < limit
	})
	if err != nil {
		return nil, 0, err
	}
	return letters, more, nil
}

// each hands over the letters that f picks, the oldest first, without bodies, for as long as take
// wants more. It gives how many it did not come to.
func (d *Store) each(ctx context.Context, f Filter, take func(Letter) bool) (more int, err error) {
	subjects, err := d.subjects(f)
	if err != nil {
		return 0, err
	}
	s, err := d.stream(ctx)
	if err != nil {
		return 0, err
	}
	c, pending, err := d.consumer(ctx, s, subjects)
	if err != nil {
		return 0, d.failed("list dead letters", err)
	}
	if more, err = d.read(ctx, c, f, pending, take); err != nil {
		return 0, d.failed("list dead letters", err)
	}
	return more, nil
}

// consumer also says how many letters there are for it. Without a bound of time the library would
// wait for ever for an answer that does not come, as where a permission is missing.
func (d *Store) consumer(ctx context.Context, s jetstream.Stream, subjects []string) (c jetstream.Consumer, pending int, err error) {
	ctx, cancel := context.WithTimeout(ctx, bus.CallTimeout)
	defer cancel()
	c, err = s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: subjects, HeadersOnly: true, InactiveThreshold: letterPatience,
	})
	if err != nil {
		return nil, 0, err
	}
	info, err := c.Info(ctx)
	if err != nil {
		return nil, 0, err
	}
	return c, int(info.NumPending), nil
}

// read hands over the pending letters that f picks for as long as take wants more, and gives how
// many are left. Of a run it reads to the end to know that: those that only say of which run they
// are lie among those of all runs, or, where they are old, among those that are known to be of it.
func (d *Store) read(ctx context.Context, c jetstream.Consumer, f Filter, pending int, take func(Letter) bool) (more int, err error) {
	if pending == 0 {
		return 0, nil
	}
	messages, err := c.Messages()
	if err != nil {
		return 0, err
	}
	defer messages.Stop()
	for wants := true; pending > 0 && (wants || f.RunUID != ""); {
		var l Letter
		if l, pending, err = d.next(ctx, messages); err != nil {
			return 0, err
		}
		switch {
		case !f.picks(l):
		case wants:
			wants = take(l)
		default:
			more++
		}
	}
	return more + pending, nil
}

// next also says how many letters come after it.
func (d *Store) next(ctx context.Context, messages jetstream.MessagesContext) (l Letter, pending int, err error) {
	ctx, cancel := context.WithTimeout(ctx, bus.CallTimeout)
	defer cancel()
	m, err := messages.Next(jetstream.NextContext(ctx))
	if err != nil {
		return Letter{}, 0, err
	}
	meta, err := m.Metadata()
	if err != nil {
		return Letter{}, 0, err
	}
	return d.letter(m.Subject(), m.Headers(), meta.Sequence.Stream, meta.Timestamp), int(meta.NumPending), nil
}

// Get reads one letter with its body. Errors: ErrNotFound, failures of NATS.
func (d *Store) Get(ctx context.Context, sequence uint64) (Letter, error) {
	s, err := d.stream(ctx)
	if err != nil {
		return Letter{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, bus.CallTimeout)
	defer cancel()
	m, err := s.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return Letter{}, fmt.Errorf("dead letter %d: %w", sequence, ErrNotFound)
	}
	if err != nil {
		return Letter{}, d.failed(fmt.Sprintf("read dead letter %d", sequence), err)
	}
	l := d.letter(m.Subject, m.Header, m.Sequence, m.Time)
	l.Body, l.Kept = m.Data, len(m.Data)
	l.Size = max(l.Size, l.Kept)
	return l, nil
}

// OriginalHeader is the headers that the message was published with, but for those that
// are gone (Truncated).
func (l Letter) OriginalHeader() map[string][]string {
	h := map[string][]string{}
	for name, values := range l.header {
		if original, ok := originalName(name); ok {
			h[original] = values
		}
	}
	return h
}

// originalName is the name that a header of a letter had in the message; false: it was not there.
func originalName(name string) (string, bool) {
	rest, moved := strings.CutPrefix(name, HeaderOriginalPrefix)
	if moved && reserved(rest) {
		return rest, true
	}
	return name, !reserved(name) && !strings.HasPrefix(name, headerDead)
}

// letter reads what the headers say. A letter that something else than Syncopate published is shown
// as far as it makes sense.
func (d *Store) letter(subject string, h nats.Header, sequence uint64, at time.Time) Letter {
	l := Letter{
		Sequence: sequence, StoredAt: at.UTC(), Reason: h.Get(HeaderReason), Cause: h.Get(HeaderError),
		Subject: h.Get(HeaderSubject), Stream: h.Get(HeaderStream), Truncated: h.Get(HeaderTruncated) != "", header: h,
	}
	// What is no number stays 0.
	l.Original, _ = strconv.ParseUint(h.Get(HeaderSequence), 10, 64)
	l.Deliveries, _ = strconv.ParseUint(h.Get(HeaderDeliveries), 10, 64)
	l.Kept, _ = strconv.Atoi(h.Get(headerSize))
	l.Size, _ = strconv.Atoi(h.Get(HeaderSize))
	l.Size = max(l.Size, l.Kept)
	tokens := strings.Split(strings.TrimPrefix(subject, d.names.Prefix+".deadletters."), ".")
	if l.Reason == "" {
		l.Reason = tokens[0]
	}
	if len(tokens) > 1 && tokens[1] != "-" {
		l.RunUID = tokens[1]
	}
	if l.Unproved = unproved(l.Reason); l.Unproved {
		id, _ := d.names.ParseResult(l.Subject) // what names no job names no run
		l.RunUID = id.RunUID
	}
	return l
}

// subjects has the letters that f picks, and others. Letters of before have the run at the end of
// their subject: what may be redriven, and what has no valid token and only names the run.
func (d *Store) subjects(f Filter) ([]string, error) {
	reason, uid := "*", "*"
	if f.Reason != "" {
		if reason = f.Reason; !reasonPattern.MatchString(reason) {
			return nil, fmt.Errorf("%w: reason %q", bus.ErrConfig, reason)
		}
	}
	if f.RunUID != "" {
		if err := bus.CheckRunUID(f.RunUID); err != nil {
			return nil, err
		}
		uid = f.RunUID
	}
	ofRun := d.names.Prefix + ".deadletters." + reason + "." + uid
	subjects := []string{ofRun, ofRun + ".>"}
	if f.claims() {
		subjects = append(subjects, d.names.DeadLetter(reason, ""))
	}
	return subjects, nil
}

func (d *Store) stream(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, bus.CallTimeout)
	defer cancel()
	s, err := d.js.Stream(ctx, d.names.DeadLettersStream())
	if err != nil {
		return nil, d.failed("stream "+d.names.DeadLettersStream(), err)
	}
	return s, nil
}

// failed adds what the connection noticed meanwhile: a missing permission shows as a request
// without an answer.
func (d *Store) failed(what string, err error) error {
	if noticed := d.nc.LastError(); noticed != nil && !errors.Is(err, noticed) {
		return fmt.Errorf("%s: %w (%w)", what, err, noticed)
	}
	return fmt.Errorf("%s: %w", what, err)
}
