package bus

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// losses notices that JOBS or RESULTS is not the stream it was: whoever relies on what is in it has to look again. See the package's
// documentation for how, and for what it cannot see.
type losses struct {
	bus      *Bus
	recheck  chan struct{} // asks for a look at the streams now
	noticed  chan struct{} // tells that total has grown
	watched  []string      // names of the streams
	requests sync.Mutex    // held while asking about a stream: answers are judged in the order in which they were given

	mu    sync.Mutex
	total uint64
	marks map[string]*mark
}

// mark is what this process knows of one stream.
type mark struct {
	label   string
	losses  uint64    // how often it was not what it had been
	created time.Time // tells the stream from another of its name; zero: not known
	last    uint64    // highest sequence that it is known to have had
	// came are the latest messages that were delivered, each in the place of its sequence; nil: none.
	came []arrival
}

// arrival is a message that was delivered.
type arrival struct {
	seq      uint64
	storedAt time.Time
}

// rememberedArrivals is how many messages that were delivered are known, in 128 KiB. It is a lost end of that many results that is
// noticed although as many were stored before the next look.
const rememberedArrivals = 4096

// sighting is what was known of a stream when a request about it began. What comes of the request counts only if nothing was noticed
// meanwhile: else nobody knows whether it is of the stream before or of the one after.
type sighting struct {
	stream string
	losses uint64
	last   uint64
}

func newLosses(b *Bus) *losses {
	jobs, results := b.names.JobsStream(), b.names.ResultsStream()
	return &losses{
		bus: b, recheck: make(chan struct{}, 1), noticed: make(chan struct{}, 1), watched: []string{jobs, results},
		marks: map[string]*mark{jobs: {label: labelJobs}, results: {label: labelResults}},
	}
}

// Losses is how often this process has noticed that JOBS or RESULTS lost data. It never falls. Who asked before a publish, and finds
// it grown after that, does not know whether the job is still there: Recover finds out.
func (b *Bus) Losses() uint64 {
	b.losses.mu.Lock()
	defer b.losses.mu.Unlock()
	return b.losses.total
}

// LossNoticed has a value when Losses has grown since it was last received from. It is for one receiver.
func (b *Bus) LossNoticed() <-chan struct{} { return b.losses.noticed }

// before begins a request about a stream.
func (l *losses) before(stream string) sighting {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.marks[stream]
	return sighting{stream: stream, losses: m.losses, last: m.last}
}

// of is how often a stream was not what it had been.
func (l *losses) of(stream string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.marks[stream].losses
}

// acked takes the sequence that a new message got. Sequences only rise, so one that the stream had before the publish began was given
// twice. This finds a loss also if so much was published since that the stream is as long as before.
func (l *losses) acked(s sighting, seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.marks[s.stream]
	switch {
	case m.losses != s.losses:
	case seq <= s.last:
		l.notice(m, "a sequence was given again", mark{last: seq})
	default:
		m.last = max(m.last, seq)
	}
}

// present takes the sequence of a message that was read.
func (l *losses) present(s sighting, seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.marks[s.stream]; m.losses == s.losses {
		m.last = max(m.last, seq)
	}
}

// delivered takes a result that came. If another came with the same sequence, one that was stored at another time, the sequence was
// given twice. Stamps of different sequences say nothing: clocks are set back, and servers take over from each other.
func (l *losses) delivered(stream string, seq uint64, storedAt time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.marks[stream]
	if storedAt.Before(m.created) {
		return // on its way when its stream was made anew
	}
	if m.came == nil {
		m.came = make([]arrival, rememberedArrivals)
	}
	place := &m.came[seq%rememberedArrivals]
	if place.seq == seq && !place.storedAt.Equal(storedAt) {
		l.notice(m, "a sequence was given again", mark{last: seq})
		return
	}
	*place, m.last = arrival{seq, storedAt}, max(m.last, seq)
}

// judge takes what the server says of a stream.
func (l *losses) judge(s sighting, info *jetstream.StreamInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.marks[s.stream]
	now := mark{created: info.Created, last: info.State.LastSeq}
	switch {
	case m.losses != s.losses:
	case !m.created.IsZero() && !m.created.Equal(now.created):
		l.notice(m, "the stream was made anew", now)
	case now.last < s.last:
		l.notice(m, "the end of the stream is gone", now)
	default:
		m.created, m.last = now.created, max(m.last, now.last)
	}
}

// notice begins anew with what is known of the stream as it is now. What evidence other than judge's does not tell stays unknown until
// the next look, so that one loss is counted once. l.mu is held.
func (l *losses) notice(m *mark, why string, now mark) {
	now.label, now.losses = m.label, m.losses+1
	*m = now
	l.total++
	l.bus.metrics.dataLosses.WithLabelValues(m.label).Inc()
	l.bus.log.Error(nil, "NATS lost data: what was dispatched is looked up, and published again if it is gone", "stream", m.label, "evidence", why)
	l.bus.topics.forget() // consumers go with their stream
	select {
	case l.noticed <- struct{}{}:
	default:
	}
}
